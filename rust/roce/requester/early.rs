// SPDX-License-Identifier: GPL-2.0

//! Responses that arrive before a missing explicit response (RC).
//!
//! The driver keeps these early responses until the missing ones arrive, so that only the missing
//! ones have to be requested again. Acknowledgments are kept, too, because there may be no other
//! one for the requests behind a READ.
//!
//! The missing responses before the first kept one are requested first. When `una` reaches a kept
//! response, the driver hands it in again, and the next gap is requested after the last of them.

use core::ops::DerefMut;

use super::{
    Requester,
    Response,
    ResponseKind,
    Slot, //
};
use crate::{
    psn::Psn,
    time::Instant, //
};

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns whether to keep a response for which [`Response::is_early`] is true.
    #[inline]
    pub fn may_keep(&self, psn: Psn) -> bool {
        self.kept.may_keep(self.window.una(), psn)
    }

    /// Accounts for a response that was kept. [`Requester::may_keep`] must have allowed that.
    pub fn kept(&mut self, psn: Psn) {
        self.kept.kept(psn);
    }

    /// Accounts for an early response that was dropped.
    ///
    /// Either [`Requester::may_keep`] did not allow keeping it, or there was no room. If none is
    /// kept and a retransmission is due, the requester rewinds instead.
    pub fn not_kept(&mut self, psn: Psn) {
        self.kept.not_kept(psn);
        if self.kept.first().is_none() && self.probe.is_due() {
            self.rewind();
        }
    }

    /// Forgets the kept responses, because the driver hands all of them in again.
    ///
    /// If later ones were dropped, everything is requested again, because no kept response will
    /// show that these are missing.
    pub fn forget_kept(&mut self) {
        let has_dropped = core::mem::take(&mut self.kept).has_dropped();
        if has_dropped && self.is_active() && !self.is_rewound() {
            self.note_loss();
            self.rewind();
        }
    }

    /// Returns whether the driver must hand in the first kept response again now.
    #[inline]
    pub fn is_kept_due(&self) -> bool {
        // Nothing is kept after an error.
        self.kept.first().is_some() && self.kept.is_due(self.next_explicit())
    }

    /// Accounts for the first kept response, which the driver is about to hand in again.
    ///
    /// `next` is the PSN of the kept response after it, if there is one.
    pub fn took_kept(&mut self, next: Option<Psn>) {
        self.kept.took(next);
    }

    /// Returns the PSN of the next expected explicit response, or `max` if none is outstanding.
    ///
    /// That response acknowledges the requests before its own.
    #[cold]
    fn next_explicit(&self) -> Psn {
        let una = self.window.una();
        let unfinished = self.queue.done()..self.queue.begun();
        let mut slots = unfinished.filter_map(|at| self.queue.get(at));
        match slots.find(|slot| slot.has_explicit_response()) {
            Some(slot) if una.is_before(slot.first_psn) => slot.first_psn,
            Some(_) => una,
            None => self.window.max(),
        }
    }

    /// Handles a response to `psn` behind a missing one.
    #[cold]
    pub(super) fn on_early(&mut self, now: Instant, psn: Psn) -> Response {
        let is_early = self.next_explicit().is_before(psn);
        if self.probe.take_lost_again(psn) {
            // This consumes no retry, because the responses may only arrive out of order.
            self.send_again(now, 1);
        }
        let outcome = match self.on_gap(now, psn, ResponseKind::Gap, is_early) {
            ResponseKind::Gap => ResponseKind::Gap,
            _ => ResponseKind::Early,
        };
        if !is_early && outcome == ResponseKind::Gap && self.is_active() {
            // The response acknowledges the request whose explicit response is missing, and cannot
            // be kept.
            self.rewind();
        }
        Response {
            is_early: is_early && self.is_active(),
            ..outcome.into()
        }
    }

    /// Requests the next missing responses, after `una` has advanced to the next gap or past the
    /// last kept response.
    #[inline]
    pub(super) fn request_gap(&mut self, now: Instant) {
        if self.kept.has_gap() {
            self.request_next_gap(now);
        }
    }

    #[cold]
    fn request_next_gap(&mut self, now: Instant) {
        let is_under_way = self.probe.continues_at(self.window.una());
        if !self.is_active() || is_under_way || self.is_kept_due() {
            return;
        }
        if self.kept.first().is_some() {
            // The kept response proves that the requests before the missing one were executed.
            self.acknowledge(now, self.next_explicit(), true);
            // After a rewind, all missing responses are about to be requested again anyway.
            let is_requested = !self.window.is_empty();
            if self.is_active() && is_requested && !self.start_wait(now, false) {
                self.note_loss();
                self.halve_window_once(now);
                self.send_again(now, 1);
            }
        } else if self.kept.take_missing() && !self.window.is_empty() {
            self.note_loss();
            self.rewind();
        }
    }

    /// Returns the number of responses to request again from `una` on: those before the first kept
    /// one.
    ///
    /// The response at `una` is that of packet `index` of the READ in `slot`.
    pub(super) fn missing_responses(&self, slot: &Slot, index: u32) -> u32 {
        let una = self.window.una();
        match self.kept.first() {
            Some(first) if una.is_before(first) => {
                una.forward(first).min(slot.read_part(index)).max(1)
            }
            _ => 1,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_early))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Sends a READ of `N` packets, and returns all responses.
    fn read<const N: usize>(rc: &mut Half) -> [Frame; N] {
        // CAST: A few.
        post(rc, &[wr(SendOp::Read, N as u32 * MTU)]);
        assert_eq!(send_all(rc), 1);
        let mut psn = 0;
        [(); N].map(|()| {
            let opcode = match psn {
                0 => Opcode::RcReadResponseFirst,
                psn if psn + 1 == N as u32 => Opcode::RcReadResponseLast,
                _ => Opcode::RcReadResponseMiddle,
            };
            psn += 1;
            piece(opcode, psn - 1)
        })
    }

    /// Handles an early response, and keeps it.
    fn keep(rc: &mut Half, frame: &Frame) -> ResponseKind {
        let psn = frame.packet().psn();
        let response = rc.on_response(NOW, &frame.packet());
        assert!(response.is_early && rc.may_keep(psn));
        rc.kept(psn);
        response.outcome
    }

    /// Makes a send half that may report a loss and then time out.
    fn with_two_retries() -> Half {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.retry_cnt = 2);
        rc
    }

    #[test]
    fn dropped_responses_are_requested_if_kept_ones_are_handed_in_together() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<6>(&mut rc);
        // Response 0 is lost, and there is no room for the last four.
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        for frame in &frames[2..] {
            assert!(rc.on_response(NOW, &frame.packet()).is_early);
            rc.not_kept(frame.packet().psn());
        }
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &frames[0]);
        rc.forget_kept();
        take(&mut rc, &frames[1]);
        assert_eq!(requested(&mut rc), Some((2, 4)));
    }

    #[test]
    fn responses_dropped_before_a_rewind_are_not_requested_twice() {
        let mut rc = requester(Transport::Rc, 4);
        adjust(&mut rc, |params| {
            params.retry_cnt = 2;
            params.max_rd_atomic = 3;
        });
        post(&mut rc, &[wr(SendOp::Read, MTU); 3]);
        assert_eq!(send_all(&mut rc), 3);
        let frames = [0, 1, 2].map(|psn| piece(Opcode::RcReadResponseOnly, psn));
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        assert!(rc.on_response(NOW, &frames[2].packet()).is_early);
        rc.not_kept(Psn::new(2));
        assert_eq!(requested(&mut rc), Some((0, 1)));
        let mut expire = || rc.on_timeout(rc.next_timeout().unwrap());
        assert!((0..4).any(|_| expire() == Expired::Retry));
        assert_eq!(send_all(&mut rc), 3);
        take(&mut rc, &frames[0]);
        rc.took_kept(None);
        take(&mut rc, &frames[1]);
        assert_eq!(rc.poll_transmit(), None);
    }

    #[test]
    fn only_missing_responses_are_requested_again() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<8>(&mut rc);
        // Responses 1, 2 and 5 are lost.
        take(&mut rc, &frames[0]);
        assert_eq!(keep(&mut rc, &frames[3]), ResponseKind::Gap);
        assert_eq!(keep(&mut rc, &frames[4]), ResponseKind::Early);
        assert_eq!(requested(&mut rc), Some((1, 2)));
        for psn in [6, 7] {
            assert_eq!(keep(&mut rc, &frames[psn]), ResponseKind::Early);
        }
        assert_eq!(requested(&mut rc), None);
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 1));
        assert!(!rc.is_kept_due());
        take(&mut rc, &piece(Opcode::RcReadResponseLast, 2));
        for (psn, next) in [(3, Some(4)), (4, Some(6))] {
            assert!(rc.is_kept_due());
            rc.took_kept(next.map(Psn::new));
            take(&mut rc, &frames[psn]);
        }
        assert!(!rc.is_kept_due());
        assert_eq!(requested(&mut rc), Some((5, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 5));
        for (psn, next) in [(6, Some(7)), (7, None)] {
            assert!(rc.is_kept_due());
            rc.took_kept(next.map(Psn::new));
            take(&mut rc, &frames[psn]);
        }
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(requested(&mut rc), None);
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn responses_dropped_behind_kept_ones_are_requested_again() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<4>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        assert!(rc.on_response(NOW, &frames[2].packet()).is_early);
        rc.not_kept(Psn::new(2));
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        rc.took_kept(None);
        take(&mut rc, &frames[1]);
        assert_eq!(requested(&mut rc), Some((2, 2)));
        // It may be a response to the original request.
        assert_eq!(keep(&mut rc, &frames[3]), ResponseKind::Early);
    }

    #[test]
    fn late_responses_after_rewind_report_no_loss() {
        let mut rc = with_two_retries();
        let frames = read::<8>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        rc.not_kept(Psn::new(2));
        assert_eq!(requested(&mut rc), Some((0, 1)));
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        take(&mut rc, &frames[0]);
        rc.took_kept(None);
        take(&mut rc, &frames[1]);
        assert_eq!(requested(&mut rc), Some((2, 6)));
        assert_eq!(keep(&mut rc, &frames[4]), ResponseKind::Gap);
    }

    #[test]
    fn all_responses_are_requested_again_if_none_is_kept() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<4>(&mut rc);
        assert!(rc.on_response(NOW, &frames[1].packet()).is_early);
        rc.not_kept(Psn::new(1));
        assert_eq!(requested(&mut rc), Some((0, 4)));
    }

    #[test]
    fn gap_across_two_reads_is_requested_in_pieces() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, MTU), wr(SendOp::Read, 2 * MTU)]);
        assert_eq!(send_all(&mut rc), 2);
        let last = piece(Opcode::RcReadResponseLast, 2);
        assert_eq!(keep(&mut rc, &last), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        assert_eq!(requested(&mut rc), Some((1, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 1));
        assert!(rc.is_kept_due());
    }

    #[test]
    fn acknowledgment_behind_missing_response_is_kept() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        let ack = Frame::ack(3, Syndrome::ACK);
        assert_eq!(keep(&mut rc, &ack), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 3)));
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 0));
        take(&mut rc, &piece(Opcode::RcReadResponseMiddle, 1));
        assert!(!rc.is_kept_due());
        take(&mut rc, &piece(Opcode::RcReadResponseLast, 2));
        assert!(rc.is_kept_due());
        rc.took_kept(None);
        assert_eq!(
            rc.on_response(NOW, &ack.packet()).outcome,
            ResponseKind::Ack
        );
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn loss_among_responses_requested_again_is_noticed() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<8>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[4]), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 4)));
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 0));
        let late = rc.on_response(NOW, &frames[2].packet());
        assert_eq!(late.outcome, ResponseKind::Early);
        assert!(late.is_early && !rc.may_keep(Psn::new(2)));
        rc.not_kept(Psn::new(2));
        assert_eq!(requested(&mut rc), Some((1, 3)));
    }

    /// Responses to the first request are still on their way when the second one is sent.
    #[test]
    fn response_that_is_lost_again_is_requested_once_more() {
        for progress in 0..2 {
            let mut rc = requester(Transport::Rc, 1);
            let frames = read::<8>(&mut rc);
            assert_eq!(keep(&mut rc, &frames[6]), ResponseKind::Gap);
            assert_eq!(requested(&mut rc), Some((0, 6)));
            for psn in 0..progress {
                take(&mut rc, &frames[psn]);
            }
            let mut requests = 0;
            for psn in progress + 1..6 {
                assert!(rc.on_response(NOW, &frames[psn].packet()).is_early);
                rc.not_kept(frames[psn].packet().psn());
                requests += usize::from(requested(&mut rc).is_some());
            }
            assert_eq!(requests, 1);
        }
    }

    /// Takes the kept responses with PSNs `psns`; the one after them has the PSN `next`.
    fn take_kept(rc: &mut Half, psns: core::ops::Range<u32>, next: u32) {
        for psn in psns.clone() {
            assert!(rc.is_kept_due());
            let is_last = psn + 1 == psns.end;
            rc.took_kept(Some(Psn::new(if is_last { next } else { psn + 1 })));
            let opcode = match psn {
                31 | 63 => Opcode::RcReadResponseLast,
                _ => Opcode::RcReadResponseMiddle,
            };
            take(rc, &piece(opcode, psn));
        }
    }

    /// While several gaps are requested again, responses to a later READ come, and one is lost.
    #[test]
    fn loss_behind_the_last_losses_halves_the_window() {
        let mut rc = requester(Transport::Rc, 2);
        rc.window.set_size(64);
        post(&mut rc, &[wr(SendOp::Read, 64 * MTU)]);
        assert_eq!(send_all(&mut rc), 2);
        for psn in (1..64).filter(|psn| *psn != 40 && *psn != 50) {
            keep(&mut rc, &piece(Opcode::RcReadResponseMiddle, psn));
        }
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        take_kept(&mut rc, 1..40, 41);
        // There is room for another READ.
        post(&mut rc, &[wr(SendOp::Read, 4 * MTU)]);
        assert_eq!(send_all(&mut rc), 2);
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 40));
        take_kept(&mut rc, 41..50, 51);
        assert_eq!(requested(&mut rc), Some((50, 1)));
        let later = piece(Opcode::RcReadResponseMiddle, 65);
        assert_eq!(keep(&mut rc, &later), ResponseKind::Early);
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 50));
        let before = rc.window.size();
        take_kept(&mut rc, 51..64, 65);
        assert_eq!(requested(&mut rc), Some((64, 1)));
        assert!(rc.window.size() < before);
    }

    /// The responses that were dropped behind kept ones are requested as a gap before the next kept
    /// one. The responses after that are still on their way.
    #[test]
    fn dropped_responses_are_requested_again_once() {
        let mut rc = requester(Transport::Rc, 2);
        let frames = read::<8>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 1)));
        assert!(rc.on_response(NOW, &frames[2].packet()).is_early);
        rc.not_kept(Psn::new(2));
        // There is room again.
        assert_eq!(keep(&mut rc, &frames[3]), ResponseKind::Early);
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        rc.took_kept(Some(Psn::new(3)));
        take(&mut rc, &frames[1]);
        assert_eq!(requested(&mut rc), Some((2, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 2));
        rc.took_kept(None);
        take(&mut rc, &frames[3]);
        assert_eq!(requested(&mut rc), None);
        for frame in &frames[4..] {
            take(&mut rc, frame);
        }
        assert_eq!(status(&mut rc), Some(Status::Success));
    }

    #[test]
    fn requests_before_missing_response_are_complete() {
        let mut rc = requester(Transport::Rc, 4);
        let wrs = [
            wr(SendOp::Read, MTU),
            wr(SendOp::Send, 0),
            wr(SendOp::Read, 2 * MTU),
        ];
        post(&mut rc, &wrs);
        assert_eq!(send_all(&mut rc), 3);
        let last = piece(Opcode::RcReadResponseLast, 3);
        assert_eq!(keep(&mut rc, &last), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(requested(&mut rc), Some((2, 1)));
    }

    #[test]
    fn acknowledgment_instead_of_explicit_response_causes_rewind() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Flush, 8), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        let ack = Frame::ack(0, Syndrome::ACK);
        let response = rc.on_response(NOW, &ack.packet());
        assert_eq!(response.outcome, ResponseKind::Gap);
        assert!(!response.is_early);
        assert_eq!(send_all(&mut rc), 2);
    }

    /// A rewind requests the missing responses anyway.
    #[test]
    fn late_response_after_rewind_requests_no_gap() {
        let mut rc = with_two_retries();
        let frames = read::<8>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[3]), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 3)));
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        take(&mut rc, &frames[0]);
        assert_eq!(requested(&mut rc), Some((1, 7)));
    }

    /// The driver could not hand in the kept one yet.
    #[test]
    fn response_that_was_kept_may_arrive_again() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<8>(&mut rc);
        assert_eq!(keep(&mut rc, &frames[1]), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 1)));
        take(&mut rc, &piece(Opcode::RcReadResponseOnly, 0));
        take(&mut rc, &frames[1]);
        assert_eq!(keep(&mut rc, &frames[3]), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((2, 1)));
    }

    #[test]
    fn forgotten_response_may_be_kept_again() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<4>(&mut rc);
        keep(&mut rc, &frames[2]);
        assert!(!rc.may_keep(Psn::new(2)));
        rc.forget_kept();
        assert!(rc.may_keep(Psn::new(2)));
    }

    #[test]
    fn nothing_is_kept_once_no_retry_is_left() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.retry_cnt = 0);
        rc.retry.reset_counts(&rc.params);
        let frames = read::<2>(&mut rc);
        assert!(!rc.on_response(NOW, &frames[1].packet()).is_early);
        assert_eq!(status(&mut rc), Some(Status::RetryExceeded));
    }

    #[test]
    fn kept_responses_are_forgotten_on_error() {
        let mut rc = requester(Transport::Rc, 1);
        let frames = read::<2>(&mut rc);
        keep(&mut rc, &frames[1]);
        rc.flush();
        assert!(rc.kept.first().is_none());
    }

    #[test]
    fn missing_responses_are_requested_within_the_current_part() {
        let mut rc = with_two_retries();
        rc.window.set_size(96);
        post(&mut rc, &[wr(SendOp::Read, 64 * MTU)]);
        assert_eq!(requested(&mut rc), Some((0, 64)));
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        assert_eq!(requested(&mut rc), Some((0, 16)));
        let late = piece(Opcode::RcReadResponseMiddle, 20);
        assert_eq!(keep(&mut rc, &late), ResponseKind::Gap);
        assert_eq!(requested(&mut rc), Some((0, 16)));
    }
}
