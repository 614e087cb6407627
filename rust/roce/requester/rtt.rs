// SPDX-License-Identifier: GPL-2.0

//! The round-trip time, and the timeout of the probe timer (RC).

use super::Requester;
use crate::{
    psn::Psn,
    time::Instant, //
};

/// The minimum timeout of the probe timer, in ns.
///
/// The peer answers in a softirq, which other work can delay by that much.
pub const MIN_RTO_NS: u64 = 1_000_000;

/// The round-trip time of a connection.
///
/// A sample is the time from a packet that requests a response to that response. One sample is
/// taken at a time. A packet that was sent twice gives none, because the response may be to either
/// copy (Karn).
#[derive(Default)]
pub(super) struct Rtt {
    /// The time when the packet of the current sample was sent, if there is one.
    sent: Option<Instant>,
    /// The PSN after that packet.
    end: Psn,
    /// SRTT (RFC 6298), in ns.
    time: u32,
    /// RTTVAR (RFC 6298), in ns.
    deviation: u32,
    /// The shortest sample, in ns; `None` before the first one.
    shortest: Option<u32>,
}

impl Rtt {
    /// Accounts for a new packet that requests a response.
    ///
    /// `end` is the PSN after the packet; of a READ, after the first response.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, end: Psn) {
        if self.sent.is_none() {
            self.sent = Some(now);
            self.end = end;
        }
    }

    /// Accounts for the acknowledgment of all packets before `una`.
    ///
    /// Returns the sample in ns if it completes one.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Instant, una: Psn) -> Option<u64> {
        let sent = self.sent.filter(|_| !una.is_before(self.end))?;
        let ns = now.since(sent);
        self.sent = None;
        self.measured(ns);
        Some(ns)
    }

    /// Drops the current sample, because its packet was not sent, or is sent again.
    pub(super) fn forget_sample(&mut self) {
        self.sent = None;
    }

    /// Accounts for a sample.
    #[inline]
    fn measured(&mut self, ns: u64) {
        // Saturates: beyond four seconds the timeout of the queue pair usually expires before a
        // probe.
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        let Some(shortest) = self.shortest else {
            self.shortest = Some(ns);
            self.time = ns;
            self.deviation = ns / 2;
            return;
        };
        self.shortest = Some(shortest.min(ns));
        let error = ns.abs_diff(self.time);
        self.time = self
            .time
            .saturating_sub(self.time / 8)
            .saturating_add(ns / 8);
        self.deviation = self
            .deviation
            .saturating_sub(self.deviation / 4)
            .saturating_add(error / 4);
    }

    /// Returns whether `ns` is too short for a round trip: less than 3/4 of the shortest sample.
    pub(super) fn is_too_soon(&self, ns: u64) -> bool {
        self.shortest
            .is_some_and(|shortest| ns < three_quarters(shortest))
    }

    /// Returns whether packets spent much of a round trip of `ns` nanoseconds in queues: it took
    /// more than one and a half times the shortest one, plus 1 ms for delays of the host.
    ///
    /// The shortest one may have met a queue, too, because the first packets fill it, and other
    /// queue pairs keep it full. Therefore the factor is small.
    pub(super) fn has_queues(&self, ns: u64) -> bool {
        self.shortest.is_some_and(|shortest| {
            let expected = u64::from(shortest).saturating_mul(3) / 2;
            ns > expected.saturating_add(MIN_RTO_NS)
        })
    }

    /// Returns the shortest sample in ns, or `None` before the first one.
    #[inline]
    pub(super) fn shortest(&self) -> Option<u32> {
        self.shortest
    }

    /// Returns the time to wait for a late packet, in ns: 3/4 of the SRTT.
    pub(super) fn lateness(&self) -> u64 {
        three_quarters(self.time)
    }

    /// Returns the timeout of the probe timer in ns, or `None` before the first sample.
    #[inline]
    pub(super) fn timeout(&self) -> Option<u64> {
        let (time, deviation) = (u64::from(self.time), u64::from(self.deviation));
        let ns = time
            .saturating_mul(2)
            .saturating_add(deviation.saturating_mul(4));
        self.shortest.map(|_| ns.max(MIN_RTO_NS))
    }
}

impl<S> Requester<S> {
    /// Returns the shortest round-trip time of the connection in ns, or `None` before one was
    /// measured (RC).
    #[inline]
    pub fn shortest_rtt(&self) -> Option<u32> {
        self.retry.rtt.shortest()
    }
}

fn three_quarters(ns: u32) -> u64 {
    u64::from(ns.saturating_sub(ns / 4))
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_rtt))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Measures a round trip of `ns`.
    fn round_trip(rtt: &mut Rtt, ns: u64) {
        rtt.sent(NOW, Psn::new(1));
        rtt.acknowledged(NOW.after(ns), Psn::new(1));
    }

    #[test]
    fn timeout_follows_round_trip_time() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(), None);
        round_trip(&mut rtt, 1000);
        assert_eq!(rtt.timeout(), Some(MIN_RTO_NS));
        let slow = 4 * MIN_RTO_NS;
        round_trip(&mut rtt, slow);
        assert!(rtt.timeout() > Some(2 * MIN_RTO_NS));
        for _ in 0..100 {
            round_trip(&mut rtt, slow);
        }
        assert!(rtt.timeout() > Some(2 * slow * 9 / 10) && rtt.timeout() < Some(3 * slow));
    }

    #[test]
    fn round_trip_longer_than_three_halves_of_the_shortest_has_queues() {
        let mut rtt = Rtt::default();
        for ns in [9 * MIN_RTO_NS, 4 * MIN_RTO_NS, 5 * MIN_RTO_NS] {
            round_trip(&mut rtt, ns);
        }
        assert!(!rtt.has_queues(7 * MIN_RTO_NS));
        assert!(rtt.has_queues(7 * MIN_RTO_NS + 1));
    }

    #[test]
    fn one_packet_is_measured_at_a_time() {
        let mut rtt = Rtt::default();
        rtt.sent(NOW, Psn::new(2));
        rtt.sent(NOW.after(7 * MIN_RTO_NS), Psn::new(3));
        rtt.acknowledged(NOW, Psn::new(1));
        assert_eq!(rtt.timeout(), None);
        let sample = rtt.acknowledged(NOW.after(8 * MIN_RTO_NS), Psn::new(3));
        assert_eq!(sample, Some(8 * MIN_RTO_NS));
        assert_eq!(rtt.timeout(), Some(32 * MIN_RTO_NS));
        // Each packet gives one sample.
        let again = rtt.acknowledged(NOW.after(9 * MIN_RTO_NS), Psn::new(4));
        assert_eq!(again, None);
    }

    #[test]
    fn packet_sent_twice_is_not_measured() {
        let mut rtt = Rtt::default();
        rtt.sent(NOW, Psn::new(2));
        rtt.forget_sample();
        rtt.acknowledged(NOW, Psn::new(2));
        assert_eq!((rtt.timeout(), rtt.shortest()), (None, None));
    }

    #[test]
    fn new_sample_counts_for_an_eighth() {
        let mut rtt = Rtt::default();
        round_trip(&mut rtt, 8 * MIN_RTO_NS);
        round_trip(&mut rtt, 16 * MIN_RTO_NS);
        assert_eq!(rtt.shortest(), Some(8_000_000));
        // Twice the SRTT of 9, and four times the RTTVAR of 5.
        assert_eq!(rtt.timeout(), Some(38 * MIN_RTO_NS));
    }

    /// Sends a message, and returns the time of the probe.
    fn probe_time(rc: &mut Half) -> Option<u64> {
        post(rc, &[wr(SendOp::Send, 0)]);
        assert!(send(rc).is_some());
        rc.next_timeout().map(|due| due.since(NOW))
    }

    #[test]
    fn sample_ends_back_off_of_probes() {
        let mut rc = measured(8);
        assert_eq!(probe_time(&mut rc), Some(MIN_RTO_NS));
        assert_eq!(rc.on_timeout(NOW.after(MIN_RTO_NS)), Expired::Probe);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert_eq!(probe_time(&mut rc), Some(2 * MIN_RTO_NS));
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert_eq!(probe_time(&mut rc), Some(MIN_RTO_NS));
    }

    #[test]
    fn loss_found_by_probe_keeps_back_off() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert_eq!(send_all(&mut rc), 2);
        let due = NOW.after(MIN_RTO_NS);
        assert_eq!(rc.on_timeout(due), Expired::Probe);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert!(rc.take_loss());
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.next_timeout(), Some(NOW.after(2 * MIN_RTO_NS)));
    }

    #[test]
    fn window_does_not_grow_while_round_trips_are_long() {
        let mut rc = measured(8);
        assert!(probe_time(&mut rc).is_some());
        let before = rc.window.size();
        acknowledge_at(&mut rc, NOW.after(2 * MIN_RTO_NS), 1, Syndrome::ACK);
        assert_eq!(rc.window.size(), before);
    }

    #[test]
    fn packets_before_a_loss_are_not_measured() {
        let late = NOW.after(LONG_TIMEOUT_NS);
        for is_reported in [false, true] {
            let mut rc = measured(8);
            post(&mut rc, &[wr(SendOp::Send, 0); 2]);
            assert_eq!(send_all(&mut rc), 2);
            if is_reported {
                let nak = Syndrome::Nak(NakCode::PsnSequence);
                assert_eq!(acknowledge(&mut rc, 1, nak), ResponseKind::NakSequence);
            } else {
                assert_eq!(rc.on_timeout(late), Expired::Retry);
            }
            assert!(send_all(&mut rc) > 0);
            acknowledge_at(&mut rc, late, 2, Syndrome::ACK);
            assert_eq!(probe_time(&mut rc), Some(MIN_RTO_NS));
        }
    }
}
