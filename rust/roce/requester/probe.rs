// SPDX-License-Identifier: GPL-2.0

//! Loss probes, and retransmission of a run of packets (RC).
//!
//! A NAK to a later packet reports most losses. Nothing reports the loss of the last packets before
//! the requester waits (a tail loss), of a NAK, or of a retransmission, and the timeout of the
//! queue pair is many round trips long. So after about two round trips without progress, the packet
//! at `una` is sent again with the AckReq bit. This is the tail loss probe of TCP (RFC 8985), but
//! with the oldest packet instead of the last. The acknowledgment shows which packets were lost:
//!
//! - It covers only the probe: the packets after it were lost, too.
//! - It covers more: only a response was lost or late.
//!
//! Packets that a response reports as missing (gap.rs) are retransmitted in the same way, and their
//! acknowledgment is judged in the same way. Such a run may have several packets, of which the last
//! one has the AckReq bit. "Probe" stands for both below.

use core::ops::DerefMut;

use super::{
    transmit::{
        Step,
        StepKind, //
    },
    Requester,
    Slot, //
};
use crate::{
    psn::Psn,
    time::Instant, //
};

/// The probe of a send half.
#[derive(Default)]
pub(super) struct Probe {
    stage: Stage,
    /// True if [`Requester::take_loss`] has a loss to report.
    loss_found: bool,
    /// The number of probe packets sent since the last progress.
    sent: u8,
    /// The number of packets of the probe.
    run: u8,
    /// The number of these that are still to be sent.
    left: u8,
}

/// The progress of a probe.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// There is no probe.
    #[default]
    None,
    /// The packet with this PSN is to be sent next.
    Due(Psn),
    /// All packets were sent, up to this PSN, which is the one after the last packet or response.
    Sent(Psn),
}

impl Probe {
    /// Starts a probe of `packets` packets from `una` on.
    pub(super) fn set_due(&mut self, una: Psn, packets: u8) {
        self.stage = Stage::Due(una);
        self.run = packets;
        self.left = packets;
    }

    /// Returns the number of packets of the last probe.
    pub(super) fn run(&self) -> u8 {
        self.run
    }

    /// Records a loss for [`Requester::take_loss`].
    pub(super) fn set_loss_found(&mut self) {
        self.loss_found = true;
    }

    /// Returns whether a packet of a probe is to be sent.
    pub(super) fn is_due(&self) -> bool {
        matches!(self.stage, Stage::Due(_))
    }

    /// Returns whether a probe was sent whose last packet is the one before `end`.
    #[inline]
    pub(super) fn ends_at(&self, end: Psn) -> bool {
        self.stage == Stage::Sent(end)
    }

    /// Returns whether a probe was sent that covers `psn`, which must not be before `una`.
    #[inline]
    pub(super) fn continues_at(&self, psn: Psn) -> bool {
        matches!(self.stage, Stage::Sent(end) if psn.is_before(end))
    }

    /// Returns whether a probe was sent since the last progress.
    #[inline]
    pub(super) fn was_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns true if the response at `una` was lost again although a probe requested it together
    /// with the one with PSN `psn`. At most once until there is progress.
    ///
    /// The other responses to that probe are still on their way when `una` is requested once more.
    pub(super) fn take_lost_again(&mut self, psn: Psn) -> bool {
        let is_first = self.continues_at(psn) && self.sent <= 1;
        if is_first {
            // The request that follows counts as another probe.
            self.sent = 2;
        }
        is_first
    }

    /// Forgets the probe.
    pub(super) fn stop(&mut self) {
        self.stage = Stage::None;
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns true once after a probe has shown that packets were lost.
    #[inline]
    pub fn take_loss(&mut self) -> bool {
        core::mem::take(&mut self.probe.loss_found)
    }

    /// Returns the next packet of a probe, if one is due.
    #[inline]
    pub(super) fn loss_probe(&self) -> Option<Step> {
        match self.probe.stage {
            Stage::Due(psn) => self.again(psn),
            _ => None,
        }
    }

    /// Returns the retransmission of the unacknowledged packet with PSN `psn`.
    #[cold]
    fn again(&self, psn: Psn) -> Option<Step> {
        let at = self.slot_of(psn)?;
        let slot = self.queue.get(at)?;
        if !psn.is_before(self.window.next()) || self.queue.fails(at) {
            return None;
        }
        let mut step = self.step_again(at, psn, StepKind::LossProbe)?;
        if slot.is_read() {
            step.count = self.missing_responses(slot, step.index);
        }
        Some(step)
    }

    /// Returns whether the packet with PSN `psn` is the next one of the probe.
    ///
    /// A probe ends before a request with an explicit response.
    #[cold]
    pub(super) fn run_continues(&self, psn: Psn) -> bool {
        let has_ack = |step: Step| !self.has_explicit_response(&step);
        self.probe.left > 1 && self.again(psn).is_some_and(has_ack)
    }

    /// Accounts for a packet of a probe that was sent. `end` is the PSN after it.
    pub(super) fn probed(&mut self, end: Psn) {
        self.probe.sent = self.probe.sent.saturating_add(1);
        if self.run_continues(end) {
            self.probe.stage = Stage::Due(end);
            self.probe.left = self.probe.left.saturating_sub(1);
            return;
        }
        self.probe.stage = Stage::Sent(end);
        if !self.acks.is_owed(self.window.una()) {
            self.acks.requested(end);
        }
    }

    /// Sends `packets` packets from `una` on again, or requests the responses that are missing from
    /// there on, after a response has reported a loss.
    ///
    /// Restarts the timers, so that the retransmission timer consumes no retry for the same loss.
    pub(super) fn send_again(&mut self, now: Instant, packets: u8) {
        self.probe.set_due(self.window.una(), packets);
        self.restart_timers(now);
    }

    /// Handles progress up to `una` after a probe.
    ///
    /// `next` is the PSN that was to be sent next before that. `has_more` is true if the peer has
    /// also received the packet at `una`.
    #[inline]
    pub(super) fn end_probe(&mut self, now: Instant, next: Psn, has_more: bool) {
        self.probe.sent = 0;
        let una = self.window.una();
        match self.probe.stage {
            Stage::None if !self.gap.is_missing() => {}
            _ => {
                // A kept response is for a packet behind `una`, or a NAK that is handled next.
                let has_more = has_more || self.kept.first().is_some();
                self.end_recovery(now, una, next, has_more);
            }
        }
    }

    #[cold]
    fn end_recovery(&mut self, now: Instant, una: Psn, next: Psn, has_more: bool) {
        match self.probe.stage {
            // The peer sends more responses to the probe.
            Stage::Sent(end) if una.is_before(end) => return,
            // The rest of the probe is still to be sent.
            Stage::Due(psn) if self.probe.left < self.probe.run && !psn.is_before(una) => return,
            Stage::Sent(end) if una == end && una.is_before(next) && !has_more => {
                self.found_loss(now);
                return;
            }
            // The peer has received packets that were not sent again.
            Stage::Sent(end) if end.is_before(una) => self.gap.filled(true),
            Stage::None if next.is_before(una) => self.gap.filled(true),
            _ => self.gap.filled(false),
        }
        self.probe.stage = Stage::None;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_probe))]
mod tests {
    use super::*;
    use crate::testutil::*;
    use crate::{
        fifo::Fifo,
        requester::window::MIN_WINDOW,
        testutil::LONG_TIMEOUT_NS as TIMEOUT_NS, //
    };

    const DUE: Instant = NOW.after(MIN_RTO_NS);

    #[test]
    fn read_is_not_repeated_beyond_its_probe() {
        for max_rd_atomic in [1, 2] {
            let mut rc = measured(2);
            let params = rc.params;
            rc.set_params(&SendParams {
                max_rd_atomic,
                ..params
            });
            post(&mut rc, &[wr(SendOp::Read, 4 * MTU)]);
            let requested = |rc: &mut Half| {
                let reth = send(rc).and_then(|sent| Some((sent.psn.get(), sent.reth?.len)));
                reth.map(|(psn, len)| (psn, len / MTU))
            };
            assert_eq!(requested(&mut rc), Some((1, 4)));
            assert_eq!(rc.on_timeout(DUE), Expired::Probe);
            assert_eq!(requested(&mut rc), Some((1, 1)));
            // Only the probe arrives, and the response to it is lost.
            assert_eq!(rc.on_timeout(NOW.after(TIMEOUT_NS)), Expired::Retry);
            assert_eq!(requested(&mut rc), Some((1, 1)));
            assert_eq!(requested(&mut rc), None);
            let only = read_response(Opcode::RcReadResponseOnly, 1, MTU);
            assert!(respond(&mut rc, &only).place.is_some());
            rc.placed(NOW.after(TIMEOUT_NS), Ok(()));
            assert_eq!(requested(&mut rc), Some((2, 3)));
        }
    }

    #[test]
    fn oldest_packet_is_sent_again_and_requests_ack() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Write, 3 * MTU)]);
        assert_eq!(
            sent(&mut rc),
            [Some((1, false)), Some((2, false)), Some((3, true)), None]
        );
        let left = rc.retry.left();
        assert_eq!(rc.next_timeout(), Some(DUE));
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        assert_eq!(sent(&mut rc), [Some((1, true)), None, None, None]);
        assert_eq!(rc.retry.left(), left);
        // Only the acknowledgment was lost.
        acknowledge(&mut rc, 3, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(!rc.take_loss());
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn rest_is_sent_again_if_only_probe_is_acknowledged() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Write, 3 * MTU)]);
        assert!(sent(&mut rc)[2].is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert!(rc.take_loss());
        assert!(!rc.take_loss());
        assert_eq!(
            sent(&mut rc),
            [Some((2, false)), Some((3, true)), None, None]
        );
        // Half of the three packets in flight would be less.
        assert_eq!(rc.window.size(), MIN_WINDOW.into());
        acknowledge(&mut rc, 3, Syndrome::ACK);
        assert_eq!(rc.poll_completion().map(|done| done.wr_id), Some(0));
        assert!(rc.poll_completion().is_some());
    }

    #[test]
    fn partial_ack_from_before_probe_sends_nothing_again() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Write, 3 * MTU)]);
        assert!(sent(&mut rc)[2].is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(!rc.take_loss());
        // The acknowledgment of the probe itself comes later.
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
    }

    #[test]
    fn read_is_requested_again_from_missing_response_on() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU)]);
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        let probe = send(&mut rc).unwrap();
        assert_eq!((probe.psn.get(), probe.ack_req), (1, false));
        assert_eq!(probe.reth.map(|reth| reth.len), Some(MTU));
        assert_eq!(send(&mut rc), None);
        // Only the probe is answered.
        let data = read_response(Opcode::RcReadResponseOnly, 1, MTU);
        assert!(respond(&mut rc, &data).place.is_some());
        rc.placed(DUE, Ok(()));
        assert!(rc.take_loss());
        let rest = send(&mut rc).unwrap();
        assert_eq!(rest.psn.get(), 2);
        assert_eq!(rest.reth.map(|reth| reth.len), Some(2 * MTU));
    }

    #[test]
    fn late_read_response_is_no_loss() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU)]);
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        assert!(send(&mut rc).is_some());
        let data = read_response(Opcode::RcReadResponseFirst, 1, MTU);
        assert!(respond(&mut rc, &data).place.is_some());
        rc.placed(DUE, Ok(()));
        assert!(!rc.take_loss());
        assert_eq!(send(&mut rc), None);
    }

    #[test]
    fn probe_timer_backs_off_and_timeout_consumes_retry() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Send, 1)]);
        assert!(send(&mut rc).is_some());
        let left = rc.retry.left();
        let mut at = NOW;
        let mut pause = MIN_RTO_NS;
        while at.after(pause) < NOW.after(TIMEOUT_NS) {
            at = at.after(pause);
            pause *= 2;
            assert_eq!(rc.next_timeout(), Some(at));
            assert_eq!(rc.on_timeout(at), Expired::Probe);
            assert!(send(&mut rc).is_some());
        }
        assert_eq!(rc.retry.left(), left);
        assert_eq!(rc.next_timeout(), Some(NOW.after(TIMEOUT_NS)));
        assert_eq!(rc.on_timeout(NOW.after(TIMEOUT_NS)), Expired::Retry);
        assert_ne!(rc.retry.left(), left);
    }

    #[test]
    fn rtt_of_slower_path_is_measured_despite_probes() {
        let mut rc = measured(2);
        let mut now = NOW;
        let probes = [1, 2, 3, 4].map(|psn| {
            post(&mut rc, &[wr(SendOp::Send, 1)]);
            let first = rc.poll_transmit().unwrap();
            rc.transmitted(now, &first);
            now = now.after(5 * MIN_RTO_NS / 2);
            let mut probes = 0;
            while let Some(due) = rc.next_timeout().filter(|due| due.is_due(now)) {
                assert_eq!(rc.on_timeout(due), Expired::Probe);
                let probe = rc.poll_transmit().unwrap();
                rc.transmitted(due, &probe);
                probes += 1;
            }
            acknowledge_at(&mut rc, now, psn, Syndrome::ACK);
            assert!(rc.poll_completion().is_some());
            probes
        });
        assert_eq!(probes, [1, 1, 0, 0]);
    }

    #[test]
    fn rtt_of_slower_path_is_measured_despite_requests_outstanding() {
        const RTT: u64 = 10 * MIN_RTO_NS;
        let mut rc = measured(2);
        while rc.post(wr(SendOp::Send, 1)).is_ok() {}
        // The acknowledgments on their way: their times and PSNs.
        let mut storage = [None; 64];
        let mut acks = Fifo::new(&mut storage[..]);
        let mut next_ack = None;
        let (mut now, mut received) = (NOW, 0);
        let (mut done, mut sent_again) = (0, 0);
        while done < 40 {
            while let Some(transmit) = rc.poll_transmit() {
                rc.transmitted(now, &transmit);
                sent_again += u32::from(transmit.again && done >= 20);
                received = transmit.psn.get().max(received);
                assert!(acks.push((now.after(RTT), received)));
            }
            next_ack = next_ack.or_else(|| acks.pop());
            let is_first = |due: &Instant| next_ack.is_none_or(|(at, _)| !at.is_due(*due));
            if let Some(due) = rc.next_timeout().filter(is_first) {
                now = due;
                assert_eq!(rc.on_timeout(now), Expired::Probe);
            } else if let Some((at, psn)) = next_ack.take() {
                now = at;
                acknowledge_at(&mut rc, now, psn, Syndrome::ACK);
            }
            while rc.poll_completion().is_some() {
                done += 1;
            }
            while rc.post(wr(SendOp::Send, 1)).is_ok() {}
        }
        assert_eq!(sent_again, 0);
    }

    /// The acknowledgment is one of the packets before the retransmission.
    #[test]
    fn acknowledgment_does_not_end_run() {
        for (before, acknowledged) in [(1, 1), (3, 1), (3, 3)] {
            let mut rc = measured(8);
            post(&mut rc, &[wr(SendOp::Write, 8 * MTU)]);
            assert!(sent(&mut rc)[3].is_some() && sent(&mut rc)[3].is_some());
            rc.send_again(NOW, 4);
            for psn in 1..=before {
                let again = send(&mut rc).map(|sent| (sent.psn.get(), sent.ack_req));
                assert_eq!(again, Some((psn, false)));
            }
            acknowledge(&mut rc, acknowledged, Syndrome::ACK);
            for psn in before + 1..=4 {
                let again = send(&mut rc).map(|sent| (sent.psn.get(), sent.ack_req));
                assert_eq!(again, Some((psn, psn == 4)));
            }
            assert_eq!(send(&mut rc), None);
        }
    }

    #[test]
    fn run_ends_with_the_last_packet() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Write, 2 * MTU)]);
        assert!(sent(&mut rc)[1].is_some());
        rc.send_again(NOW, 4);
        let all = [Some((1, false)), Some((2, true)), None, None];
        assert_eq!(sent(&mut rc), all);
    }

    /// The peer seems to drop early packets, until the next loss shows the opposite.
    #[test]
    fn late_acknowledgment_after_rewind_does_not_show_kept_packets() {
        let mut rc = measured(8);
        rc.window.set_size(64);
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        post(&mut rc, &[wr(SendOp::Write, 30 * MTU)]);
        assert_eq!(send_all(&mut rc), 30);
        acknowledge(&mut rc, 2, nak);
        // Each time only the packets are acknowledged that were sent again: 1, 4 and 16.
        for last in [2, 6, 22] {
            assert!(send_all(&mut rc) > 0);
            acknowledge(&mut rc, last, Syndrome::ACK);
        }
        acknowledge(&mut rc, 30, Syndrome::ACK);
        post(&mut rc, &[wr(SendOp::Write, 4 * MTU)]);
        assert!(sent(&mut rc)[3].is_some());
        acknowledge(&mut rc, 32, nak);
        assert!(sent(&mut rc)[2].is_some());
    }
}
