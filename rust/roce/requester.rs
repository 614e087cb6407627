// SPDX-License-Identifier: GPL-2.0

//! The send half of a queue pair: work requests in, request packets out, responses in, completions
//! out.
//!
//! # How the shell drives it
//!
//! ```text
//! post ---------> slots --> poll_transmit --> (build and send a packet) --> transmitted
//!                       --> poll_local -----> (do it) --------------------> local_done
//! on_response --> (place what the peer returns) --> placed
//! on_timeout  <-- next_timeout
//! after each of these: poll_completion until None, take_error, poll_local, poll_transmit again
//! ```
//!
//! The shell may retry a step later. If it cannot build a packet now, it does not call
//! `transmitted`, and polls again. If it cannot place the data of a response yet, it does not call
//! `placed`, and passes the same response in again before any other.
//!
//! # Progress
//!
//! Three places divide the ring of slots, oldest first. Slots before `done` are finished and wait
//! to be retired by [`Requester::poll_completion`]; slots before `begun` have PSNs; `send` is the
//! slot of the next packet, which is before `begun` while a started message has packets left to
//! send, or while packets are retransmitted.
//!
//! ```text
//!        done            send             begun         len
//!  over  │  sent, not acknowledged │ to resend │  queued  │
//!        una                       send_psn    max_psn
//! ```
//!
//! A local operation has no PSN. It is executed when `send` reaches it, and `begun` then moves past
//! it. Neither `done` nor `send` stays at an executed operation, so it is never executed twice.

mod ack_request;
mod explicit;
mod local;
mod packet;
mod response;
mod retry;
mod slot;
mod snapshot;
mod transmit;

pub use self::{
    explicit::Placement,
    local::Local,
    packet::Transmit,
    response::{
        Response,
        ResponseKind, //
    },
    slot::Slot,
    snapshot::{
        OldestRequest,
        SendSnapshot, //
    }, //
};

use core::ops::DerefMut;

use self::{
    explicit::Accept,
    slot::Ring, //
};
use crate::{
    ids::Qpn,
    opcode::Transport,
    psn::Psn,
    time::Instant,
    wire::MAX_MESSAGE_LEN,
    wr::{
        SendOp,
        SendWr,
        Status, //
    }, //
};

/// The most unacknowledged PSNs of SENDs and WRITEs (RC); READ responses do not count.
///
/// Each loss halves the window, down to 16, and each acknowledged PSN widens it by one again:
/// packets sent after a lost one are wasted.
pub const PSN_WINDOW: u32 = 256;

/// The smallest window after losses; it starts at [`PSN_WINDOW`].
const MIN_WINDOW: u32 = 16;

/// The most packets from one acknowledgment request to the next (RC).
pub const ACK_EVERY: u32 = 16;

/// The delay of the acknowledgment request for unsignalled requests, in ns.
pub const ACK_REQUEST_NS: u64 = 1_000_000;

/// The most PSNs that one READ request packet asks for.
///
/// A longer READ is split into several request packets, sent one after the other. This bounds the
/// waste after a loss, and keeps the outstanding PSNs far below half of the PSN space. While the
/// window is below [`PSN_WINDOW`], the parts are smaller.
pub const READ_WINDOW: u32 = 1024;

/// The most PSNs between the oldest unacknowledged one and the next.
///
/// A READ waits until its responses fit.
const MAX_OUTSTANDING: u32 = 1 << 22;

/// The value of [`SendParams::rnr_retry`] for unlimited retries.
const RNR_RETRY_FOREVER: u8 = 7;

/// The queue pair attributes of the send half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendParams {
    /// The largest payload of a packet in bytes, a power of two: the path MTU, for UD the port MTU.
    pub mtu: u32,
    /// The QPN of the peer (RC and UC only).
    pub dest_qpn: Qpn,
    /// The QPN of this queue pair, sent in the DETH (UD only).
    pub src_qpn: Qpn,
    /// The time until an acknowledgment is overdue, in ns; `None` for no limit (RC only).
    pub ack_timeout: Option<u64>,
    /// The most retransmissions of the same packet before the request fails, 0 to 7 (RC only).
    pub retry_cnt: u8,
    /// The most retransmissions of the same packet after RNR NAKs, 0 to 7; 7 for no limit (RC
    /// only).
    pub rnr_retry: u8,
    /// The most outstanding requests with an explicit response (READs, atomics, ATOMIC WRITEs,
    /// FLUSHes); 0 forbids them (RC only).
    pub max_rd_atomic: u8,
}

impl Default for SendParams {
    fn default() -> SendParams {
        SendParams {
            mtu: 1024,
            dest_qpn: Qpn::default(),
            src_qpn: Qpn::default(),
            ack_timeout: None,
            retry_cnt: 0,
            rnr_retry: 0,
            max_rd_atomic: 0,
        }
    }
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
/// It has no lock; the shell calls it with the lock of the send half held. `S` is the storage of
/// the slots: its length is the most outstanding work requests, up to 2^16.
pub struct Requester<S> {
    ring: Ring<S>,
    transport: Transport,
    state: SendState,
    params: SendParams,
    /// The binary logarithm of the MTU.
    mtu_shift: u32,

    /// The place after the finished slots.
    done: usize,
    /// The place after the slots that have PSNs.
    begun: usize,
    /// The place of the slot of the next packet.
    send: usize,
    /// The place of the slot that fails once all slots before it have finished.
    fail_at: Option<usize>,

    /// The oldest unacknowledged PSN; inside a READ, the PSN of the next expected response.
    una: Psn,
    /// The PSN of the next packet.
    send_psn: Psn,
    /// The PSN after the last one ever sent.
    max_psn: Psn,
    /// The PSN after the last packet that asked for a response.
    ack_base: Psn,
    /// The most unacknowledged PSNs, from [`MIN_WINDOW`] to [`PSN_WINDOW`].
    window: u32,
    /// The start of the window: `una`, or the PSN after the last request with an explicit response
    /// if that is later.
    window_base: Psn,

    /// The number of requests with an explicit response in flight.
    reads: u8,
    /// The number of local operations that were executed and are not retired yet.
    executed: usize,
    retries_left: u8,
    rnr_left: u8,
    /// The value of `max_psn` at the last rewind because of a NAK or a gap.
    ///
    /// Only a response to a packet first sent after that indicates another loss.
    gone_back: Option<Psn>,
    /// The expiry of the retransmission timer.
    deadline: Option<Instant>,
    /// The start of the wait for the response.
    awaited: Instant,
    /// The longest recent time from one response of the peer to the next, in ns.
    slowest: u64,
    /// The time of the deferred acknowledgment request, unless a packet asks for one before.
    ack_request_at: Option<Instant>,
    /// The end of the RNR wait.
    rnr_until: Option<Instant>,
    /// The response whose data the shell is placing.
    accept: Option<Accept>,
    /// True if [`Requester::take_error`] has an error to report.
    error_pending: bool,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Creates an idle send half in state [`SendState::Stopped`].
    pub fn new(transport: Transport, slots: S) -> Requester<S> {
        let params = SendParams::default();
        Requester {
            ring: Ring::new(slots),
            transport,
            state: SendState::Stopped,
            mtu_shift: params.mtu.checked_ilog2().unwrap_or(0),
            params,
            done: 0,
            begun: 0,
            send: 0,
            fail_at: None,
            una: Psn::default(),
            send_psn: Psn::default(),
            max_psn: Psn::default(),
            ack_base: Psn::default(),
            window: PSN_WINDOW,
            window_base: Psn::default(),
            reads: 0,
            executed: 0,
            retries_left: 0,
            rnr_left: 0,
            gone_back: None,
            deadline: None,
            awaited: Instant::default(),
            slowest: 0,
            ack_request_at: None,
            rnr_until: None,
            accept: None,
            error_pending: false,
        }
    }

    /// Drops all work without completing it (RESET), and stops.
    ///
    /// The parameters are kept.
    pub fn reset(&mut self) {
        self.ring.clear();
        self.done = 0;
        self.begun = 0;
        self.send = 0;
        self.fail_at = None;
        self.reads = 0;
        self.executed = 0;
        self.gone_back = None;
        self.accept = None;
        self.stop_timers();
        self.error_pending = false;
        self.state = SendState::Stopped;
        self.restart_psn(Psn::default());
    }

    /// Changes the attributes of the send half.
    ///
    /// The MTU may change only while no work is outstanding.
    pub fn set_params(&mut self, params: &SendParams) {
        self.params = *params;
        self.set_mtu(params.mtu);
        self.reset_retries();
    }

    /// Changes the MTU, in bytes.
    ///
    /// For UD, the shell sets the current port MTU before each datagram.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.params.mtu = mtu;
        self.mtu_shift = mtu.checked_ilog2().unwrap_or(0);
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
        self.max_psn
    }

    /// Returns the state of the send half.
    #[inline]
    pub fn state(&self) -> SendState {
        match self.state {
            SendState::Draining if self.begun == 0 => SendState::Drained,
            state => state,
        }
    }

    /// Returns whether every slot is in use.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ring.len() >= self.ring.capacity()
    }

    /// Returns the number of work requests that were posted and not yet retired.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.ring.len()
    }

    /// Returns the number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Returns the slot of the next work request, or `None` if every slot is in use.
    ///
    /// The shell can fill in its own data for the slot before it posts the request.
    #[inline]
    pub fn next_slot(&self) -> Option<u16> {
        self.ring.next_number()
    }

    /// Queues a work request and returns its slot, which identifies it until it completes.
    ///
    /// # Errors
    ///
    /// See [`PostError`].
    #[inline]
    pub fn post(&mut self, wr: SendWr) -> Result<u16, PostError> {
        let allowed = match self.transport {
            Transport::Rc => !wr.op.has_explicit_response() || self.params.max_rd_atomic > 0,
            Transport::Uc => !wr.op.has_explicit_response() && wr.op != SendOp::SendInv,
            Transport::Ud => matches!(wr.op, SendOp::Send | SendOp::SendImm),
        };
        if !allowed {
            return Err(PostError::BadOpcode);
        }
        if wr.length > MAX_MESSAGE_LEN {
            return Err(PostError::TooLong);
        }
        let slot = Slot {
            wr,
            ..Slot::default()
        };
        self.ring.push(slot).ok_or(PostError::Full)
    }

    /// Retires the oldest work request if it has finished.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<SendCompletion> {
        let number = self.ring.number(0)?;
        let slot = self.ring.get(0)?;
        let status = if self.done > 0 {
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
        self.executed = self.executed.saturating_sub(usize::from(slot.executed));
        self.ring.pop();
        self.done = self.done.saturating_sub(1);
        self.begun = self.begun.saturating_sub(1);
        self.send = self.send.saturating_sub(1);
        self.fail_at = self.fail_at.map(|place| place.saturating_sub(1));
        Some(completion)
    }

    /// Fails a work request, for instance because its local data cannot be read.
    ///
    /// The request completes with `status` once everything before it has completed; nothing after
    /// it is sent, and all later requests are flushed.
    pub fn local_error(&mut self, slot: u16, status: Status) {
        match self.ring.place(slot) {
            Some(place) if place >= self.done && self.is_active() => self.fail_slot(place, status),
            _ => {}
        }
    }

    /// Flushes all unfinished requests (the queue pair moved to ERR).
    ///
    /// Idempotent.
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
            let asks = |place: &usize| {
                self.ring
                    .get(*place)
                    .is_some_and(Slot::has_explicit_response)
            };
            if let Some(place) = (self.begun..self.ring.len()).find(asks) {
                self.fail_slot(place, Status::LocQpOp);
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

    /// Returns whether packets may be sent and received.
    #[inline]
    fn is_active(&self) -> bool {
        matches!(self.state, SendState::Running | SendState::Draining)
    }

    /// Resets all sequence numbers to `psn`.
    fn restart_psn(&mut self, psn: Psn) {
        self.una = psn;
        self.send_psn = psn;
        self.max_psn = psn;
        self.ack_base = psn;
        self.window = PSN_WINDOW;
        self.window_base = psn;
        self.slowest = 0;
        self.reset_retries();
    }

    /// Finishes the oldest unfinished slot with success; for errors, see [`Requester::fail`].
    #[inline]
    fn succeed(&mut self) {
        if let Some(slot) = self.ring.get_mut(self.done) {
            slot.status = Status::Success;
            self.done = self.done.wrapping_add(1);
            self.begun = self.begun.max(self.done);
            self.send = self.send.max(self.done);
        }
        self.pass_local();
    }

    /// Fails the unfinished slot at `place` once all slots before it have finished.
    #[cold]
    fn fail_slot(&mut self, place: usize, status: Status) {
        if place == self.done && !self.waits(place) {
            self.fail(status);
        } else {
            self.fail_later(place, status);
        }
    }

    /// Returns whether the slot at `place` cannot start before the end of SQD.
    #[inline]
    fn waits(&self, place: usize) -> bool {
        self.state == SendState::Draining && place >= self.begun
    }

    /// Fails the oldest unfinished slot, which flushes all later ones.
    #[cold]
    fn fail(&mut self, status: Status) {
        if let Some(slot) = self.ring.get_mut(self.done) {
            slot.status = status;
            self.done = self.done.wrapping_add(1);
            self.begun = self.begun.max(self.done);
            self.send = self.send.max(self.done);
        }
        self.enter(match self.transport {
            Transport::Rc => SendState::Error,
            Transport::Uc | Transport::Ud => SendState::SendError,
        });
        self.error_pending = true;
    }

    /// Marks the slot at `place` to fail once all slots before it have finished.
    #[cold]
    fn fail_later(&mut self, place: usize, status: Status) {
        if self.fail_at.is_some_and(|earlier| earlier <= place) {
            return;
        }
        self.fail_at = Some(place);
        let begun = place < self.begun;
        let Some(slot) = self.ring.get_mut(place) else {
            return;
        };
        slot.status = status;
        if begun && self.send >= place {
            // Rewind to the start of the slot, so that the packet before it counts as the last one
            // and is probed if it did not ask for an acknowledgment.
            let first_psn = slot.first_psn;
            self.send = place;
            self.send_psn = first_psn;
            if self.ack_base.is_after(first_psn) {
                self.ack_base = first_psn;
            }
        }
    }

    /// Fails the slot marked by [`Requester::fail_later`] if it is due.
    #[inline]
    fn fail_if_due(&mut self) {
        if self.fail_at == Some(self.done) && !self.waits(self.done) {
            let status = self.ring.get(self.done).map(|slot| slot.status);
            self.fail(status.unwrap_or(Status::General));
        }
    }

    /// Enters a state in which all unfinished requests are flushed.
    fn enter(&mut self, state: SendState) {
        self.state = state;
        self.fail_at = None;
        self.reads = 0;
        self.accept = None;
        self.stop_timers();
    }
}
