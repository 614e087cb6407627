// SPDX-License-Identifier: GPL-2.0

//! Loss recovery: timers, retransmission and retry limits (RC).
//!
//! `una` is the oldest unacknowledged PSN. To rewind is to retransmit all packets from there on.
//!
//! | event                             | file     | retransmission            | window | retry |
//! |-----------------------------------|----------|---------------------------|--------|-------|
//! | sequence NAK                      | gap.rs   | missing packet, or rewind | halved | one   |
//! | response behind a missing one     | early.rs | missing responses         | halved | one   |
//! | probe timer: 2 SRTT + 4 RTTVAR    | probe.rs | packet at `una`           | same   | none  |
//! | acknowledgment of only the probe  | gap.rs   | next packets, or rewind   | halved | none  |
//! | retransmission timer: ACK timeout | retry.rs | rewind                    | halved | one   |
//! | RNR NAK                           | retry.rs | rewind after RNR timer    | same   | RNR   |
//!
//! The losses that responses report for one window, and those that the retransmission of a missing
//! packet then shows, halve it once, and again if a later NAK causes a rewind. If packets were late
//! before, the first two events start a wait on the probe timer (gap.rs).
//!
//! Progress restores all retries, and an RNR NAK those that are not RNR retries. Both timers
//! restart with progress, and with a retransmission for a reported loss. A probe finds losses that
//! no response reports. It is early and costs one packet, so it consumes no retry. The
//! retransmission timer is that of IBTA, for when probes are lost, too.

use core::{
    num::NonZero,
    ops::DerefMut, //
};

use super::{
    ack_request::AckRequests,
    explicit::Explicit,
    rtt::Rtt,
    Requester,
    ResponseKind,
    SendParams,
    Slot,
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

/// The ratio of the retransmission timeout to `slowest`.
const SLACK: u64 = 4;

/// The decay of `slowest` with each progress, as a shift: 1/256.
const FORGET: u32 = 8;

/// For this many ACK timeouts after the last progress or the last rewind, responses without
/// progress also restart the timers.
const BUSY: u64 = 16;

/// The most doublings of the time between probes.
const MAX_PROBE_SHIFT: u32 = 10;

/// The timers, the RNR wait and the retries that are left.
#[derive(Default)]
pub(super) struct Retry {
    retries_left: u8,
    rnr_left: u8,
    /// The PSN after the last one sent when the last loss was reported.
    ///
    /// A response to a packet before it does not report another loss. `None` if any response does.
    loss_end: Option<Psn>,
    timers: Timers,
    /// The round-trip time, for the probe timer.
    pub(super) rtt: Rtt,
    /// The number of probes since the last RTT sample, or since the retransmission of a missing
    /// packet showed that the next one is missing, too: the back-off of the probe timer (Karn).
    probes: u8,
    /// The time of the last progress, or of the first packet that was sent while no timer ran:
    /// after idle time, or after a rewind.
    awaited: Instant,
    /// The longest recent time from one progress to the next, in ns.
    slowest: u64,
    /// The end of the RNR wait.
    rnr_until: Option<Instant>,
}

/// The timers that run while a response is owed.
#[derive(Clone, Copy, Default)]
pub(super) struct Timers {
    /// The expiry of the retransmission timer (the timeout of the queue pair).
    deadline: Option<Instant>,
    /// The expiry of the probe timer.
    probe: Option<Instant>,
}

/// The result of [`Requester::on_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// None of the timers below has expired.
    Nothing,
    /// The RNR timer has expired: everything is sent again.
    RnrTimer,
    /// The probe timer has expired: the packet at `una` is sent again, and no retry is consumed.
    Probe,
    /// The wait for a late packet or response has expired: it is sent or requested again.
    ///
    /// Counts like a response of this kind, which would have reported the loss without the wait.
    Missing(ResponseKind),
    /// The retransmission timer has expired: everything is sent again.
    Retry,
}

impl Retry {
    /// Makes the state with no timer running and all retries left.
    pub(super) fn new(params: &SendParams) -> Retry {
        let mut retry = Retry::default();
        retry.reset_counts(params);
        retry
    }

    /// Makes all retries available.
    #[inline]
    pub(super) fn reset_counts(&mut self, params: &SendParams) {
        self.retries_left = params.retry_cnt;
        self.rnr_left = params.rnr_retry;
    }

    /// Stops the timers.
    pub(super) fn stop(&mut self) {
        self.timers = Timers::default();
        self.rnr_until = None;
    }

    /// Returns the retries left for the packet at `una`, and the RNR retries.
    pub(super) fn left(&self) -> (u8, u8) {
        (self.retries_left, self.rnr_left)
    }

    /// Returns the expiry of the retransmission timer.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.deadline
    }

    /// Returns the timers.
    #[inline]
    pub(super) fn timers(&self) -> Timers {
        self.timers
    }

    /// Returns the end of the RNR wait, in which nothing is sent.
    #[inline]
    pub(super) fn rnr_until(&self) -> Option<Instant> {
        self.rnr_until
    }

    /// Restores the timers: the packets that started them were not sent.
    pub(super) fn restore(&mut self, timers: Timers) {
        self.timers = timers;
        self.rtt.forget_sample();
    }

    /// Ends the back-off of the probe timer.
    pub(super) fn end_back_off(&mut self) {
        self.probes = 0;
    }

    /// Sets the probe timer to the end of the wait for a late packet or response.
    pub(super) fn wait_for_late(&mut self, now: Instant) {
        self.timers.probe = Some(now.after(self.rtt.lateness()));
    }

    /// Returns whether the loss reported by the response with PSN `psn` is already known.
    pub(super) fn is_known_loss(&self, psn: Psn) -> bool {
        self.loss_end.is_some_and(|end| psn.is_before(end))
    }

    /// Accounts for progress up to `una`.
    ///
    /// Returns whether packets spent much of the round trip in queues, if it was measured.
    #[inline]
    fn progressed(&mut self, now: Instant, una: Psn, params: &SendParams) -> Option<bool> {
        self.reset_counts(params);
        self.rnr_until = None;
        let sample = self.rtt.acknowledged(now, una);
        if sample.is_some() {
            self.probes = 0;
        }
        if self.timers.deadline.is_some() {
            let took = now.since(self.awaited);
            self.slowest = took.max(self.slowest.saturating_sub(self.slowest >> FORGET));
        }
        self.awaited = now;
        sample.map(|ns| self.rtt.has_queues(ns))
    }

    /// Restarts the timers, or stops them if no response is owed.
    ///
    /// A timeout of `t` may take `t` to `4 * t` (IBTA 9.7.6.1.3). A slow peer gets the longer one,
    /// because a premature retransmission would slow it down further.
    #[inline]
    fn restart(&mut self, now: Instant, params: &SendParams, is_owed: bool) {
        if !is_owed {
            self.timers = Timers::default();
            return;
        }
        self.timers = Timers {
            deadline: params.ack_timeout.map(|timeout| {
                let timeout = timeout.get();
                let slow = self.slowest.min(timeout).saturating_mul(SLACK);
                now.after(timeout.max(slow))
            }),
            probe: self.probe_time(now),
        };
    }

    /// Returns the time of the next probe, or `None` before the first RTT sample.
    ///
    /// Each probe doubles the time to the next one, until there is an RTT sample. Neither progress
    /// nor a loss that only a probe shows ends the back-off: on a path that has become slower, each
    /// packet would be probed before its acknowledgment arrives, which would look like a loss of
    /// the packets after it, and there would never be a sample.
    #[inline]
    fn probe_time(&self, now: Instant) -> Option<Instant> {
        let timeout = self.rtt.timeout()?;
        let shift = u32::from(self.probes).min(MAX_PROBE_SHIFT);
        Some(now.after(timeout.saturating_mul(1 << shift)))
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the time of the next call of [`Requester::on_timeout`], if one is needed.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        // No other timer runs during the RNR wait.
        self.retry.rnr_until.or_else(|| {
            let Timers { deadline, probe } = self.retry.timers;
            [deadline, probe, self.acks.due()]
                .into_iter()
                .flatten()
                .min()
        })
    }

    /// Handles expired timers.
    ///
    /// May be called early, late or without need.
    pub fn on_timeout(&mut self, now: Instant) -> Expired {
        if let Some(until) = self.retry.rnr_until {
            if until.is_due(now) {
                self.retry.rnr_until = None;
                return Expired::RnrTimer;
            }
            return Expired::Nothing;
        }
        self.acks.expire(now);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at.is_due(now));
        if is_due(self.retry.timers.deadline) {
            // After a rewind, a NAK reports another loss.
            self.retry.loss_end = None;
            if self.take_retry() {
                self.window.halve();
                self.rewind();
            }
            return Expired::Retry;
        }
        if !is_due(self.retry.timers.probe) {
            return Expired::Nothing;
        }
        if let Some(kind) = self.expire_wait(now) {
            return Expired::Missing(kind);
        }
        self.probe.set_due(self.window.una(), 1);
        self.retry.probes = self.retry.probes.saturating_add(1);
        self.retry.timers.probe = self.retry.probe_time(now);
        self.retry.rtt.forget_sample();
        Expired::Probe
    }

    /// Consumes a retry, or fails the request if none is left.
    ///
    /// Returns false if the request failed.
    pub(super) fn take_retry(&mut self) -> bool {
        match self.retry.retries_left.checked_sub(1) {
            Some(left) => self.retry.retries_left = left,
            None => self.fail(Status::RetryExceeded),
        }
        self.is_active()
    }

    /// Starts the RNR wait for the packet at `una`, or fails the request if no RNR retry is left.
    ///
    /// Returns false if the NAK is a duplicate.
    pub(super) fn wait_rnr(&mut self, now: Instant, timer: u8) -> bool {
        if self.is_rewound() {
            return false;
        }
        if self.params.rnr_retry != RNR_RETRY_FOREVER {
            match self.retry.rnr_left.checked_sub(1) {
                Some(left) => self.retry.rnr_left = left,
                None => {
                    self.fail(Status::RnrRetryExceeded);
                    return true;
                }
            }
        }
        // The RNR NAK shows that the peer is alive. It may lack a receive request for long, and
        // packets that are lost meanwhile must not use up the retries.
        self.retry.retries_left = self.params.retry_cnt;
        self.rewind();
        self.retry.rnr_until = Some(now.after(rnr_timer_ns(timer)));
        true
    }

    /// Ignores responses to the packets sent so far as reports of a loss and as RTT samples.
    pub(super) fn note_loss(&mut self) {
        self.retry.loss_end = Some(self.window.max());
        self.retry.rtt.forget_sample();
    }

    /// Starts the timers if a response is owed and none of them is running.
    #[inline]
    pub(super) fn expect_response(&mut self, now: Instant) {
        let Timers { deadline, probe } = self.retry.timers;
        if deadline.or(probe).is_none() {
            self.retry.awaited = now;
            self.restart_timers(now);
        }
    }

    /// Accounts for progress, which is the acknowledgment of the packets from `before` to `una`.
    ///
    /// All retries are available again, the timers restart and the window widens. `has_more` is
    /// true if the peer has also received the packet at `una`.
    #[inline]
    pub(super) fn progressed(&mut self, now: Instant, before: Psn, una: Psn, has_more: bool) {
        let next = self.window.next();
        self.window.acknowledge(una);
        self.end_gap(now);
        let has_queues = self.retry.progressed(now, una, &self.params);
        self.window.widen(before, has_queues);
        self.acks.acknowledged(una, self.window.next());
        if !self.probe.continues_at(una) {
            self.retry.loss_end = None;
        }
        self.restart_timers(now);
        self.end_probe(now, next, has_more);
        // If it has more, the caller handles the response at `una`, or its loss.
        if !has_more {
            self.request_gap(now);
        }
    }

    /// Handles a response without progress: a duplicate, or one behind a missing response.
    ///
    /// Restarts the timers, because the peer sends the expected response after this one. To request
    /// it again meanwhile would cause yet another response, and add to the delay. The time for this
    /// is limited ([`BUSY`]), because the response may be a stray that no request caused.
    #[cold]
    pub(super) fn peer_is_busy(&mut self, now: Instant) {
        if self.gap.awaits_late() {
            return;
        }
        let timeout = self.params.ack_timeout.map_or(0, NonZero::get);
        let most = timeout.saturating_mul(BUSY);
        if self.retry.timers.deadline.is_some() && now.since(self.retry.awaited) < most {
            self.restart_timers(now);
        }
    }

    /// Rewinds to the packet at `una`.
    pub(super) fn rewind(&mut self) {
        self.queue.rewind();
        self.window.rewind();
        self.acks = AckRequests::new(self.window.una());
        self.explicit = Explicit::default();
        self.retry.timers = Timers::default();
        self.probe.stop();
        self.gap.stop_waiting();
        self.kept.forget_dropped();
        self.retry.rtt.forget_sample();
    }

    /// Returns whether nothing was sent since the last rewind, so that no response can be to a
    /// retransmission.
    pub(super) fn is_rewound(&self) -> bool {
        self.window.is_empty()
    }

    /// Restarts the timers if a response is owed, or stops them.
    #[inline]
    pub(super) fn restart_timers(&mut self, now: Instant) {
        let is_owed = self.acks.is_owed(self.window.una());
        self.retry.restart(now, &self.params, is_owed);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_retry))]
mod tests {
    use super::*;
    use crate::testutil::*;
    use crate::{
        requester::window::INITIAL_WINDOW,
        testutil::{
            acknowledge_at as acknowledge,
            send_at as send, //
        }, //
    };

    #[test]
    fn silent_peer_exhausts_retries() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert!(send(&mut rc, NOW) && send(&mut rc, NOW));
        let due = NOW.after(TIMEOUT_NS);
        assert_eq!(rc.next_timeout(), Some(due));
        assert_eq!(rc.on_timeout(NOW), Expired::Nothing);
        assert!(!send(&mut rc, NOW));
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        assert!(send(&mut rc, due) && send(&mut rc, due));
        assert_eq!(rc.on_timeout(due.after(TIMEOUT_NS)), Expired::Retry);
        assert!(rc.take_error());
        assert_eq!(status(&mut rc), Some(Status::RetryExceeded));
        assert_eq!(status(&mut rc), Some(Status::WrFlush));
        assert_eq!(rc.next_timeout(), None);
    }

    /// Sends a message and acknowledges it after `took` ns; returns the acknowledgment timeout in
    /// ns, and the time of the acknowledgment.
    fn respond_after(rc: &mut Half, psn: u32, now: Instant, took: u64) -> (Option<u64>, Instant) {
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(rc, now));
        let timeout = rc.next_timeout().map(|due| due.since(now));
        let now = now.after(took);
        assert_eq!(acknowledge(rc, now, psn, Syndrome::ACK), ResponseKind::Ack);
        while rc.poll_completion().is_some() {}
        (timeout, now)
    }

    #[test]
    fn slow_peer_lengthens_timeout() {
        let mut rc = requester(Transport::Rc, 1);
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
            (*time, now) = respond_after(&mut rc, psn, now, took);
            // Idle time does not count.
            now = now.after(TIMEOUT_NS * 100);
        }
        let expected = [1, 1, 2, 4, 4].map(|times| Some(times * TIMEOUT_NS));
        assert_eq!(times, expected);

        for psn in 5..1000 {
            (_, now) = respond_after(&mut rc, psn, now, 0);
        }
        let (time, _) = respond_after(&mut rc, 1000, now, 0);
        assert_eq!(time, Some(TIMEOUT_NS));
    }

    #[test]
    fn progress_resets_retry_count() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        let mut now = NOW;
        for psn in 0..2 {
            while send(&mut rc, now) {}
            now = now.after(TIMEOUT_NS);
            rc.on_timeout(now);
            while send(&mut rc, now) {}
            let kind = acknowledge(&mut rc, now, psn, Syndrome::ACK);
            assert_eq!(kind, ResponseKind::Ack);
        }
        assert!(!rc.take_error());
    }

    #[test]
    fn loss_halves_window_and_progress_widens_it() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 1000 * MTU)).is_ok());
        let mut sent = 0;
        while send(&mut rc, NOW) {
            sent += 1;
        }
        assert_eq!(sent, INITIAL_WINDOW);
        let now = NOW.after(TIMEOUT_NS);
        rc.on_timeout(now);
        let mut again = 0;
        while send(&mut rc, now) {
            again += 1;
        }
        assert_eq!(again, INITIAL_WINDOW / 2);
        let kind = acknowledge(&mut rc, now, u32::from(again) - 1, Syndrome::ACK);
        assert_eq!(kind, ResponseKind::Ack);
        let mut more = 0;
        while send(&mut rc, now) {
            more += 1;
        }
        // Every eighth of the acknowledged packets widens the window.
        assert_eq!(more, INITIAL_WINDOW / 2 * 9 / 8);
    }

    #[test]
    fn rnr_nak_is_retried_after_timer() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc, NOW));
        let rnr = Syndrome::Rnr { timer: 1 };
        assert_eq!(acknowledge(&mut rc, NOW, 0, rnr), ResponseKind::Rnr);
        assert!(!send(&mut rc, NOW));
        // The network may duplicate it.
        assert_eq!(acknowledge(&mut rc, NOW, 0, rnr), ResponseKind::Duplicate);
        let due = NOW.after(10_000);
        assert_eq!(rc.next_timeout(), Some(due));
        // The end of the RNR wait is not a response timeout.
        assert_eq!(rc.on_timeout(due), Expired::RnrTimer);
        assert!(send(&mut rc, due));
        assert_eq!(acknowledge(&mut rc, due, 0, rnr), ResponseKind::Rnr);
        assert_eq!(status(&mut rc), Some(Status::RnrRetryExceeded));
    }

    #[test]
    fn rnr_retry_7_is_unlimited() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.rnr_retry = RNR_RETRY_FOREVER);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let rnr = Syndrome::Rnr { timer: 1 };
        let mut now = NOW;
        for _ in 0..20 {
            assert!(send(&mut rc, now));
            assert_eq!(acknowledge(&mut rc, now, 0, rnr), ResponseKind::Rnr);
            now = now.after(10_000);
            rc.on_timeout(now);
        }
        assert!(rc.poll_completion().is_none());
    }

    #[test]
    fn rnr_nak_resets_retry_count() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.rnr_retry = RNR_RETRY_FOREVER);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let mut now = NOW;
        // Every other packet is lost.
        for _ in 0..20 {
            assert!(send(&mut rc, now));
            now = now.after(TIMEOUT_NS);
            assert_eq!(rc.on_timeout(now), Expired::Retry);
            assert!(send(&mut rc, now));
            let rnr = Syndrome::Rnr { timer: 1 };
            assert_eq!(acknowledge(&mut rc, now, 0, rnr), ResponseKind::Rnr);
            now = now.after(10_000);
            rc.on_timeout(now);
        }
        assert!(rc.poll_completion().is_none());
        // Two losses in a row are more than one retry.
        for _ in 0..2 {
            assert!(send(&mut rc, now));
            now = now.after(TIMEOUT_NS);
            rc.on_timeout(now);
        }
        assert_eq!(status(&mut rc), Some(Status::RetryExceeded));
    }
}
