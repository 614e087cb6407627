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
//! What the shell cannot do now it may try again later. A packet that it was to build: it does not
//! call `transmitted` and asks again. A response whose data has no place yet: it does not call
//! `placed` and hands the response in again, before any other.
//!
//! # Progress
//!
//! Three places cut the ring of slots, oldest first: everything before `done` is over and waits to
//! be retired by [`Requester::poll_completion`]; everything before `begun` has PSNs; `send` is the
//! slot of the next packet, which is behind `begun` only while packets are sent again.
//!
//! ```text
//!        done            send             begun         len
//!  over  │  sent, not acknowledged │ to resend │  queued  │
//!        una                       send_psn    max_psn
//! ```
//!
//! A local operation has no PSN. It waits until `send` gets to it, is executed, and is `begun`
//! then; neither `done` nor `send` stay at it once it is executed, so that it is never executed
//! twice.

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

/// How many PSNs of SENDs and WRITEs may be unacknowledged (RC). Responses to READs do not count.
///
/// Each loss halves what is allowed, down to 16, and each acknowledged PSN allows one more again:
/// what is sent behind a lost packet is sent in vain.
pub const PSN_WINDOW: u32 = 256;

/// What [`PSN_WINDOW`] shrinks to.
const MIN_WINDOW: u32 = 16;

/// After how many packets without an acknowledgment request one is made (RC).
pub const ACK_EVERY: u32 = 16;

/// How long packets that nobody waits for go without asking, in ns.
pub const ACK_REQUEST_NS: u64 = 1_000_000;

/// The most PSNs that one READ request asks for. A longer READ is asked for in several parts, one
/// after the other: this bounds what is sent in vain after a loss, and keeps the outstanding PSNs
/// far below half of the number space. While the window is not open, parts are smaller.
pub const READ_WINDOW: u32 = 1024;

/// The most PSNs between the oldest unacknowledged one and the next. A READ waits until its
/// responses fit.
const MAX_OUTSTANDING: u32 = 1 << 22;

/// The value of [`SendParams::rnr_retry`] that means without end.
const RNR_RETRY_FOREVER: u8 = 7;

/// Attributes of the queue pair that the send half obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendParams {
    /// The largest payload of a packet in bytes: path MTU, for UD the MTU of the port. A power of
    /// two.
    pub mtu: u32,
    /// The queue pair of the peer. RC and UC only.
    pub dest_qpn: Qpn,
    /// The queue pair itself, as datagrams name it. UD only.
    pub src_qpn: Qpn,
    /// Nanoseconds until an acknowledgment is overdue, `None` for never. RC only.
    pub ack_timeout: Option<u64>,
    /// How often the same packet is sent again before the peer is given up, 0 to 7. RC only.
    pub retry_cnt: u8,
    /// How often the same packet is sent again to a receiver that is not ready, 0 to 7, 7 for ever.
    /// RC only.
    pub rnr_retry: u8,
    /// How many READs, atomics and their like may be outstanding, 0 for none at all. RC only.
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

/// What the send half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// No PSN was set yet: nothing is sent.
    Stopped,
    /// Sends and completes (RTS).
    Running,
    /// Finishes what was begun and begins nothing (SQD).
    Draining,
    /// Has finished what was begun (SQD).
    Drained,
    /// A UC or UD request failed: everything behind it is flushed (SQE).
    SendError,
    /// Every request is flushed (ERR).
    Error,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// Every slot is in use.
    Full,
    /// The service type has no such operation, or the queue pair allows no READ and no atomic.
    BadOpcode,
    /// The message is longer than 2^31 bytes.
    TooLong,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// The slot, free from now on.
    pub slot: u16,
    /// The consumer's name for the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub op: SendOp,
    /// Bytes of the message.
    pub byte_len: u32,
    /// Whether the consumer is told: asked for, or not successful.
    pub signalled: bool,
}

/// The send half of a queue pair.
///
/// Needs no lock of its own; the shell calls it under the lock of the send half. `S` is the storage
/// of the slots: its length is the number of work requests that may be outstanding, up to 2^16.
pub struct Requester<S> {
    ring: Ring<S>,
    transport: Transport,
    state: SendState,
    params: SendParams,
    /// Logarithm of the MTU.
    mtu_shift: u32,

    /// Place behind the slots that are over.
    done: usize,
    /// Place behind the slots that have PSNs.
    begun: usize,
    /// Place of the slot that the next packet is of.
    send: usize,
    /// Place of the slot that fails as soon as everything before it is over.
    fail_at: Option<usize>,

    /// The oldest unacknowledged PSN. Inside a READ: the next expected response.
    una: Psn,
    /// PSN of the next packet.
    send_psn: Psn,
    /// PSN behind everything that was ever sent.
    max_psn: Psn,
    /// PSN behind the last packet that asked for a response.
    ack_base: Psn,
    /// How many PSNs may be unacknowledged, from [`MIN_WINDOW`] to [`PSN_WINDOW`].
    window: u32,
    /// Where the window starts, if not at `una`: behind the last READ.
    window_base: Psn,

    /// READs, atomics and their like whose responses are under way.
    reads: u8,
    /// Local operations that were executed and not retired yet.
    executed: usize,
    retries_left: u8,
    rnr_left: u8,
    /// PSN behind everything that had been sent when a NAK or a gap made us go back. Only an answer
    /// to what was sent for the first time since then speaks of another loss.
    gone_back: Option<Psn>,
    /// When the response is overdue.
    deadline: Option<Instant>,
    /// Since when it is awaited.
    awaited: Instant,
    /// How long the peer takes at most from one response to the next, as of late, in nanoseconds.
    slowest: u64,
    /// When the peer is asked about packets that nobody waits for, if nothing asks before.
    ack_request_at: Option<Instant>,
    /// When a receiver that was not ready may be asked again.
    rnr_until: Option<Instant>,
    /// The response whose data the shell is placing.
    accept: Option<Accept>,
    /// Whether the queue pair must be told of an error.
    error_pending: bool,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Makes the send half of a queue pair without any work, in state [`SendState::Stopped`].
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

    /// Forgets all work without completing it (RESET), and stops. The parameters stay.
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

    /// Changes the attributes that the send half obeys. The MTU may change only while no work is
    /// outstanding.
    pub fn set_params(&mut self, params: &SendParams) {
        self.params = *params;
        self.set_mtu(params.mtu);
        self.reset_retries();
    }

    /// Changes the MTU, in bytes: for datagrams that of the port counts, whenever one is sent.
    #[inline]
    pub fn set_mtu(&mut self, mtu: u32) {
        self.params.mtu = mtu;
        self.mtu_shift = mtu.checked_ilog2().unwrap_or(0);
    }

    /// Sets the PSN of the first packet (SQ_PSN of the move to RTS), and starts to send if stopped.
    /// Must not be called while work is outstanding.
    pub fn set_psn(&mut self, psn: Psn) {
        self.restart_psn(psn);
        if self.state == SendState::Stopped {
            self.state = SendState::Running;
        }
    }

    /// Returns the PSN of the next packet that was never sent before.
    #[inline]
    pub fn next_psn(&self) -> Psn {
        self.max_psn
    }

    /// Returns what the send half is doing.
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

    /// Returns the slot that the next work request gets, so that the shell can put what belongs to
    /// it in place before. `None` if every slot is in use.
    #[inline]
    pub fn next_slot(&self) -> Option<u16> {
        self.ring.next_number()
    }

    /// Takes a work request and returns its slot, which stays its name until it completes.
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

    /// Retires the oldest work request, if it is over.
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

    /// Says that a work request cannot be done, for instance because its local data cannot be read.
    ///
    /// RC and UC: the request completes with `status` once everything before it has completed;
    /// nothing behind it is sent, and all of that is flushed.
    pub fn local_error(&mut self, slot: u16, status: Status) {
        match self.ring.place(slot) {
            Some(place) if place >= self.done && self.is_active() => self.fail_slot(place, status),
            _ => {}
        }
    }

    /// Flushes everything that is not over (the queue pair moved to ERR). Idempotent.
    pub fn flush(&mut self) {
        self.enter(SendState::Error);
    }

    /// Begins no further work request (the queue pair moved to SQD).
    pub fn drain(&mut self) {
        if self.state == SendState::Running {
            self.state = SendState::Draining;
        }
    }

    /// Sends again (the queue pair moved from SQD or SQE to RTS). After an error, everything must
    /// have been retired.
    pub fn resume(&mut self) {
        if !matches!(self.state, SendState::Draining | SendState::SendError) {
            return;
        }
        self.state = SendState::Running;
        if self.params.max_rd_atomic == 0 {
            // What was posted before that was set can never be sent.
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

    /// Returns whether everything that was begun is over and retired, after [`Requester::drain`].
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.state() == SendState::Drained
    }

    /// Returns true once after an error that must move the queue pair: to ERR (RC), or to SQE (UC,
    /// UD).
    #[inline]
    pub fn take_error(&mut self) -> bool {
        core::mem::take(&mut self.error_pending)
    }

    /// Returns whether packets may go out and come in.
    #[inline]
    fn is_active(&self) -> bool {
        matches!(self.state, SendState::Running | SendState::Draining)
    }

    /// Puts every sequence number at `psn`.
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

    /// Ends the oldest slot that is not over. Success goes on; everything else is for
    /// [`Requester::fail`].
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

    /// Ends the slot at `place`, which is not over, with an error as soon as everything before it
    /// is over.
    #[cold]
    fn fail_slot(&mut self, place: usize, status: Status) {
        if place == self.done && !self.waits(place) {
            self.fail(status);
        } else {
            self.fail_later(place, status);
        }
    }

    /// Returns whether the slot at `place` has to wait for the end of SQD, where nothing begins.
    #[inline]
    fn waits(&self, place: usize) -> bool {
        self.state == SendState::Draining && place >= self.begun
    }

    /// Ends the oldest slot that is not over with an error, which ends everything behind it too.
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

    /// Ends the slot at `place` with an error as soon as everything before it is over.
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
            // Take back what was sent of the slot, so that the packet before it is seen to be the
            // last one and asks for an acknowledgment if it did not.
            let first_psn = slot.first_psn;
            self.send = place;
            self.send_psn = first_psn;
            if self.ack_base.is_after(first_psn) {
                self.ack_base = first_psn;
            }
        }
    }

    /// Fails the slot for which [`Requester::fail_later`] was called, if its time has come.
    #[inline]
    fn fail_if_due(&mut self) {
        if self.fail_at == Some(self.done) && !self.waits(self.done) {
            let status = self.ring.get(self.done).map(|slot| slot.status);
            self.fail(status.unwrap_or(Status::General));
        }
    }

    /// Enters a state in which everything that is not over gets flushed.
    fn enter(&mut self, state: SendState) {
        self.state = state;
        self.fail_at = None;
        self.reads = 0;
        self.accept = None;
        self.stop_timers();
    }
}
