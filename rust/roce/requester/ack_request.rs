// SPDX-License-Identifier: GPL-2.0

//! Placement of the AckReq bit (RC).

use core::ops::DerefMut;

use super::{
    transmit::{
        Step,
        StepKind, //
    },
    Requester,
    SendState,
    Slot,
    ACK_REQUEST_NS, //
};
use crate::{
    opcode::Transport,
    psn::Psn,
    time::Instant, //
};

/// The acknowledgment requests that were sent, and the one that is deferred.
#[derive(Clone, Copy)]
pub(super) struct AckRequests {
    /// The PSN after the last packet that requested a response.
    base: Psn,
    /// The time of the deferred acknowledgment request. A packet that requests one sooner replaces
    /// it.
    at: Option<Instant>,
    /// True if the next request must not be deferred: since `base`, a packet of a signalled request
    /// was sent, or a deferred request became due.
    is_urgent: bool,
}

impl AckRequests {
    /// Makes the state before the first packet, which has PSN `psn`.
    pub(super) fn new(psn: Psn) -> AckRequests {
        AckRequests {
            base: psn,
            at: None,
            is_urgent: false,
        }
    }

    /// Returns the time of the deferred acknowledgment request.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }

    /// Returns whether a response was requested for a packet from `una` on.
    #[inline]
    pub(super) fn is_owed(&self, una: Psn) -> bool {
        una.is_before(self.base)
    }

    /// Accounts for a packet that was sent. `end` is the PSN after it.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, end: Psn, requested: bool, signalled: bool) {
        if requested {
            self.requested(end);
            return;
        }
        self.is_urgent |= signalled;
        if self.at.is_none() {
            self.at = Some(now.after(ACK_REQUEST_NS));
        }
    }

    /// Accounts for a request for a response, in a packet that was sent. `end` is the PSN after it.
    #[inline]
    pub(super) fn requested(&mut self, end: Psn) {
        self.base = end;
        self.at = None;
        self.is_urgent = false;
    }

    /// Accounts for the acknowledgment of all packets before `una`; the next one has PSN `next`.
    #[inline]
    pub(super) fn acknowledged(&mut self, una: Psn, next: Psn) {
        self.base.advance_to(una);
        if self.base == next {
            self.at = None;
            self.is_urgent = false;
        }
    }

    /// Ends the delay of the deferred request if it is due: a packet that follows requests the
    /// acknowledgment, or the last one is sent again, as a probe.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.at.is_some_and(|at| at.is_due(now)) {
            self.at = None;
            self.is_urgent = true;
        }
    }

    /// Forgets the deferred request.
    pub(super) fn stop(&mut self) {
        self.at = None;
    }

    /// Forgets requests in packets from `psn` on, which are not sent again.
    pub(super) fn rewind_to(&mut self, psn: Psn) {
        if self.base.is_after(psn) {
            self.base = psn;
        }
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns whether the packet requests an acknowledgment.
    #[inline]
    pub(super) fn wants_ack(&self, step: &Step) -> bool {
        if self.transport != Transport::Rc || self.has_explicit_response(step) {
            return false;
        }
        // If another packet can follow at once, that or a later one requests the acknowledgment.
        self.acks.base.forward(step.end()) >= self.window.ack_every()
            || (self.step_at(step.next_slot(), step.end()).is_none() && !self.can_wait(step))
    }

    /// Returns whether the last packet may defer its acknowledgment request.
    ///
    /// The consumer does not see the completion of an unsignalled request; the request only
    /// occupies its slot. While few slots are in use, the next acknowledgment request covers it,
    /// too. An acknowledgment for each small request would cost as much as the request. A signalled
    /// request before it may have left the acknowledgment request to this packet, or a deferred
    /// request may be overdue.
    #[inline]
    fn can_wait(&self, step: &Step) -> bool {
        let slot = self.queue.get(step.slot);

        self.state == SendState::Running
            && self.queue.get(step.next_slot()).is_none()
            && self.queue.len() <= self.queue.capacity() / 4
            && !self.acks.is_urgent
            && slot.is_some_and(|slot| !slot.wr.signalled)
    }

    /// Returns the last packet again, with the AckReq bit, if it was sent without.
    ///
    /// Must be called only if nothing else can be sent. Usually [`Requester::wants_ack`] has
    /// foreseen that. It cannot foresee that the next request fails locally or that the queue is
    /// drained, and it defers the acknowledgment requests of unsignalled requests.
    #[inline]
    pub(super) fn ack_probe(&self) -> Option<Step> {
        if self.transport != Transport::Rc || !self.acks.base.is_before(self.window.next()) {
            return None;
        }
        // The request at `next` waits for the acknowledgment, even if it must fail locally: `next`
        // never passes a request that must fail. One that waits for memory usually goes on soon.
        let awaited = self.state != SendState::Running
            || (self.held.is_none() && self.queue.get(self.queue.next()).is_some());
        if self.acks.at.is_some() && !awaited {
            return None;
        }
        let psn = self.window.next().prev();
        self.step_again(self.slot_of(psn)?, psn, StepKind::AckProbe)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_ack_request))]
mod tests {
    use super::*;
    use crate::requester::ACK_REQUEST_NS;
    use crate::testutil::*;

    #[test]
    fn unsignalled_requests_delay_ack_request() {
        let mut rc = requester(Transport::Rc, 8);
        // A quarter of the slots.
        for _ in 0..2 {
            assert!(rc.post(unsignalled()).is_ok());
            assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        }
        let due = NOW.after(ACK_REQUEST_NS);
        assert_eq!(rc.next_timeout(), Some(due));
        assert_eq!(rc.on_timeout(due), Expired::Nothing);
        let probe = send(&mut rc);
        assert_eq!(probe.map(|sent| sent.ack_req), Some(true));
        assert_eq!(probe.map(|sent| sent.psn.get()), Some(1));
        assert_eq!(send(&mut rc), None);
        assert!(rc.next_timeout().is_some_and(|at| at != due));
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
        while rc.poll_completion().is_some() {}

        // The acknowledgment request of a signalled request covers all.
        assert!(rc.post(unsignalled()).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        acknowledge(&mut rc, 3, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
        while rc.poll_completion().is_some() {}

        // The acknowledgment request is not deferred beyond a quarter of the slots, nor while a
        // later request waits.
        for ack_req in [false, false, true] {
            assert!(rc.post(unsignalled()).is_ok());
            assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(ack_req));
        }
        acknowledge(&mut rc, 6, Syndrome::ACK);
        while rc.poll_completion().is_some() {}
        assert!(rc.post(unsignalled()).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        assert!(rc.post(wr(SendOp::LocalInv, 0)).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
    }

    #[test]
    fn signalled_request_before_unsignalled_one_is_not_delayed() {
        let mut rc = requester(Transport::Rc, 8);
        // Both are posted before the first is sent, which leaves the request to the second.
        post(&mut rc, &[wr(SendOp::Send, 0), unsignalled()]);
        let requests: [_; 2] = core::array::from_fn(|_| send(&mut rc).map(|sent| sent.ack_req));
        assert_eq!(requests, [Some(false), Some(true)]);
        acknowledge(&mut rc, 1, Syndrome::ACK);
        while rc.poll_completion().is_some() {}

        // The acknowledgment has covered the signalled one.
        assert!(rc.post(unsignalled()).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
    }

    #[test]
    fn deferred_ack_request_is_dropped_once_it_is_not_needed() {
        let ends: [fn(&mut Half); 3] = [
            // A later packet requests an acknowledgment.
            |rc| {
                post(rc, &[wr(SendOp::Send, 0)]);
                assert_eq!(send(rc).map(|sent| sent.ack_req), Some(true));
            },
            // The peer acknowledges without request.
            |rc| assert_eq!(acknowledge(rc, 0, Syndrome::ACK), ResponseKind::Ack),
            |rc| rc.flush(),
        ];
        for end in ends {
            let mut rc = untimed(8);
            post(&mut rc, &[unsignalled()]);
            assert!(send(&mut rc).is_some());
            assert_eq!(rc.next_timeout(), Some(NOW.after(ACK_REQUEST_NS)));
            end(&mut rc);
            assert_eq!(rc.next_timeout(), None);
        }
    }

    #[test]
    fn request_that_waits_ends_delay() {
        let mut rc = untimed(8);
        // A local invalidate waits until everything before it has finished.
        post(&mut rc, &[unsignalled(), wr(SendOp::LocalInv, 0)]);
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        assert_eq!(send(&mut rc), None);
    }

    #[test]
    fn request_before_read_that_does_not_fit_is_sent_once() {
        let mut rc = requester(Transport::Rc, 3);
        post(&mut rc, &[wr(SendOp::Read, 8 * MTU)]);
        assert!(send(&mut rc).is_some());
        // The window of 16 packets has no room for the responses to both.
        post(&mut rc, &[wr(SendOp::Send, 0), wr(SendOp::Read, 8 * MTU)]);
        assert_eq!(sent(&mut rc), [Some((8, true)), None, None, None]);
    }

    #[test]
    fn drain_ends_delay() {
        for (length, packets, last) in [(MTU, 1, 0), (2 * MTU, 2, 1)] {
            let mut rc = untimed(8);
            let request = SendWr {
                length,
                ..unsignalled()
            };
            post(&mut rc, &[request]);
            assert_eq!(send_all(&mut rc), packets);
            // A local operation has no packet that could be sent again.
            post(&mut rc, &[wr(SendOp::BindMw, 0)]);
            rc.local_done(Ok(()));
            assert_eq!(send(&mut rc), None);
            rc.drain();
            let probe = send(&mut rc).map(|sent| (sent.psn.get(), sent.ack_req));
            assert_eq!(probe, Some((last, true)));
        }
    }

    #[test]
    fn retransmission_of_unacknowledged_packet_starts_timer() {
        let mut rc = requester(Transport::Rc, 8);
        post(&mut rc, &[unsignalled()]);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 0, Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        assert_eq!(rc.next_timeout(), Some(NOW.after(TIMEOUT_NS)));
    }

    #[test]
    fn local_error_ends_delay() {
        let mut rc = untimed(8);
        post(&mut rc, &[unsignalled()]);
        assert_eq!(send_all(&mut rc), 1);
        post(&mut rc, &[unsignalled()]);
        assert_eq!(send_all(&mut rc), 1);
        rc.local_error(1, Status::LocProt);
        let probe = send(&mut rc).map(|sent| (sent.psn.get(), sent.ack_req));
        assert_eq!(probe, Some((0, true)));
        assert_eq!(send(&mut rc), None);
    }

    #[test]
    fn ack_before_failed_request_ends_delay() {
        let mut rc = untimed(12);
        post(&mut rc, &[wr(SendOp::Send, 2 * MTU), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 3);
        post(&mut rc, &[unsignalled()]);
        assert!(send(&mut rc).is_some());
        // The requests from PSN 2 on are not sent again, so they need no acknowledgment.
        rc.local_error(1, Status::LocProt);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn deferred_ack_request_is_not_deferred_again() {
        let mut rc = requester(Transport::Rc, 8);
        assert!(rc.post(unsignalled()).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        rc.on_timeout(NOW.after(ACK_REQUEST_NS));
        assert!(rc.post(unsignalled()).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
    }
}
