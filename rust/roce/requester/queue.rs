// SPDX-License-Identifier: GPL-2.0

//! The posted work requests in order, and the progress of each.
//!
//! Three indices divide the ring of slots, oldest first. Slots before `done` are finished and wait
//! to be retired. Slots before `begun` have PSNs. `send` is the slot of the next packet: it is
//! before `begun` while a started message has packets left to send, or while packets are
//! retransmitted.
//!
//! ```text
//!            done            send             begun         len
//!  finished  │  sent, not acknowledged │ to resend │  queued  │
//!            una                       next        max
//! ```
//!
//! A local operation has no PSN. It is executed when `send` reaches it, and `begun` then moves past
//! it. Neither `done` nor `send` stays at an executed operation, so it is never executed twice.

use core::ops::{
    Deref,
    DerefMut, //
};

use super::slot::{
    Ring,
    Slot, //
};
use crate::{
    psn::Psn,
    wr::Status, //
};

/// The posted work requests of a send half.
pub(super) struct Queue<S> {
    ring: Ring<S>,
    /// The index after the finished slots.
    done: usize,
    /// The index after the slots that have PSNs or are executed local operations.
    begun: usize,
    /// The index of the slot of the next packet.
    send: usize,
    /// The index of the slot that must fail; see [`Queue::fail_later`].
    fail_at: Option<usize>,
}

impl<S> Deref for Queue<S> {
    type Target = Ring<S>;

    #[inline]
    fn deref(&self) -> &Ring<S> {
        &self.ring
    }
}

impl<S: DerefMut<Target = [Slot]>> Queue<S> {
    pub(super) fn new(slots: S) -> Queue<S> {
        Queue {
            ring: Ring::new(slots),
            done: 0,
            begun: 0,
            send: 0,
            fail_at: None,
        }
    }

    /// Removes all slots.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.done = 0;
        self.begun = 0;
        self.send = 0;
        self.fail_at = None;
    }

    /// Appends a slot and returns its number, or `None` if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, slot: Slot) -> Option<u16> {
        self.ring.push(slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.ring.get_mut(index)
    }

    /// Returns the index of the oldest unfinished slot.
    #[inline]
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Returns the index of the oldest slot that has no PSNs and is no executed local operation.
    #[inline]
    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    /// Returns the index of the slot of the next packet.
    #[inline]
    pub(super) fn next(&self) -> usize {
        self.send
    }

    /// Starts the slot at `index`, the oldest that has no PSNs: it has them now, or is a local
    /// operation that was executed.
    #[inline]
    pub(super) fn begin(&mut self, index: usize) {
        self.begun = index.wrapping_add(1);
    }

    /// Moves on to the packets of the slot at `index`, or of the first one behind it that is no
    /// executed local operation.
    #[inline]
    pub(super) fn advance(&mut self, index: usize) {
        self.send = self.behind_executed(index);
    }

    /// Records that the local operation in the next slot was executed.
    pub(super) fn execute(&mut self) {
        self.begin(self.send);
        self.advance(self.send);
        self.done = self.behind_executed(self.done);
    }

    /// Restores `begun` and `send`, because packets that were reported as sent are not. No local
    /// operation was executed since.
    pub(super) fn restore(&mut self, begun: usize, send: usize) {
        self.begun = begun;
        self.send = send;
    }

    /// Moves back to the oldest unfinished slot.
    pub(super) fn rewind(&mut self) {
        self.advance(self.done);
    }

    /// Finishes the oldest unfinished slot.
    ///
    /// After an error, `done` does not move past later local operations; see [`Queue::succeed`].
    #[inline]
    pub(super) fn finish(&mut self, status: Status) {
        if let Some(slot) = self.ring.get_mut(self.done) {
            slot.status = status;
            self.done = self.done.wrapping_add(1);
            self.begun = self.begun.max(self.done);
            self.send = self.send.max(self.done);
        }
    }

    /// Finishes the oldest unfinished slot with success.
    #[inline]
    pub(super) fn succeed(&mut self) {
        self.finish(Status::Success);
        self.done = self.behind_executed(self.done);
        self.send = self.send.max(self.done);
    }

    /// Removes the oldest slot.
    #[inline]
    pub(super) fn retire(&mut self) {
        self.ring.pop();
        self.done = self.done.saturating_sub(1);
        self.begun = self.begun.saturating_sub(1);
        self.send = self.send.saturating_sub(1);
        self.fail_at = self.fail_at.and_then(|at| at.checked_sub(1));
    }

    /// Makes the slot at `index` fail once all slots before it have finished.
    ///
    /// If packets of this slot or of later ones were sent, goes back to the first packet of this
    /// slot and returns its PSN.
    #[cold]
    pub(super) fn fail_later(&mut self, index: usize, status: Status) -> Option<Psn> {
        if self.fails(index) {
            return None;
        }
        self.fail_at = Some(index);
        let slot = self.ring.get_mut(index)?;
        slot.status = status;
        if index >= self.begun || self.send < index {
            return None;
        }
        self.send = index;
        Some(slot.first_psn)
    }

    /// Returns whether the slot at `index`, or one before it, must fail.
    #[inline]
    pub(super) fn fails(&self, index: usize) -> bool {
        self.fail_at.is_some_and(|at| at <= index)
    }

    /// Returns the status of the oldest unfinished slot if that must fail.
    #[inline]
    pub(super) fn due_failure(&self) -> Option<Status> {
        if self.fail_at != Some(self.done) {
            return None;
        }
        self.ring.get(self.done).map(|slot| slot.status)
    }

    /// Undoes [`Queue::fail_later`].
    pub(super) fn forget_failure(&mut self) {
        self.fail_at = None;
    }

    /// Returns the index of the first slot from `index` on that is no executed local operation:
    /// those have no packets to send.
    #[inline]
    fn behind_executed(&self, mut index: usize) -> usize {
        let is_local = |slot: &Slot| slot.wr.op.is_local();
        while index < self.begun && self.ring.get(index).is_some_and(is_local) {
            index = index.wrapping_add(1);
        }
        index
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_queue))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn read_needs_max_rd_atomic() {
        let mut rc = requester(Transport::Rc, 2);
        for (max_rd_atomic, result) in [(0, Err(PostError::BadOpcode)), (1, Ok(0))] {
            adjust(&mut rc, |params| params.max_rd_atomic = max_rd_atomic);
            assert_eq!(rc.post(wr(SendOp::Read, 1)), result);
        }
    }

    #[test]
    fn unsignalled_requests_complete_only_if_they_fail() {
        for transport in [Transport::Uc, Transport::Ud] {
            let mut requester = requester(transport, 4);
            let quiet = unsignalled();
            post(&mut requester, &[quiet, wr(SendOp::Send, 0), quiet, quiet]);
            requester.local_error(2, Status::LocProt);
            assert!(send(&mut requester).is_some() && send(&mut requester).is_some());
            assert!(send(&mut requester).is_none());
            for (status, signalled) in [
                (Status::Success, false),
                (Status::Success, true),
                (Status::LocProt, true),
                (Status::WrFlush, true),
            ] {
                let end = requester.poll_completion();
                let end = end.map(|end| (end.status, end.signalled));
                assert_eq!(end, Some((status, signalled)));
            }
            assert!(requester.take_error());
        }
    }
}
