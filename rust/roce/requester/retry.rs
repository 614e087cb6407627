// SPDX-License-Identifier: GPL-2.0

//! Timers, going back, and giving up (RC).

use core::ops::DerefMut;

use super::{
    Requester,
    Slot,
    MIN_WINDOW,
    PSN_WINDOW,
    RNR_RETRY_FOREVER, //
};
use crate::{
    psn::Psn,
    time::{
        rnr_timer_ns,
        Instant, //
    },
    wr::Status, //
};

/// How much longer than so far the peer may take before it is asked again.
const SLACK: u64 = 4;

/// How slowly it is forgotten that the peer was slow: by 1/256 with each response, as a shift.
const FORGET: u32 = 8;

/// For how many times the timeout the peer may be busy with answers that are not awaited.
const BUSY: u64 = 16;

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns when [`Requester::on_timeout`] wants to be called next.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        // While a receiver is not ready, nothing is under way.
        self.rnr_until
            .or(match (self.deadline, self.ack_request_at) {
                (Some(deadline), Some(ask)) => Some(deadline.min(ask)),
                (one, other) => one.or(other),
            })
    }

    /// Does what is due, and returns whether that was a response. Calling it early, late or in vain
    /// is harmless.
    pub fn on_timeout(&mut self, now: Instant) -> bool {
        if let Some(until) = self.rnr_until {
            if until.is_due(now) {
                self.rnr_until = None;
            }
            return false;
        }
        if self.ack_request_at.is_some_and(|at| at.is_due(now)) {
            // What was sent last is sent again, and asks.
            self.ack_request_at = None;
        }
        let overdue = self.deadline.is_some_and(|deadline| deadline.is_due(now));
        if overdue {
            // The NAK for a packet that gets lost again has not been seen yet.
            self.gone_back = None;
            self.retry();
        }
        overdue
    }

    /// Goes back because the response is overdue or says that something is missing, unless that was
    /// too often.
    pub(super) fn retry(&mut self) {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                self.window = (self.window >> 1).max(MIN_WINDOW);
                self.go_back();
            }
            None => self.fail(Status::RetryExceeded),
        }
    }

    /// Goes back, once per loss, because an answer to `psn` says that the packet at `una`, or its
    /// response, got lost. Returns whether it did anything.
    pub(super) fn retry_once(&mut self, psn: Psn) -> bool {
        let waiting = self.rnr_until.is_some();
        // What was not sent since we went back cannot be what the peer speaks of.
        let unsent = self.send_psn == self.una;
        let known = self.gone_back.is_some_and(|end| psn.is_before(end));
        if waiting || unsent || known {
            return false;
        }
        self.gone_back = Some(self.max_psn);
        self.retry();
        true
    }

    /// Waits because the receiver is not ready for the packet at `una`, unless that was too often.
    /// Returns whether it did anything.
    pub(super) fn wait_rnr(&mut self, now: Instant, timer: u8) -> bool {
        let waiting = self.rnr_until.is_some();
        if waiting || self.send_psn == self.una {
            return false;
        }
        if self.params.rnr_retry != RNR_RETRY_FOREVER {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => {
                    self.fail(Status::RnrRetryExceeded);
                    return true;
                }
            }
        }
        self.go_back();
        self.rnr_until = Some(now.after(rnr_timer_ns(timer)));
        true
    }

    /// Starts the retransmission timer if a response is owed and it does not run yet.
    #[inline]
    pub(super) fn expect_response(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.awaited = now;
            self.restart_deadline(now);
        }
    }

    /// Notes that the peer made progress since `before`: all retries are free again, the timer
    /// starts anew, and the window opens.
    #[inline]
    pub(super) fn progressed(&mut self, now: Instant, before: Psn) {
        let acknowledged = before.forward(self.una);
        self.window = self.window.saturating_add(acknowledged).min(PSN_WINDOW);
        self.reset_retries();
        self.gone_back = None;
        self.rnr_until = None;
        if self.deadline.is_some() {
            let took = now.since(self.awaited);
            self.slowest = took.max(self.slowest.saturating_sub(self.slowest >> FORGET));
        }
        self.awaited = now;
        self.restart_deadline(now);
    }

    /// Notes that the peer answers something else than what is awaited: what it was asked for
    /// twice, or what is behind a lost response.
    ///
    /// It gets to what is awaited after that. To ask for it again in the meantime, which makes yet
    /// another answer, would feed the delay that it comes from. But not for ever: nobody knows that
    /// it was asked for any of this.
    #[cold]
    pub(super) fn peer_is_busy(&mut self, now: Instant) {
        let most = self.params.ack_timeout.unwrap_or(0).saturating_mul(BUSY);
        if self.deadline.is_some() && now.since(self.awaited) < most {
            self.restart_deadline(now);
        }
    }

    #[inline]
    pub(super) fn reset_retries(&mut self) {
        self.retries_left = self.params.retry_cnt;
        self.rnr_left = self.params.rnr_retry;
    }

    #[inline]
    pub(super) fn stop_timers(&mut self) {
        self.deadline = None;
        self.ack_request_at = None;
        self.rnr_until = None;
    }

    /// Makes the packet at `una` the next one.
    fn go_back(&mut self) {
        self.reads = 0;
        self.send = self.done;
        self.send_psn = self.una;
        self.ack_base = self.una;
        self.window_base = self.una;
        self.deadline = None;
        self.ack_request_at = None;
        self.accept = None;
        self.pass_local();
    }

    /// Starts the retransmission timer anew, or stops it if no response is owed.
    ///
    /// A timeout of `t` is one of `t` to `4 * t` (IBTA 9.7.6.1.3): the longer, the slower the peer
    /// has been. To ask again for what it is about to answer would make it slower still.
    #[inline]
    fn restart_deadline(&mut self, now: Instant) {
        let owed = self.una.is_before(self.ack_base);
        self.deadline = match self.params.ack_timeout {
            Some(timeout) if owed => {
                let slow = self.slowest.min(timeout).saturating_mul(SLACK);
                Some(now.after(timeout.max(slow)))
            }
            _ => None,
        };
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_requester_retry))]
mod tests {
    use super::*;
    use crate::{
        opcode::Transport,
        requester::ResponseKind,
        testutil::{
            requester,
            slots,
            wr,
            Frame,
            MTU,
            NOW,
            TIMEOUT_NS, //
        },
        wire::Syndrome,
        wr::{
            SendOp,
            Status, //
        },
    };

    fn send(rc: &mut Requester<&mut [Slot]>, now: Instant) -> bool {
        let sent = rc.poll_transmit().is_some();
        rc.transmitted(now);
        sent
    }

    #[test]
    fn a_bad_request_behind_a_good_one_fails_in_its_turn() {
        for transport in [Transport::Uc, Transport::Ud] {
            let mut slots = slots::<2>();
            let mut requester = requester(transport, &mut slots);
            for _ in 0..2 {
                assert!(requester.post(wr(SendOp::Send, 0)).is_ok());
            }
            requester.local_error(1, Status::LocProt);
            assert!(send(&mut requester, NOW));
            assert!(!send(&mut requester, NOW));
            for status in [Status::Success, Status::LocProt] {
                let completion = requester.poll_completion();
                assert_eq!(completion.map(|end| end.status), Some(status));
            }
            assert!(requester.take_error());
        }
    }

    #[test]
    fn a_silent_peer_is_given_up() {
        let mut slots = slots::<2>();
        let mut rc = requester(Transport::Rc, &mut slots);
        for _ in 0..2 {
            assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        }
        assert!(send(&mut rc, NOW) && send(&mut rc, NOW));
        let due = NOW.after(TIMEOUT_NS);
        assert_eq!(rc.next_timeout(), Some(due));
        assert!(!rc.on_timeout(NOW));
        assert!(!send(&mut rc, NOW));
        assert!(rc.on_timeout(due));
        assert!(send(&mut rc, due) && send(&mut rc, due));
        assert!(rc.on_timeout(due.after(TIMEOUT_NS)));
        assert!(rc.take_error());
        let status = rc.poll_completion().map(|completion| completion.status);
        assert_eq!(status, Some(Status::RetryExceeded));
        let status = rc.poll_completion().map(|completion| completion.status);
        assert_eq!(status, Some(Status::WrFlush));
        assert_eq!(rc.next_timeout(), None);
    }

    /// Sends a message, and acknowledges it after so many nanoseconds; returns for how many the
    /// acknowledgment would have been waited for, and when it came.
    fn answer_after(
        rc: &mut Requester<&mut [Slot]>,
        psn: u32,
        now: Instant,
        took: u64,
    ) -> (Option<u64>, Instant) {
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(rc, now));
        let timeout = rc.next_timeout().map(|due| due.since(now));
        let now = now.after(took);
        let ack = Frame::ack(psn, Syndrome::ACK);
        let answer = rc.on_response(now, &ack.packet());
        assert_eq!(answer.outcome, ResponseKind::Ack);
        while rc.poll_completion().is_some() {}
        (timeout, now)
    }

    #[test]
    fn a_slow_peer_has_more_time() {
        let mut slots = slots::<1>();
        let mut rc = requester(Transport::Rc, &mut slots);
        let mut now = NOW;
        let mut times = [None; 5];
        let took = [
            TIMEOUT_NS / 8,
            TIMEOUT_NS / 2,
            TIMEOUT_NS * 2 - 1,
            TIMEOUT_NS * 3,
            0,
        ];
        for (psn, (time, took)) in (0..).zip(times.iter_mut().zip(took)) {
            (*time, now) = answer_after(&mut rc, psn, now, took);
            // Nobody waited for anything then.
            now = now.after(TIMEOUT_NS * 100);
        }
        let expected = [1, 1, 2, 4, 4].map(|times| Some(times * TIMEOUT_NS));
        assert_eq!(times, expected);

        for psn in 5..1000 {
            (_, now) = answer_after(&mut rc, psn, now, 0);
        }
        let (time, _) = answer_after(&mut rc, 1000, now, 0);
        assert_eq!(time, Some(TIMEOUT_NS));
    }

    #[test]
    fn a_receiver_that_is_not_ready_is_asked_again_after_its_time() {
        let mut slots = slots::<1>();
        let mut rc = requester(Transport::Rc, &mut slots);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc, NOW));
        let rnr = Frame::ack(0, Syndrome::Rnr { timer: 1 });
        assert_eq!(
            rc.on_response(NOW, &rnr.packet()).outcome,
            ResponseKind::Rnr
        );
        assert!(!send(&mut rc, NOW));
        // The network may repeat it.
        let again = rc.on_response(NOW, &rnr.packet());
        assert_eq!(again.outcome, ResponseKind::Duplicate);
        let due = NOW.after(10_000);
        assert_eq!(rc.next_timeout(), Some(due));
        // Nothing is overdue: nobody was asked.
        assert!(!rc.on_timeout(due));
        assert!(send(&mut rc, due));
        assert_eq!(
            rc.on_response(due, &rnr.packet()).outcome,
            ResponseKind::Rnr
        );
        let status = rc.poll_completion().map(|completion| completion.status);
        assert_eq!(status, Some(Status::RnrRetryExceeded));
    }

    #[test]
    fn seven_rnr_retries_have_no_end() {
        let mut slots = slots::<1>();
        let mut rc = requester(Transport::Rc, &mut slots);
        let params = rc.params;
        rc.set_params(&crate::requester::SendParams {
            rnr_retry: RNR_RETRY_FOREVER,
            ..params
        });
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let rnr = Frame::ack(0, Syndrome::Rnr { timer: 1 });
        let mut now = NOW;
        for _ in 0..20 {
            assert!(send(&mut rc, now));
            assert_eq!(
                rc.on_response(now, &rnr.packet()).outcome,
                ResponseKind::Rnr
            );
            now = now.after(10_000);
            rc.on_timeout(now);
        }
        assert!(rc.poll_completion().is_none());
    }

    #[test]
    fn progress_makes_all_retries_free_again() {
        let mut slots = slots::<2>();
        let mut rc = requester(Transport::Rc, &mut slots);
        for _ in 0..2 {
            assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        }
        let mut now = NOW;
        for psn in 0..2 {
            while send(&mut rc, now) {}
            now = now.after(TIMEOUT_NS);
            rc.on_timeout(now);
            while send(&mut rc, now) {}
            let ack = Frame::ack(psn, Syndrome::ACK);
            assert_eq!(
                rc.on_response(now, &ack.packet()).outcome,
                ResponseKind::Ack
            );
        }
        assert!(!rc.take_error());
    }

    #[test]
    fn a_loss_halves_the_window_and_progress_opens_it() {
        let mut slots = slots::<1>();
        let mut rc = requester(Transport::Rc, &mut slots);
        assert!(rc.post(wr(SendOp::Send, 1000 * MTU)).is_ok());
        let mut sent = 0;
        while send(&mut rc, NOW) {
            sent += 1;
        }
        assert_eq!(sent, PSN_WINDOW);
        let now = NOW.after(TIMEOUT_NS);
        rc.on_timeout(now);
        let mut again = 0;
        while send(&mut rc, now) {
            again += 1;
        }
        assert_eq!(again, PSN_WINDOW / 2);
        let ack = Frame::ack(again - 1, Syndrome::ACK);
        assert_eq!(
            rc.on_response(now, &ack.packet()).outcome,
            ResponseKind::Ack
        );
        let mut more = 0;
        while send(&mut rc, now) {
            more += 1;
        }
        assert_eq!(more, PSN_WINDOW);
    }
}
