// SPDX-License-Identifier: GPL-2.0

//! Probes for lost responses (RC).
//!
//! Most losses are reported by a NAK to a later packet. Nothing reports the loss of the last
//! packets before the requester waits, of a NAK, or of a packet that was sent again, and the
//! timeout of the queue pair is many round trips long. So after about two round trips without a
//! response the packet that waits longest is sent again, and the response to it shows what was
//! lost.

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
    /// The number of probes since the last progress.
    sent: u8,
    /// True if the peer has reported the packet at `una` as missing.
    is_missing: bool,
    /// True if the peer seems to drop packets that arrive before a missing one.
    peer_drops_early: bool,
}

/// The packet at `una`, sent once more because the response seems to be lost.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// There is none.
    #[default]
    None,
    /// It is to be sent.
    Due,
    /// It was sent; the PSN after it.
    Sent(Psn),
}

impl Probe {
    /// Has a probe sent.
    pub(super) fn set_due(&mut self) {
        self.stage = Stage::Due;
    }

    /// Returns whether a probe is to be sent.
    pub(super) fn is_due(&self) -> bool {
        self.stage == Stage::Due
    }

    /// Returns whether a probe was sent, before `end`.
    #[inline]
    pub(super) fn ends_at(&self, end: Psn) -> bool {
        self.stage == Stage::Sent(end)
    }

    /// Returns whether a probe was sent that also requests the response with PSN `psn`, which is
    /// not before `una`.
    #[inline]
    pub(super) fn goes_on_at(&self, psn: Psn) -> bool {
        matches!(self.stage, Stage::Sent(end) if psn.is_before(end))
    }

    /// Returns whether a probe was sent since the last progress.
    #[inline]
    pub(super) fn was_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns whether the response to `psn`, behind the missing one at `una`, shows for the first
    /// time that this one was lost again, while others were requested with it.
    pub(super) fn is_lost_again(&self, psn: Psn) -> bool {
        self.goes_on_at(psn) && self.sent <= 1
    }

    /// Forgets a probe.
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

    /// Returns the probe for a lost response, if one is due.
    ///
    /// The peer responds with what it has executed. If that is only the probe, everything after it
    /// is sent again; otherwise only the response was lost, or late, and nothing is.
    #[inline]
    pub(super) fn loss_probe(&self) -> Option<Step> {
        if self.probe.stage == Stage::Due {
            self.oldest_again()
        } else {
            None
        }
    }

    /// Returns the oldest unacknowledged packet again.
    #[cold]
    fn oldest_again(&self) -> Option<Step> {
        let psn = self.window.una();
        let is_local = |at: &usize| {
            self.queue
                .get(*at)
                .is_some_and(|slot| slot.wr.op.is_local())
        };
        let at = { self.queue.done()..self.queue.begun() }.find(|at| !is_local(at))?;
        let slot = self.queue.get(at)?;
        if !psn.is_before(self.window.next()) || self.queue.fails(at) {
            return None;
        }
        let index = slot.first_psn.forward(psn);
        let count = match slot.is_read() {
            true => self.missing_responses(slot, index),
            false => 1,
        };
        Some(Step {
            slot: at,
            psn,
            index,
            packets: slot.packets(),
            count,
            kind: StepKind::LossProbe,
        })
    }

    /// Accounts for a probe that was sent, before `end`.
    pub(super) fn probed(&mut self, end: Psn) {
        self.probe.stage = Stage::Sent(end);
        self.probe.sent = self.probe.sent.saturating_add(1);
        if !self.acks.is_owed(self.window.una()) {
            self.acks.requested(end);
        }
    }

    /// Sends only the packet at `una` again, which the peer has reported as missing, if the peer
    /// seems to keep those after it. Otherwise rewinds; also if more than one packet of what was in
    /// flight is missing, because each one alone would take a round trip.
    #[cold]
    pub(super) fn fill_gap(&mut self, now: Instant) {
        self.probe.is_missing = true;
        let is_first = self.window.halve_once();
        let is_message = self
            .queue
            .get(self.queue.done())
            .is_some_and(|slot| !slot.wr.op.is_local() && !slot.has_explicit_response());
        if is_first && is_message && !self.probe.peer_drops_early {
            self.repeat_missing(now);
        } else {
            if !is_first {
                self.window.halve();
            }
            self.rewind();
        }
    }

    /// Sends only the packet at `una` again, or requests only the responses that are missing from
    /// there on. The timer must not take a retry for the same loss.
    pub(super) fn repeat_missing(&mut self, now: Instant) {
        self.probe.set_due();
        self.restart_deadline(now);
    }

    /// Rewinds if the peer has executed nothing but the probe.
    ///
    /// `next` was to be sent next before the acknowledgment, and `has_more` tells that the peer has
    /// also executed the packet at `una`. So do kept responses.
    #[inline]
    pub(super) fn end_probe(&mut self, next: Psn, has_more: bool) {
        let is_missing = core::mem::take(&mut self.probe.is_missing);
        self.probe.sent = 0;
        let una = self.window.una();
        let has_more = has_more || self.kept.first().is_some();
        match core::mem::take(&mut self.probe.stage) {
            // There are more responses to come.
            stage @ Stage::Sent(end) if una.is_before(end) => self.probe.stage = stage,
            Stage::Sent(end) if una == end && una.is_before(next) && !has_more => {
                self.probe.loss_found = true;
                self.probe.peer_drops_early |= is_missing;
                if !is_missing {
                    self.window.halve();
                }
                self.rewind();
                self.probe_was_due();
            }
            // It has executed packets that were not sent again.
            Stage::None if is_missing && next.is_before(una) => self.probe.peer_drops_early = false,
            _ => {}
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_requester_probe))]
mod tests {
    use super::*;
    use crate::{
        opcode::{
            Opcode,
            Transport, //
        },
        requester::{
            window::MIN_WINDOW,
            Expired,
            ResponseKind,
            SendParams,
            MIN_RTO_NS, //
        },
        testutil::{
            acknowledge,
            post,
            read_response,
            requester,
            respond,
            send,
            slots,
            wr,
            Frame,
            MTU,
            NOW, //
        },
        wire::{
            NakCode,
            Syndrome, //
        },
        wr::SendOp, //
    };
    use core::num::NonZero;

    const TIMEOUT_NS: u64 = 64 * MIN_RTO_NS;

    const DUE: Instant = NOW.after(MIN_RTO_NS);

    /// Makes a requester that knows its round-trip time, which is 0, and has sent PSN 0.
    fn measured(slots: &mut [Slot]) -> Requester<&mut [Slot]> {
        let mut rc = requester(Transport::Rc, slots);
        let params = rc.params;
        rc.set_params(&SendParams {
            ack_timeout: NonZero::new(TIMEOUT_NS),
            ..params
        });
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.next_timeout(), Some(NOW.after(TIMEOUT_NS)));
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
        rc
    }

    /// Sends all packets, and returns their PSNs and whether they request an acknowledgment.
    fn sent(rc: &mut Requester<&mut [Slot]>) -> [Option<(u32, bool)>; 4] {
        [(); 4].map(|()| send(rc).map(|sent| (sent.psn.get(), sent.ack_req)))
    }

    #[test]
    fn read_is_not_repeated_beyond_its_probe() {
        let mut slots = slots::<2>();
        let mut rc = measured(&mut slots);
        post(&mut rc, &[wr(SendOp::Read, 4 * MTU)]);
        let requested = |rc: &mut Requester<&mut [Slot]>| {
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

    #[test]
    fn oldest_packet_is_sent_again_and_requests_ack() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
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
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
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
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        post(&mut rc, &[wr(SendOp::Write, 3 * MTU)]);
        assert!(sent(&mut rc)[2].is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(!rc.take_loss());
        // Its own acknowledgment comes late.
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
    }

    #[test]
    fn read_is_requested_again_from_missing_response_on() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU)]);
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        let probe = send(&mut rc).unwrap();
        assert_eq!((probe.psn.get(), probe.ack_req), (1, false));
        assert_eq!(probe.reth.map(|reth| reth.len), Some(MTU));
        assert_eq!(send(&mut rc), None);
        // It is answered, and nothing else.
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
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
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

    /// Sends a WRITE of four packets from PSN `first` on, and reports the second one as missing.
    fn lose_second(rc: &mut Requester<&mut [Slot]>, first: u32) {
        post(rc, &[wr(SendOp::Write, 4 * MTU)]);
        assert!(sent(rc)[3].is_some());
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        let kind = acknowledge(rc, first + 1, nak);
        assert_eq!(kind, ResponseKind::NakSequence);
    }

    #[test]
    fn missing_packet_is_sent_again_alone() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        lose_second(&mut rc, 1);
        assert_eq!(sent(&mut rc), [Some((2, true)), None, None, None]);
        // The peer has kept the others.
        acknowledge(&mut rc, 4, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(!rc.take_loss());
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn peer_that_drops_early_packets_gets_all_again() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        lose_second(&mut rc, 1);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 2, Syndrome::ACK);
        assert!(rc.take_loss());
        // The peer reports what it dropped, which is on its way again.
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        let rest = [Some((3, false)), Some((4, true)), None, None];
        assert_eq!(sent(&mut rc), rest);
        assert_eq!(acknowledge(&mut rc, 3, nak), ResponseKind::Duplicate);
        assert_eq!(sent(&mut rc), [None; 4]);
        acknowledge(&mut rc, 4, Syndrome::ACK);
        // From now on, everything is sent again at once.
        lose_second(&mut rc, 5);
        let rest = [Some((6, false)), Some((7, true)), Some((8, true)), None];
        assert_eq!(sent(&mut rc), rest);
        acknowledge(&mut rc, 8, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn peer_that_keeps_early_packets_is_noticed() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        rc.probe.peer_drops_early = true;
        lose_second(&mut rc, 1);
        assert_eq!(send(&mut rc).map(|sent| sent.psn.get()), Some(2));
        // It cannot have executed what was dropped and not sent again.
        acknowledge(&mut rc, 4, Syndrome::ACK);
        lose_second(&mut rc, 5);
        assert_eq!(sent(&mut rc), [Some((6, true)), None, None, None]);
    }

    #[test]
    fn late_ack_after_timeout_tells_nothing_of_peer() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        rc.probe.peer_drops_early = true;
        post(&mut rc, &[wr(SendOp::Write, 4 * MTU)]);
        assert!(sent(&mut rc)[3].is_some());
        assert_eq!(rc.on_timeout(NOW.after(TIMEOUT_NS)), Expired::Retry);
        assert!(send(&mut rc).is_some());
        acknowledge(&mut rc, 4, Syndrome::ACK);
        assert!(rc.probe.peer_drops_early);
    }

    #[test]
    fn missing_read_request_is_sent_again_with_all_after_it() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        post(&mut rc, &[wr(SendOp::Read, MTU), wr(SendOp::Send, 1)]);
        assert!(sent(&mut rc)[1].is_some());
        acknowledge(&mut rc, 1, Syndrome::Nak(NakCode::PsnSequence));
        let again = [Some((1, false)), Some((2, true)), None, None];
        assert_eq!(sent(&mut rc), again);
    }

    #[test]
    fn pause_doubles_and_timeout_consumes_retry() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
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
    fn slower_path_is_measured_although_probed() {
        let mut slots = slots::<2>();
        let mut rc = measured(&mut slots);
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
            rc.on_response(now, &Frame::ack(psn, Syndrome::ACK).packet());
            assert!(rc.poll_completion().is_some());
            probes
        });
        assert_eq!(probes, [1, 1, 0, 0]);
    }

    #[test]
    fn nothing_is_probed_during_rnr_wait() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        post(&mut rc, &[wr(SendOp::Send, 1)]);
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.on_timeout(DUE), Expired::Probe);
        acknowledge(&mut rc, 1, Syndrome::Rnr { timer: 1 });
        assert_eq!(sent(&mut rc), [None; 4]);
    }

    /// The RNR NAK shows that the peer has what was not sent again.
    #[test]
    fn rnr_nak_after_the_missing_packet_starts_the_wait() {
        let mut slots = slots::<8>();
        let mut rc = measured(&mut slots);
        lose_second(&mut rc, 1);
        assert!(send(&mut rc).is_some());
        let rnr = Syndrome::Rnr { timer: 1 };
        assert_eq!(acknowledge(&mut rc, 3, rnr), ResponseKind::Rnr);
        assert!(!rc.take_loss());
        assert_eq!(sent(&mut rc), [None; 4]);
    }

    #[test]
    fn missing_packet_has_its_own_timeout() {
        const LATE: Instant = NOW.after(TIMEOUT_NS - 1);

        let mut slots = slots::<8>();
        let mut rc = requester(Transport::Rc, &mut slots);
        let params = rc.params;
        rc.set_params(&SendParams {
            ack_timeout: NonZero::new(TIMEOUT_NS),
            retry_cnt: 1,
            ..params
        });
        post(&mut rc, &[wr(SendOp::Send, 0), wr(SendOp::Send, 0)]);
        assert!(send(&mut rc).is_some() && send(&mut rc).is_some());
        let nak = Frame::ack(0, Syndrome::Nak(NakCode::PsnSequence));
        let outcome = rc.on_response(LATE, &nak.packet()).outcome;
        assert_eq!(outcome, ResponseKind::NakSequence);
        let again = rc.poll_transmit().unwrap();
        rc.transmitted(LATE, &again);
        assert_eq!(rc.on_timeout(NOW.after(TIMEOUT_NS)), Expired::Nothing);
        assert_eq!(rc.next_timeout(), Some(LATE.after(TIMEOUT_NS)));
    }
}
