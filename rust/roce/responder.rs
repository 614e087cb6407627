// SPDX-License-Identifier: GPL-2.0

//! The receive half of a queue pair: request packets in; placements, replies and completions out.
//!
//! # How the driver drives it
//!
//! ```text
//! on_request -> Verdict::Drop                                    count it
//!               Verdict::Reply                                   send it
//!               Verdict::Early                                   send the reply, maybe keep it
//!               Verdict::Fail                                    execute the outcome
//!               Verdict::Place -> copy the payload -> finish --> execute the outcome
//!               Verdict::Read --> check the key --> start_read, poll_response, response_sent
//!               Verdict::Execute --> do it --> executed --> execute the outcome
//! ```
//!
//! To *execute an outcome* is to complete the receive request, to send the reply, to raise the
//! event and to move the queue pair to ERR, each if the [`Outcome`] says so.
//!
//! # Early packets
//!
//! The driver may keep a packet of [`Verdict::Early`], and handles it when
//! [`Responder::is_kept_due`]:
//!
//! ```text
//! may_keep -> kept      ...      is_kept_due -> took_kept -> on_request      ...      report_gap
//! ```
//!
//! # Receive work requests
//!
//! When a message needs a receive request, the responder takes one from the [`RecvQueue`]. This is
//! the *held* receive request until an [`Outcome::completion`] finishes it. If a UC message is
//! aborted, the next message uses the held receive request.

mod checkpoint;
mod command;
mod datagram;
mod early;
mod message;
mod read;
mod reliable;
mod resources;
mod sequence;
mod snapshot;
mod unreliable;
mod verdict;

pub use self::{
    checkpoint::ResponseCheckpoint,
    read::ReadSegment,
    resources::{
        records_for,
        Record,
        Records, //
    },
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
    early::Early,
    message::{
        Message,
        Plan, //
    },
    read::Stream,
    resources::ResponderResources,
    sequence::Sequence, //
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
    qp::QpAccess,
    wire::{
        Packet,
        Syndrome, //
    },
    wr::{
        MemError,
        Status, //
    }, //
};

/// The most READs and atomics of the peer that a queue pair saves: the limit of
/// [`RecvParams::max_dest_rd_atomic`].
pub const MAX_RD_ATOMIC: usize = 16;

/// The source of posted receive requests.
pub trait RecvQueue {
    /// Takes the next receive request, or returns `None` if there is none.
    ///
    /// Returns the total length of its buffers in bytes, or an error if it cannot be used.
    fn take(&mut self) -> Option<Result<u32, MemError>>;
}

/// The queue pair attributes of the receive half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvParams {
    /// The largest payload of a packet in bytes, a power of two: the path MTU, for UD the port MTU.
    pub mtu: u32,
    /// The QPN of the peer, which gets the replies (RC only).
    pub dest_qpn: Qpn,
    /// The timer code of RNR NAKs (RC only).
    pub min_rnr_timer: u8,
    /// The Q_Key that datagrams must carry (UD only).
    pub qkey: Qkey,
    /// The remote access rights (RC and UC only).
    pub access: QpAccess,
    /// The most requests with an explicit response that the peer may have outstanding, up to
    /// [`MAX_RD_ATOMIC`]; 0 forbids them, but other values are not enforced (RC only).
    pub max_dest_rd_atomic: u8,
}

/// The request that is in progress until the driver reports a result.
#[derive(Clone, Copy)]
enum Pending {
    /// Nothing is pending.
    None,
    /// The driver copies payload.
    Place(PendingPlace),
    /// The driver checks the key of a READ.
    Read { psn: Psn, request: ReadRequest },
    /// The driver executes a command.
    Execute { psn: Psn, opcode: Opcode },
}

/// A packet whose payload is being copied.
#[derive(Clone, Copy)]
struct PendingPlace {
    opcode: Opcode,
    psn: Psn,
    ack_req: bool,
    /// The completion of the message, if this is its end and it has one.
    completion: Option<RecvCompletion>,
    /// The message after the packet.
    after: Message,
}

/// The receive half of a queue pair.
///
/// It has no lock; the driver calls it with the lock of the receive half held. `S` is the storage
/// for the last requests with an explicit response.
pub struct Responder<S = [Record; MAX_RD_ATOMIC]> {
    transport: Transport,
    params: RecvParams,
    sequence: Sequence,
    early: Early,
    /// True if the queue pair must move, or has moved, to ERR.
    failed: bool,
    /// True if the first packet is still to be reported as [`AsyncEvent::CommEst`].
    comm_est: bool,
    /// The message that is being received.
    message: Message,
    /// The buffer length of the held receive request in bytes, if there is one.
    held: Option<u32>,
    pending: Pending,
    /// The READ whose responses are being sent.
    stream: Option<Stream>,
    resources: ResponderResources<S>,
}

impl Responder {
    /// Creates the receive half of a queue pair that has received nothing.
    ///
    /// It has storage for [`MAX_RD_ATOMIC`] requests, which is the limit of any queue pair.
    pub fn new(transport: Transport) -> Responder {
        Responder::with_records(transport, [Record::default(); MAX_RD_ATOMIC])
    }
}

impl<S: Records> Responder<S> {
    /// Creates the receive half of a queue pair that has received nothing.
    pub fn with_records(transport: Transport, records: S) -> Responder<S> {
        Responder {
            transport,
            params: RecvParams::default(),
            sequence: Sequence::new(Psn::default()),
            early: Early::default(),
            failed: false,
            comm_est: false,
            message: Message::None,
            held: None,
            pending: Pending::None,
            stream: None,
            resources: ResponderResources::new(records),
        }
    }

    /// Drops all received state (RESET), including the held receive request.
    ///
    /// The parameters are kept.
    pub fn reset(&mut self) {
        self.sequence = Sequence::new(Psn::default());
        self.early = Early::default();
        self.failed = false;
        self.comm_est = false;
        self.message = Message::None;
        self.held = None;
        self.pending = Pending::None;
        self.stream = None;
        self.resources.clear();
    }

    /// Returns the number of requests with an explicit response for which there is storage.
    #[inline]
    pub fn records(&self) -> usize {
        self.resources.capacity()
    }

    /// Moves the saved requests to other storage, only the last ones if it is smaller.
    ///
    /// Returns the old storage.
    pub fn move_records(&mut self, records: S) -> S {
        self.resources.move_to(records)
    }

    /// Changes the attributes of the receive half.
    pub fn set_params(&mut self, params: &RecvParams) {
        self.params = *params;
    }

    /// Changes the MTU, in bytes.
    ///
    /// For UD, the driver sets the current port MTU before each datagram.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.params.mtu = mtu;
    }

    /// Sets the PSN of the first packet (RQ_PSN of the move to RTR).
    pub fn set_epsn(&mut self, psn: Psn) {
        self.sequence = Sequence::new(psn);
    }

    /// Sets whether the queue pair is in RTR.
    ///
    /// There the first packet is reported as [`AsyncEvent::CommEst`].
    pub fn set_rtr(&mut self, rtr: bool) {
        self.comm_est = rtr && self.transport != Transport::Ud;
    }

    /// Returns the PSN of the packet to execute next.
    #[inline]
    pub fn epsn(&self) -> Psn {
        self.sequence.epsn()
    }

    /// Returns the QPN of the peer (RC, UC).
    #[inline]
    pub fn dest_qpn(&self) -> Qpn {
        self.params.dest_qpn
    }

    /// Returns whether a request is in progress.
    ///
    /// That is between [`Verdict::Place`] and [`Responder::finish`], between [`Verdict::Execute`]
    /// and [`Responder::executed`], or between [`Verdict::Read`] and the last response. No other
    /// request may be handled in the meantime.
    #[inline]
    pub fn is_busy(&self) -> bool {
        !matches!(self.pending, Pending::None) || self.read_in_progress()
    }

    /// Accounts for the loss of a completion, which ends the queue pair, and returns the `reply` of
    /// its outcome if it is to be sent nevertheless.
    ///
    /// Neither this reply nor a later one acknowledges the message. A NAK is sent, because the peer
    /// gets no other reply.
    #[cold]
    pub fn completion_lost(&mut self, reply: Option<Reply>) -> Option<Reply> {
        self.failed = true;
        reply.filter(|reply| matches!(reply.syndrome, Syndrome::Nak(_)))
    }

    /// Returns the acknowledgment of, or the response to, the last request, if that was not a READ.
    ///
    /// The driver sends it when the queue pair stops receiving. Without it, a peer that has not
    /// received the acknowledgment, or has not requested it yet, would retransmit in vain, and
    /// report the received messages as failed. The responses to a READ acknowledge the requests
    /// before it. After them, the peer does not expect the acknowledgment of an earlier request.
    pub fn last_ack(&self) -> Option<Reply> {
        if self.transport != Transport::Rc || self.failed || self.sequence.msn() == 0 {
            return None;
        }
        let acked = self.sequence.acked();
        if acked.next() == self.sequence.epsn() {
            return Some(self.ack(acked));
        }
        self.last_response()
    }

    /// Decides on a packet whose P_Key, source address and ICRC have been checked.
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

    /// Requests the copy of the payload of a valid packet.
    #[inline]
    fn place(&mut self, pkt: &Packet<'_>, plan: &Plan, ack_req: bool) -> Verdict {
        let completes = plan.needs.is_some() && pkt.opcode().ends_message();
        self.pending = Pending::Place(PendingPlace {
            opcode: pkt.opcode(),
            psn: pkt.psn(),
            ack_req,
            completion: completes.then(|| RecvCompletion::done(pkt, plan.received)),
            after: plan.after,
        });
        Verdict::Place(plan.place)
    }

    /// Reports the result of the copy that [`Verdict::Place`] requested, and returns the outcome.
    ///
    /// Returns the default outcome, which requests nothing, if no copy was requested.
    #[inline]
    pub fn finish(&mut self, result: Result<(), MemError>) -> Outcome {
        let Pending::Place(place) = self.pending else {
            return Outcome::default();
        };
        self.pending = Pending::None;
        match result {
            Ok(()) => self.placed(place),
            Err(error) => self.not_placed(&place, error),
        }
    }

    /// Drops the packet of [`Verdict::Place`], [`Verdict::Read`] or [`Verdict::Execute`], as if it
    /// had been lost on the wire.
    ///
    /// The receive request that it may have taken is held for the next packet.
    #[cold]
    pub fn abandon(&mut self) {
        self.pending = Pending::None;
    }

    /// Continues after the payload was copied.
    #[inline]
    fn placed(&mut self, place: PendingPlace) -> Outcome {
        self.message = place.after;
        let mut reply = None;
        if self.transport != Transport::Ud {
            self.sequence.executed(place.psn);
        }
        if place.opcode.ends_message() {
            self.sequence.count_message();
        }
        if self.transport == Transport::Rc
            && self.early.acknowledges(place.ack_req, self.sequence.epsn())
        {
            reply = Some(self.ack(place.psn));
        }
        if place.completion.is_some() {
            self.held = None;
        }
        Outcome {
            reply,
            completion: place.completion,
            error: false,
            event: self.established(),
        }
    }

    /// Continues after the payload could not be copied.
    #[cold]
    fn not_placed(&mut self, place: &PendingPlace, error: MemError) -> Outcome {
        let remote = place.opcode.operation() == Operation::Write;
        match self.transport {
            Transport::Rc if remote => self.access_refused(place.psn, error),
            Transport::Rc => self.recv_refused(place.psn, error),
            Transport::Uc if remote => {
                self.cut(place.psn);
                Outcome::default()
            }
            Transport::Uc => self.fail_held(recv_status(error)),
            Transport::Ud => self.datagram_refused(error),
        }
    }

    /// Returns [`AsyncEvent::CommEst`] if this is the first packet in RTR.
    #[inline]
    fn established(&mut self) -> Option<AsyncEvent> {
        core::mem::take(&mut self.comm_est).then_some(AsyncEvent::CommEst)
    }

    /// Fails the held receive request and the queue pair.
    #[cold]
    fn fail_held(&mut self, status: Status) -> Outcome {
        self.failed = true;
        let held = self.held.take().is_some();
        Outcome {
            completion: held.then(|| RecvCompletion::failed(status)),
            error: true,
            ..Outcome::default()
        }
    }
}

/// Returns the completion status of a receive request whose buffers could not be used.
fn recv_status(error: MemError) -> Status {
    match error {
        MemError::Protection => Status::LocProt,
        MemError::Length => Status::LocLen,
        MemError::Misaligned | MemError::Fault | MemError::NotPresent => Status::LocQpOp,
        // Like C rxe; the specification defines no status for it.
        MemError::Invalidate => Status::RemInvReq,
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn out_of_order_calls_have_no_effect() {
        let [frame] = frames(Transport::Uc, &[wr(SendOp::Send, 3)]);
        let mut responder = responder_of(Transport::Uc);
        let mut rq = Recvs::new(2, MTU);
        assert_eq!(responder.finish(Ok(())), Outcome::default());
        let verdict = responder.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Place(Place::Recv { offset: 0, len: 3 }));
        let verdict = responder.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::Busy));
        assert_eq!(responder.start_read(Ok(())), None);
        assert_eq!(responder.executed(Ok(0)), Outcome::default());
        assert!(responder.finish(Ok(())).completion.is_some());

        let mut other = Responder::new(Transport::Rc);
        let verdict = other.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::BadOpcode));
    }

    #[test]
    fn first_packet_in_rtr_raises_comm_est() {
        let mut uc = requester(Transport::Uc, 2);
        let mut responder = responder_of(Transport::Uc);
        responder.set_rtr(true);
        let mut rq = Recvs::new(2, MTU);
        for event in [Some(AsyncEvent::CommEst), None] {
            assert!(uc.post(wr(SendOp::Send, 3)).is_ok());
            let frame = send(&mut uc).map(|sent| Frame::new(&sent));
            let frame = frame.unwrap();
            responder.on_request(&frame.packet(), &mut rq);
            assert_eq!(responder.finish(Ok(())).event, event);
        }
    }

    #[test]
    fn only_connections_in_rtr_raise_comm_est() {
        for (transport, is_rtr) in [(Transport::Ud, true), (Transport::Uc, false)] {
            let mut rx = Responder::new(transport);
            rx.set_rtr(is_rtr);
            assert_eq!(rx.established(), None);
        }
    }

    /// Leaves something behind in a half that has received the first packet of a SEND.
    const USES: [fn(&mut Responder, &Frame); 4] = [
        |rx, next| {
            let verdict = rx.on_request(&next.packet(), &mut BadRecvs);
            assert!(matches!(verdict, Verdict::Place(_)));
        },
        |rx, next| {
            rx.on_request(&next.packet(), &mut BadRecvs);
            rx.finish(Err(MemError::Protection));
        },
        |rx, next| {
            rx.set_epsn(Psn::new(0));
            assert!(matches!(
                rx.on_request(&next.packet(), &mut BadRecvs),
                Verdict::Early(Some(_))
            ));
            rx.kept(next.packet().psn());
        },
        |rx, _| {
            rx.reset();
            assert!(matches!(request(rx, &read(9 * MTU)), Verdict::Read(_)));
            rx.start_read(Ok(()));
            rx.set_rtr(true);
        },
    ];

    #[test]
    fn reset_half_is_like_a_new_one() {
        for leave_traces in USES {
            let frames = frames::<2>(Transport::Rc, &[wr(SendOp::Send, 2 * MTU)]);
            let mut rx = crate::testutil::responder();
            let mut rq = Recvs::new(2, 2 * MTU);
            rx.on_request(&frames[0].packet(), &mut rq);
            rx.finish(Ok(()));
            leave_traces(&mut rx, &frames[1]);
            rx.reset();
            let new = Responder::new(Transport::Rc);
            assert_eq!(rx.snapshot(), new.snapshot());
            assert!(!rx.is_busy() && rx.last_ack().is_none());

            let second = rx.on_request(&frames[1].packet(), &mut rq);
            assert!(matches!(second, Verdict::Early(Some(_))));
            assert!(rx.may_keep(frames[1].packet().psn()));
            rx.on_request(&frames[0].packet(), &mut rq);
            assert_eq!(rx.finish(Ok(())), Outcome::default());
            assert!(!rx.is_kept_due());
            rx.on_request(&frames[1].packet(), &mut rq);
            let reply = rx.finish(Ok(())).reply;
            assert_eq!(reply.map(|reply| reply.msn), Some(1));
            assert_eq!(rq.left, 0);
            let again = request(&mut rx, &read(9 * MTU));
            assert_eq!(again, Verdict::Drop(DropReason::Duplicate));
        }
    }
}
