// SPDX-License-Identifier: GPL-2.0

//! The receive half of a queue pair: request packets in; placements, replies and completions out.
//!
//! # How the shell drives it
//!
//! ```text
//! on_request -> Verdict::Drop                                    count it
//!               Verdict::Reply                                   send it
//!               Verdict::Fail                                    execute the outcome
//!               Verdict::Place -> copy the payload -> finish --> execute the outcome
//!               Verdict::Read --> check the key --> start_read, poll_response, response_sent
//!               Verdict::Execute --> do it --> executed --> execute the outcome
//! ```
//!
//! To *execute an outcome* is to complete the receive work request, to send the reply, to raise the
//! event and to move the queue pair to ERR, as far as it says so.
//!
//! # Receive work requests
//!
//! The responder takes one from the [`RecvQueue`] when a message needs it, and the shell keeps it
//! as the *held* one until an [`Outcome::consumed`] ends it. A UC message that gets cut leaves it
//! held for the next message.

mod command;
mod datagram;
mod message;
mod read;
mod reliable;
mod resources;
mod snapshot;
mod unreliable;
mod verdict;

pub use self::{
    read::ReadSegment,
    snapshot::{
        RecvSnapshot,
        RecvStage, //
    },
    verdict::{
        Action,
        AsyncEvent,
        Command,
        DropReason,
        Outcome,
        Place,
        ReadRequest,
        RecvCompletion,
        Reply,
        ReplyKind,
        Verdict, //
    }, //
};

use self::{
    message::Message,
    read::Stream,
    resources::ResponderResources, //
};
use crate::{
    ids::{
        Qkey,
        Qpn, //
    },
    opcode::{
        Opcode,
        Operation,
        Transport, //
    },
    psn::Psn,
    wire::Packet,
    wr::{
        MemError,
        Status, //
    }, //
};

/// How many READs and atomics of the peer a queue pair can remember: the limit of
/// [`RecvParams::max_dest_rd_atomic`].
pub const MAX_RD_ATOMIC: usize = 16;

/// Bits of the MSN.
const MSN_MASK: u32 = 0x00ff_ffff;

/// Where posted receive work requests come from.
pub trait RecvQueue {
    /// Takes the next one and returns the total bytes of its buffers, or why it cannot be used.
    /// `None` if there is none.
    fn take(&mut self) -> Option<Result<u32, MemError>>;
}

/// What the peer may do to local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// RDMA WRITE is allowed.
    pub remote_write: bool,
    /// RDMA READ is allowed.
    pub remote_read: bool,
    /// Compare and swap, and fetch and add, are allowed.
    pub remote_atomic: bool,
    /// FLUSH is allowed that makes writes visible to all.
    pub flush_global: bool,
    /// FLUSH is allowed that makes writes persistent.
    pub flush_persistent: bool,
}

/// Attributes of the queue pair that the receive half obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvParams {
    /// The largest payload of a packet in bytes: path MTU, for UD the MTU of the port. A power of
    /// two.
    pub mtu: u32,
    /// The queue pair of the peer, which gets the replies. RC only.
    pub dest_qpn: Qpn,
    /// Code of the time that a peer has to wait when there is no receive work request. RC only.
    pub min_rnr_timer: u8,
    /// The key that datagrams must present. UD only.
    pub qkey: Qkey,
    /// What the peer may do to local memory. RC and UC only.
    pub access: Access,
    /// How many READs, atomics and their like are remembered in order to answer them again, up to
    /// [`MAX_RD_ATOMIC`]. RC only.
    pub max_dest_rd_atomic: u8,
}

impl Default for RecvParams {
    fn default() -> RecvParams {
        RecvParams {
            mtu: 1024,
            dest_qpn: Qpn::default(),
            min_rnr_timer: 0,
            qkey: Qkey::default(),
            access: Access::default(),
            max_dest_rd_atomic: 0,
        }
    }
}

/// What was decided about a packet, to be carried out once the shell reports back.
enum Pending {
    /// Nothing is open.
    None,
    /// The shell copies payload.
    Place(PendingPlace),
    /// The shell checks the key of a READ.
    Read(PendingRead),
    /// The shell executes a command.
    Execute(PendingCommand),
}

/// A packet whose payload is being copied.
struct PendingPlace {
    opcode: Opcode,
    psn: Psn,
    ack_req: bool,
    /// The completion of the message, if this is its end and it has one.
    completion: Option<RecvCompletion>,
    /// The message after the packet.
    after: Message,
}

/// A READ whose key is being checked.
struct PendingRead {
    psn: Psn,
    /// How many PSNs the response takes.
    count: u32,
    request: ReadRequest,
}

/// A command that is being executed.
struct PendingCommand {
    psn: Psn,
    opcode: Opcode,
}

/// The receive half of a queue pair.
///
/// Needs no lock of its own; the shell calls it under the lock of the receive half.
pub struct Responder {
    transport: Transport,
    params: RecvParams,
    /// The PSN to execute next.
    epsn: Psn,
    /// The last SEND or WRITE that was executed.
    ack_psn: Psn,
    /// How many messages were completed.
    msn: u32,
    /// Whether the peer was told to send the expected packet again: until it comes, everything
    /// behind it is ignored.
    nak_sent: bool,
    /// Whether the queue pair must go, or has gone, to ERR.
    failed: bool,
    /// Whether the first packet is still to be reported.
    comm_est: bool,
    /// The message that is being received.
    message: Message,
    /// Bytes of the buffers of the held receive work request, if there is one.
    held: Option<u32>,
    pending: Pending,
    /// The READ that is being answered.
    stream: Option<Stream>,
    resources: ResponderResources,
}

impl Responder {
    /// Makes the receive half of a queue pair that has received nothing.
    pub fn new(transport: Transport) -> Responder {
        Responder {
            transport,
            params: RecvParams::default(),
            epsn: Psn::default(),
            ack_psn: Psn::default().prev(),
            msn: 0,
            nak_sent: false,
            failed: false,
            comm_est: false,
            message: Message::None,
            held: None,
            pending: Pending::None,
            stream: None,
            resources: ResponderResources::new(),
        }
    }

    /// Forgets everything that was received (RESET), the held receive work request too. The
    /// parameters stay.
    pub fn reset(&mut self) {
        let params = self.params;
        *self = Responder::new(self.transport);
        self.params = params;
    }

    /// Changes the attributes that the receive half obeys.
    pub fn set_params(&mut self, params: &RecvParams) {
        self.params = *params;
    }

    /// Changes the MTU, in bytes: for datagrams that of the port counts, whenever one comes.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.params.mtu = mtu;
    }

    /// Sets the PSN of the first packet (RQ_PSN of the move to RTR).
    pub fn set_epsn(&mut self, psn: Psn) {
        self.epsn = psn;
        self.ack_psn = psn.prev();
    }

    /// Says whether the queue pair is in RTR, where its first packet is reported as
    /// [`AsyncEvent::CommEst`].
    pub fn set_rtr(&mut self, rtr: bool) {
        self.comm_est = rtr && self.transport != Transport::Ud;
    }

    /// Returns the PSN of the packet to execute next.
    #[inline]
    pub fn epsn(&self) -> Psn {
        self.epsn
    }

    /// Returns whether a receive work request was taken and is not finished.
    #[inline]
    pub fn holds_wqe(&self) -> bool {
        self.held.is_some()
    }

    /// Returns whether a request is not finished: between [`Verdict::Place`] and
    /// [`Responder::finish`], between [`Verdict::Execute`] and [`Responder::executed`], or between
    /// [`Verdict::Read`] and the last response. No other may be handled until it is.
    #[inline]
    pub fn is_busy(&self) -> bool {
        !matches!(self.pending, Pending::None) || self.read_in_progress()
    }

    /// Returns the last acknowledgment once more, if there was one.
    ///
    /// For a queue pair that is about to go: a peer that missed it would ask again, of nobody, and
    /// take for lost what was received.
    pub fn last_ack(&self) -> Option<Reply> {
        if self.transport != Transport::Rc || self.failed || self.msn == 0 {
            return None;
        }
        let age = self.ack_psn.forward(self.epsn);
        if age > 1 {
            if let Some(reply) = self.last_response() {
                return Some(reply);
            }
        }
        // To the peer, one that is too far back may name any of its requests.
        (age <= Psn::HALF / 2).then(|| self.ack(self.ack_psn))
    }

    /// Decides what becomes of a packet. P_Key, source address and ICRC have been checked.
    ///
    /// Must not be called while [`Responder::is_busy`]; the packet would be dropped.
    #[inline]
    pub fn on_request(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        if self.failed {
            return Verdict::Drop(DropReason::Failed);
        }
        if self.is_busy() {
            return Verdict::Drop(DropReason::Busy);
        }
        let opcode = pkt.opcode();
        if opcode.transport() != self.transport || !opcode.is_request() {
            return Verdict::Drop(DropReason::BadOpcode);
        }
        match self.transport {
            Transport::Rc => self.on_reliable(pkt, rq),
            Transport::Uc => self.on_unreliable(pkt, rq),
            Transport::Ud => self.on_datagram(pkt, rq),
        }
    }

    /// Says how the copy went that [`Verdict::Place`] asked for, and returns what follows.
    ///
    /// The default outcome, which asks for nothing, is returned if no copy was asked for.
    #[inline]
    pub fn finish(&mut self, result: Result<(), MemError>) -> Outcome {
        match core::mem::replace(&mut self.pending, Pending::None) {
            Pending::Place(place) => match result {
                Ok(()) => self.placed(place),
                Err(error) => self.not_placed(&place, error),
            },
            other => {
                self.pending = other;
                Outcome::default()
            }
        }
    }

    /// Forgets the packet that [`Verdict::Place`] or [`Verdict::Read`] was about, as if it had been
    /// lost on its way. The receive work request that it may have taken is held for the next one.
    #[cold]
    pub fn abandon(&mut self) {
        self.pending = Pending::None;
    }

    /// Goes on after the payload was copied.
    #[inline]
    fn placed(&mut self, place: PendingPlace) -> Outcome {
        self.message = place.after;
        let mut reply = None;
        if self.transport != Transport::Ud {
            self.epsn = place.psn.next();
            self.ack_psn = place.psn;
        }
        if place.opcode.ends_message() {
            self.count_message();
        }
        if self.transport == Transport::Rc && place.ack_req {
            reply = Some(self.ack(place.psn));
        }
        let consumed = place.completion.is_some();
        if consumed {
            self.held = None;
        }
        Outcome {
            reply,
            completion: place.completion,
            consumed,
            error: false,
            event: self.established(),
        }
    }

    /// Goes on after the payload could not be copied.
    #[cold]
    fn not_placed(&mut self, place: &PendingPlace, error: MemError) -> Outcome {
        let remote = place.opcode.operation() == Operation::Write;
        match self.transport {
            Transport::Rc if remote => self.write_refused(place, error),
            Transport::Rc => self.recv_refused(place.psn, error),
            Transport::Uc if remote => {
                self.cut(place.psn);
                Outcome::default()
            }
            Transport::Uc => self.fail_held(recv_status(error)),
            Transport::Ud => self.datagram_refused(error),
        }
    }

    /// Counts a completed message.
    #[inline]
    fn count_message(&mut self) {
        self.msn = self.msn.wrapping_add(1) & MSN_MASK;
    }

    /// Returns the event of the first packet, if this is it.
    #[inline]
    fn established(&mut self) -> Option<AsyncEvent> {
        core::mem::take(&mut self.comm_est).then_some(AsyncEvent::CommEst)
    }

    /// Ends the held receive work request, and with it the queue pair.
    #[cold]
    fn fail_held(&mut self, status: Status) -> Outcome {
        self.failed = true;
        self.message = Message::None;
        let held = self.held.take().is_some();
        Outcome {
            completion: held.then(|| RecvCompletion::failed(status)),
            consumed: held,
            error: true,
            ..Outcome::default()
        }
    }
}

/// Returns how a receive work request ends whose buffers could not be used.
fn recv_status(error: MemError) -> Status {
    match error {
        MemError::Protection => Status::LocProt,
        MemError::Length => Status::LocLen,
        MemError::Fault | MemError::Absent => Status::LocQpOp,
        // As C rxe; the specification has no status of its own for it.
        MemError::Invalidate => Status::RemInvReq,
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_responder))]
mod tests {
    use super::*;
    use crate::{
        testutil::{
            recv_params,
            requester,
            slots,
            wr,
            Frame,
            Recvs,
            MTU,
            NOW, //
        },
        wr::SendOp, //
    };

    #[test]
    fn nothing_is_handled_out_of_turn() {
        let mut slots = slots::<1>();
        let mut uc = requester(Transport::Uc, &mut slots);
        assert!(uc.post(wr(SendOp::Send, 3)).is_ok());
        let frame = uc.poll_transmit().map(|sent| Frame::request(&sent));
        let frame = frame.unwrap();

        let mut responder = Responder::new(Transport::Uc);
        responder.set_params(&recv_params());
        let mut rq = Recvs { left: 2, size: MTU };
        assert_eq!(responder.finish(Ok(())), Outcome::default());
        let verdict = responder.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Place(Place::Recv { offset: 0, len: 3 }));
        let verdict = responder.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::Busy));
        assert_eq!(responder.start_read(Ok(())), None);
        assert!(responder.finish(Ok(())).consumed);

        let mut other = Responder::new(Transport::Rc);
        let verdict = other.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::BadOpcode));
    }

    #[test]
    fn the_first_packet_in_rtr_is_an_event() {
        let mut slots = slots::<2>();
        let mut uc = requester(Transport::Uc, &mut slots);
        let mut responder = Responder::new(Transport::Uc);
        responder.set_params(&recv_params());
        responder.set_rtr(true);
        let mut rq = Recvs { left: 2, size: MTU };
        for event in [Some(AsyncEvent::CommEst), None] {
            assert!(uc.post(wr(SendOp::Send, 3)).is_ok());
            let frame = uc.poll_transmit().map(|sent| Frame::request(&sent));
            uc.transmitted(NOW);
            let frame = frame.unwrap();
            responder.on_request(&frame.packet(), &mut rq);
            assert_eq!(responder.finish(Ok(())).event, event);
        }
    }
}
