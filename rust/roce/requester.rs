// SPDX-License-Identifier: GPL-2.0

//! The send half of a queue pair: work requests in, request packets out, responses in, completions
//! out.
//!
//! # How the driver drives it
//!
//! ```text
//! post ---------> slots --> poll_transmit --> (build and send a packet) --> transmitted
//!                       --> poll_local -----> (do it) --------------------> local_done
//! on_response --> (place the returned data)   --> placed
//!             --> early: (keep it, if may_keep) --> kept, not_kept
//! is_kept_due --> (take the first kept one) --> took_kept, on_response
//! on_timeout  <-- next_timeout
//! after each of these: poll_completion until None, take_error, poll_local, poll_transmit again
//! ```
//!
//! The driver may retry a step later. If it cannot build a packet now, it does not call
//! `transmitted`, and polls again. If it cannot place the data of a response yet, it does not call
//! `placed`, and passes the same response in again before any other.

mod ack_request;
mod checkpoint;
mod early;
mod explicit;
mod gap;
mod local;
mod packet;
mod probe;
mod queue;
mod read;
mod response;
mod retry;
mod rtt;
mod slot;
mod snapshot;
mod transmit;
mod window;

pub use self::{
    checkpoint::Checkpoint,
    explicit::Placement,
    local::Local,
    packet::{
        RareHeader,
        Transmit, //
    },
    response::{
        Response,
        ResponseKind, //
    },
    retry::Expired,
    rtt::MIN_RTO_NS,
    slot::Slot,
    snapshot::{
        OldestRequest,
        SendSnapshot, //
    },
    transmit::Step, //
};

use core::{
    num::NonZero,
    ops::DerefMut, //
};

use self::{
    ack_request::AckRequests,
    explicit::Explicit,
    gap::Gap,
    probe::Probe,
    queue::Queue,
    retry::Retry,
    window::Window, //
};
use crate::{
    ids::Qpn,
    kept::Kept,
    opcode::Transport,
    psn::Psn,
    wire::MAX_MESSAGE_LEN,
    wr::{
        SendOp,
        SendWr,
        Status, //
    }, //
};

/// The most packets from one acknowledgment request to the next (RC).
pub const ACK_EVERY: u32 = 32;

/// The delay of the acknowledgment request for unsignalled requests, in ns.
pub const ACK_REQUEST_NS: u64 = 1_000_000;

/// The value of [`SendParams::rnr_retry`] for unlimited retries.
const RNR_RETRY_FOREVER: u8 = 7;

/// The queue pair attributes of the send half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendParams {
    /// The largest payload of a packet in bytes, a power of two: the path MTU, for UD the port MTU.
    /// Must be set before [`Requester::set_psn`].
    pub mtu: u32,
    /// The QPN of the peer (RC and UC only).
    pub dest_qpn: Qpn,
    /// The QPN of this queue pair, sent in the DETH (UD only).
    pub src_qpn: Qpn,
    /// The local ACK timeout, in ns; `None` if the retransmission timer never expires (RC only).
    pub ack_timeout: Option<NonZero<u64>>,
    /// The most retries without progress before the request fails, 0 to 7 (RC only).
    pub retry_cnt: u8,
    /// The most RNR retries without progress before the request fails, 0 to 7; 7 for no limit (RC
    /// only).
    pub rnr_retry: u8,
    /// The most outstanding requests with an explicit response (READs, atomics, ATOMIC WRITEs,
    /// FLUSHes); 0 forbids them (RC only).
    pub max_rd_atomic: u8,
    /// True if the requester reacts to marks of congestion and to CNPs (RC only).
    pub has_ecn: bool,
}

/// The state of the send half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// No PSN is set yet: nothing is sent.
    Stopped,
    /// Requests are sent and completed (RTS).
    Running,
    /// Started requests are finished, and no other is started (SQD).
    Draining,
    /// All started requests are finished and retired (SQD).
    Drained,
    /// A UC or UD request failed: all later requests are flushed (SQE).
    SendError,
    /// All requests are flushed (ERR).
    Error,
}

/// The reason for rejecting a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// Every slot is in use.
    Full,
    /// The service type does not support the operation, or it has an explicit response and
    /// [`SendParams::max_rd_atomic`] is 0.
    BadOpcode,
    /// The message is longer than 2^31 bytes.
    TooLong,
}

/// The completion of a send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// The slot of the request, which is free now.
    pub slot: u16,
    /// The consumer's ID of the request.
    pub wr_id: u64,
    /// The completion status.
    pub status: Status,
    /// The operation.
    pub op: SendOp,
    /// The length of the message in bytes.
    pub byte_len: u32,
    /// True if the consumer gets a completion: it asked for one, or the request failed.
    pub signalled: bool,
}

/// The send half of a queue pair.
///
/// It has no lock; the driver calls it with the lock of the send half held. `S` is the storage of
/// the slots: its length is the most outstanding work requests, up to 2^16.
pub struct Requester<S> {
    queue: Queue<S>,
    transport: Transport,
    state: SendState,
    params: SendParams,
    window: Window,
    acks: AckRequests,
    retry: Retry,
    gap: Gap,
    probe: Probe,
    explicit: Explicit,
    /// The responses that are kept until missing explicit responses before them arrive.
    kept: Kept,
    /// The PSN of the packet from which on nothing is sent, see [`Requester::hold`].
    held: Option<Psn>,
    /// True if [`Requester::take_error`] has an error to report.
    error_pending: bool,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Creates an idle send half in state [`SendState::Stopped`].
    pub fn new(transport: Transport, slots: S) -> Requester<S> {
        let params = SendParams::default();
        Requester {
            queue: Queue::new(slots),
            transport,
            state: SendState::Stopped,
            params,
            window: Window::new(Psn::default()),
            acks: AckRequests::new(Psn::default()),
            retry: Retry::new(&params),
            gap: Gap::default(),
            probe: Probe::default(),
            explicit: Explicit::default(),
            kept: Kept::default(),
            held: None,
            error_pending: false,
        }
    }

    /// Drops all work without completing it (RESET), and stops.
    ///
    /// The parameters are kept.
    pub fn reset(&mut self) {
        self.queue.clear();
        self.explicit = Explicit::default();
        self.error_pending = false;
        self.state = SendState::Stopped;
        self.restart_psn(Psn::default());
    }

    /// Returns the QPN of the peer (RC, UC).
    #[inline]
    pub fn dest_qpn(&self) -> Qpn {
        self.params.dest_qpn
    }

    /// Changes the attributes of the send half.
    ///
    /// The MTU may change only while no work is outstanding.
    pub fn set_params(&mut self, params: &SendParams) {
        self.params = *params;
        self.retry.reset_counts(params);
    }

    /// Changes the MTU, in bytes.
    ///
    /// For UD, the driver sets the current port MTU before each datagram.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.params.mtu = mtu;
    }

    /// Sets the PSN of the first packet (SQ_PSN of the move to RTS), and starts sending if stopped.
    ///
    /// Must not be called while work is outstanding.
    pub fn set_psn(&mut self, psn: Psn) {
        self.restart_psn(psn);
        if self.state == SendState::Stopped {
            self.state = SendState::Running;
        }
    }

    /// Returns the PSN of the next new packet.
    #[inline]
    pub fn next_psn(&self) -> Psn {
        self.window.max()
    }

    /// Returns the PSN of the next packet. After a rewind, it is sent again.
    pub fn send_psn(&self) -> Psn {
        self.window.next()
    }

    /// Returns the oldest unacknowledged PSN, or that of the next packet if there is none.
    pub fn oldest_psn(&self) -> Psn {
        self.window.una()
    }

    /// Returns the state of the send half.
    #[inline]
    pub fn state(&self) -> SendState {
        match self.state {
            SendState::Draining if self.queue.begun() == 0 => SendState::Drained,
            state => state,
        }
    }

    /// Returns the slot of the next work request, or `None` if every slot is in use.
    ///
    /// The driver can fill in its own data for the slot before it posts the request.
    #[inline]
    pub fn next_slot(&self) -> Option<u16> {
        self.queue.next_number()
    }

    /// Queues a work request and returns its slot, which identifies it until it completes.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline]
    pub fn post(&mut self, wr: SendWr) -> Result<u16, PostError> {
        let has_resources = !wr.op.has_explicit_response() || self.params.max_rd_atomic > 0;
        if !wr.op.is_on(self.transport) || !has_resources {
            return Err(PostError::BadOpcode);
        }
        if wr.length > MAX_MESSAGE_LEN {
            return Err(PostError::TooLong);
        }
        let slot = Slot {
            wr,
            ..Slot::default()
        };
        self.queue.push(slot).ok_or(PostError::Full)
    }

    /// Retires the oldest work request if it has finished.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        let number = self.queue.number(0)?;
        let slot = self.queue.get(0)?;
        let status = if self.queue.done() > 0 {
            slot.status
        } else if matches!(self.state, SendState::Error | SendState::SendError) {
            Status::WrFlush
        } else {
            return None;
        };
        let completion = SendCompletion {
            slot: number,
            wr_id: slot.wr.wr_id,
            status,
            op: slot.wr.op,
            byte_len: slot.wr.length,
            signalled: slot.wr.signalled || status != Status::Success,
        };
        self.queue.retire();
        Some(completion)
    }

    /// Fails a work request, for instance because its local data cannot be read.
    ///
    /// The request completes with `status` after all earlier requests have completed. Later
    /// requests are not sent any more, and are flushed.
    pub fn local_error(&mut self, slot: u16, status: Status) {
        match self.queue.find(slot) {
            Some(index) if index >= self.queue.done() && self.is_active() => {
                self.fail_slot(index, status)
            }
            _ => {}
        }
    }

    /// Flushes all unfinished requests (the queue pair moved to ERR). Idempotent.
    pub fn flush(&mut self) {
        self.enter(SendState::Error);
    }

    /// Stops starting work requests (the queue pair moved to SQD).
    pub fn drain(&mut self) {
        if self.state == SendState::Running {
            self.state = SendState::Draining;
        }
    }

    /// Resumes sending (the queue pair moved from SQD or SQE to RTS).
    ///
    /// After an error, all requests must have been retired.
    pub fn resume(&mut self) {
        if !matches!(self.state, SendState::Draining | SendState::SendError) {
            return;
        }
        self.state = SendState::Running;
        if self.params.max_rd_atomic == 0 {
            // Requests posted before `max_rd_atomic` became 0 can never be sent.
            let impossible = |index: &usize| {
                self.queue
                    .get(*index)
                    .is_some_and(Slot::has_explicit_response)
            };
            let queued = self.queue.begun()..self.queue.len();
            if let Some(index) = { queued }.find(impossible) {
                self.fail_slot(index, Status::LocQpOp);
            }
        }
        self.fail_if_due();
    }

    /// Returns whether all started requests are finished and retired, after [`Requester::drain`].
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.state() == SendState::Drained
    }

    /// Returns true once after an error that moves the queue pair to ERR (RC) or to SQE (UC, UD).
    #[inline]
    pub fn take_error(&mut self) -> bool {
        core::mem::take(&mut self.error_pending)
    }

    /// Returns whether requests may be sent and responses handled.
    #[inline]
    fn is_active(&self) -> bool {
        matches!(self.state, SendState::Running | SendState::Draining)
    }

    /// Restarts at `psn`, with nothing in flight.
    fn restart_psn(&mut self, psn: Psn) {
        self.window = Window::new(psn);
        self.acks = AckRequests::new(psn);
        self.retry = Retry::new(&self.params);
        self.gap = Gap::default();
        self.probe = Probe::default();
        self.kept = Kept::default();
        self.held = None;
    }

    /// Fails the unfinished slot at `index` once all slots before it have finished.
    #[cold]
    fn fail_slot(&mut self, index: usize, status: Status) {
        if index == self.queue.done() && !self.waits(index) {
            self.fail(status);
        } else if let Some(first_psn) = self.queue.fail_later(index, status) {
            // Now the packet before `first_psn` is the last one. It is sent again as a probe if it
            // was sent without an acknowledgment request.
            self.window.rewind_to(first_psn);
            self.acks.rewind_to(first_psn);
        }
    }

    /// Returns whether the slot at `index` cannot start before the end of SQD.
    #[inline]
    fn waits(&self, index: usize) -> bool {
        self.state == SendState::Draining && index >= self.queue.begun()
    }

    /// Fails the oldest unfinished slot, which flushes all later ones.
    #[cold]
    fn fail(&mut self, status: Status) {
        self.queue.finish(status);
        self.enter(match self.transport {
            Transport::Rc => SendState::Error,
            Transport::Uc | Transport::Ud => SendState::SendError,
        });
        self.error_pending = true;
    }

    /// Fails the oldest unfinished slot if it must fail.
    #[inline]
    fn fail_if_due(&mut self) {
        if let Some(status) = self.queue.due_failure() {
            if !self.waits(self.queue.done()) {
                self.fail(status);
            }
        }
    }

    /// Enters a state in which all unfinished requests are flushed.
    fn enter(&mut self, state: SendState) {
        self.state = state;
        self.queue.forget_failure();
        self.explicit = Explicit::default();
        self.acks.stop();
        self.retry.stop();
        self.probe.stop();
        self.kept = Kept::default();
        self.held = None;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req))]
mod tests {
    use super::*;
    use crate::testutil::*;

    const MISSING: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

    /// Leaves a request, a wait or a result behind in a half that has sent PSN 0.
    const USES: [fn(&mut Half); 5] = [
        |rc| {
            post(rc, &[wr(SendOp::Read, 2 * MTU)]);
            assert_eq!(send_all(rc), 1);
            let last = read_response(Opcode::RcReadResponseLast, 2, MTU);
            assert!(rc.on_response(NOW, &last.packet()).is_early);
            rc.kept(Psn::new(2));
        },
        |rc| {
            post(rc, &[wr(SendOp::Read, MTU)]);
            assert_eq!(send_all(rc), 1);
            let only = read_response(Opcode::RcReadResponseOnly, 1, MTU);
            assert!(respond(rc, &only).place.is_some());
        },
        // The peer drops early packets.
        |rc| {
            post(rc, &[wr(SendOp::Write, 4 * MTU)]);
            assert_eq!(send_all(rc), 4);
            acknowledge(rc, 2, MISSING);
            assert_eq!(send_all(rc), 1);
            acknowledge(rc, 2, Syndrome::ACK);
        },
        |rc| {
            assert!(rc.poll_completion().is_some());
            post(rc, &[wr(SendOp::Send, 0); 2]);
            rc.local_error(2, Status::LocProt);
            assert_eq!(send_all(rc), 1);
            acknowledge(rc, 1, Syndrome::Rnr { timer: 1 });
        },
        |rc| {
            post(rc, &[wr(SendOp::Send, 0); 2]);
            assert_eq!(send_all(rc), 2);
            acknowledge(rc, 1, Syndrome::Nak(NakCode::RemoteAccess));
        },
    ];

    #[test]
    fn reset_half_is_like_a_new_one() {
        for leave_traces in USES {
            let mut rc = measured(4);
            leave_traces(&mut rc);
            rc.reset();
            let mut new = Half::new(Transport::Rc, Slots::new(4));
            new.set_params(&rc.params);
            assert_eq!(rc.snapshot(), new.snapshot());
            assert_eq!((rc.next_slot(), rc.next_timeout()), (Some(0), None));
            assert!(!rc.take_error() && !rc.take_loss() && rc.may_keep(Psn::new(2)));
            rc.placed(NOW, Ok(()));
            assert_eq!(rc.next_psn(), Psn::default());

            rc.set_psn(Psn::new(100));
            post(&mut rc, &[wr(SendOp::Write, 4 * MTU), wr(SendOp::Send, 0)]);
            assert_eq!((rc.snapshot().taken, rc.snapshot().waiting), (2, 2));
            let packets = [100, 101, 102, 103].map(|psn| Some((psn, false)));
            assert_eq!(sent(&mut rc), packets);
            assert_eq!(sent(&mut rc), [Some((104, true)), None, None, None]);
            assert_eq!(rc.next_timeout(), Some(NOW.after(LONG_TIMEOUT_NS)));
            acknowledge(&mut rc, 101, MISSING);
            assert_eq!(sent(&mut rc), [Some((101, true)), None, None, None]);
            assert_eq!(rc.oldest_psn(), Psn::new(101));
            acknowledge(&mut rc, 104, Syndrome::ACK);
            for expected in [Some(Status::Success), Some(Status::Success), None] {
                assert_eq!(status(&mut rc), expected);
            }
        }
    }
}
