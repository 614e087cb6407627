// SPDX-License-Identifier: GPL-2.0

//! Losses that a response of the peer reports (RC).
//!
//! A sequence NAK reports that the packet with PSN `una`, the oldest unacknowledged one, is
//! missing. Likewise, a response behind a missing explicit response reports that the response with
//! PSN `una` is missing. The requester retransmits once per loss: see `Retry::loss_end`. The table
//! in retry.rs lists the other signs of a loss.
//!
//! # Retransmission of a missing packet
//!
//! The peer may keep the packets that arrive before a missing one, or drop them, as C rxe does
//! (IBTA 9.7.4.1.1). The requester learns this from the acknowledgment of a retransmission:
//!
//! - It covers packets that were not retransmitted: the peer has kept them ([`Peer::Keeps`]).
//! - It covers only the retransmission: the next packet is missing, too. If the requester rewinds
//!   because of that, [`Peer::Unknown`] becomes [`Peer::Drops`], and [`Peer::Keeps`] becomes
//!   [`Peer::Unknown`].
//!
//! | peer                | first loss of a window | each further loss of it         |
//! |---------------------|------------------------|---------------------------------|
//! | [`Peer::Unknown`]   | the missing packet     | 4 packets, then 16, then rewind |
//! | [`Peer::Keeps`]     | the missing packet     | 4 packets, then 16, then rewind |
//! | [`Peer::Drops`]     | rewind                 | rewind                          |
//!
//! A window is all packets in flight when its first loss was reported. To rewind is to retransmit
//! all packets from `una` on (go-back-N). The requester also rewinds if the missing packet is a
//! request with an explicit response.
//!
//! # Late packets
//!
//! A packet may be missing only because later ones have overtaken it. Then it is acknowledged
//! sooner after the report than its retransmission could be: within three quarters of the shortest
//! round trip. The requester then undoes the reduction of the window. From then on it waits for
//! three quarters of the SRTT before it retransmits (like the reordering window of RACK, RFC 8985),
//! until one wait ends without progress. If the network marks packets, it does neither, because the
//! round trip may have become shorter.
//!
//! ```text
//!                acknowledged too soon
//!   Unexpected ------------------------> Expected <---------+
//!       ^                                   |               |
//!       |                                   | loss          | progress,
//!       |                                   | reported      | rewind
//!       |  probe timer expires:             v               |
//!       +------------------------- Packet or Response ------+
//!          retransmission
//! ```

use core::ops::DerefMut;

use super::{
    window::WindowSize,
    Requester,
    ResponseKind,
    Slot, //
};
use crate::time::Instant;

/// The most packets that are retransmitted for one report of a missing one.
const MOST_RUN: u8 = 16;

/// The recovery from reported losses.
#[derive(Default)]
pub(super) struct Gap {
    /// The time of the last report and the size of the window before it, if the window was halved
    /// for it. The next acknowledgment may undo that.
    undo: Option<(Instant, WindowSize)>,
    late: Late,
    /// True if the packet at `una` is known to be missing at the peer. False for a missing
    /// response.
    is_missing: bool,
    peer: Peer,
}

/// The wait for a missing packet or response that may be late, not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Late {
    /// Nothing was late since a wait last ended without progress.
    #[default]
    Unexpected,
    /// A packet or a response was late: the next loss that is reported starts a wait.
    Expected,
    /// The requester waits for the packet at `una`.
    Packet,
    /// The requester waits for the response to the packet at `una`.
    Response,
}

/// The treatment of packets that arrive at the peer before a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Peer {
    /// No acknowledgment has shown it.
    #[default]
    Unknown,
    /// The peer keeps them.
    Keeps,
    /// The peer drops them.
    Drops,
}

impl Gap {
    /// Returns whether the packet at `una` is known to be missing at the peer.
    #[inline]
    pub(super) fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Returns whether the requester waits for a late packet or response.
    pub(super) fn awaits_late(&self) -> bool {
        matches!(self.late, Late::Packet | Late::Response)
    }

    /// Ends the wait without taking the packet or response for lost.
    #[inline]
    pub(super) fn stop_waiting(&mut self) {
        if self.awaits_late() {
            self.late = Late::Expected;
        }
    }

    /// Accounts for the acknowledgment of retransmitted packets. `more` is true if it also covers
    /// packets that were not retransmitted.
    pub(super) fn filled(&mut self, more: bool) {
        if self.is_missing && more {
            self.peer = Peer::Keeps;
        }
        self.is_missing = false;
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Retransmits the packet at `una` if `is_packet`, or requests the response to it again.
    /// Consumes a retry.
    pub(super) fn retry_gap(&mut self, now: Instant, is_packet: bool) {
        self.note_loss();
        if self.take_retry() {
            if is_packet {
                self.fill_gap(now);
            } else {
                self.halve_window_once(now);
                self.send_again(now, 1);
            }
        }
    }

    /// Starts to wait for the packet at `una` (if `is_packet`) or the response to it, if late ones
    /// are expected. Returns whether the requester waits now.
    ///
    /// It does not wait for a packet if the peer has dropped the packets that overtook it.
    pub(super) fn start_wait(&mut self, now: Instant, is_packet: bool) -> bool {
        let is_futile = is_packet && self.gap.peer == Peer::Drops;
        if self.gap.late == Late::Expected && !is_futile {
            self.gap.late = match is_packet {
                true => Late::Packet,
                false => Late::Response,
            };
            self.retry.wait_for_late(now);
        }
        self.gap.awaits_late()
    }

    /// Handles the expiry of the wait for a late packet or response, which was lost after all:
    /// retransmits it, or requests it again.
    ///
    /// Returns the kind of the response that reported the loss, or `None` if there was no wait.
    pub(super) fn expire_wait(&mut self, now: Instant) -> Option<ResponseKind> {
        let kind = match self.gap.late {
            Late::Unexpected | Late::Expected => return None,
            Late::Packet => ResponseKind::NakSequence,
            Late::Response => ResponseKind::Gap,
        };
        self.gap.late = Late::Unexpected;
        self.retry_gap(now, kind == ResponseKind::NakSequence);
        Some(kind)
    }

    /// Retransmits one or a few packets from `una` on, or rewinds if the peer seems to drop those
    /// after them.
    #[cold]
    fn fill_gap(&mut self, now: Instant) {
        self.gap.is_missing = true;
        let is_first = self.halve_window_once(now);
        match self.next_run(is_first) {
            Some(packets) => self.send_again(now, packets),
            None => {
                if !is_first {
                    self.window.halve();
                }
                self.rewind();
            }
        }
    }

    /// Halves the window once for all packets in flight, because the packet at `una` or the
    /// response to it is missing. Returns whether it did.
    pub(super) fn halve_window_once(&mut self, now: Instant) -> bool {
        let size = self.window.saved_size();
        let is_first = self.window.halve_once();
        self.gap.undo = is_first.then_some((now, size));
        is_first
    }

    /// Handles progress: nothing is missing before the new `una`.
    #[inline]
    pub(super) fn end_gap(&mut self, now: Instant) {
        self.gap.stop_waiting();
        if let Some((noticed, size)) = self.gap.undo.take() {
            self.undo_if_late(now.since(noticed), size);
        }
    }

    /// Restores the window to `before` if progress came `ns` after the report of a loss, too soon
    /// to be due to a retransmission.
    #[cold]
    fn undo_if_late(&mut self, ns: u64, before: WindowSize) {
        // An acknowledgment of just the retransmission is the response to it: the round trip has
        // become shorter. After marks of congestion it may have, too, because queues drain.
        let may_be_shorter = self.probe.ends_at(self.window.una()) || self.window.is_marked();
        if !may_be_shorter && self.retry.rtt.is_too_soon(ns) {
            self.window.restore_size(before);
            self.gap.late = Late::Expected;
        }
    }

    /// Returns the number of packets to retransmit because the one at `una` is missing, or `None`
    /// to rewind.
    ///
    /// `is_first` is true for the first loss of a window. Each further one is answered with four
    /// times as many packets, because the packets of a train are lost together, and the peer
    /// reports only one of them per round trip.
    fn next_run(&self, is_first: bool) -> Option<u8> {
        let oldest = self.queue.get(self.queue.done())?;
        if !oldest.carries_data() {
            return None;
        }
        match self.probe.run() {
            _ if self.gap.peer == Peer::Drops => None,
            _ if is_first => Some(1),
            MOST_RUN.. => None,
            run => Some(run.max(1).saturating_mul(4)),
        }
    }

    /// Handles a sign that the packet at `una` is missing, too: the acknowledgment of a
    /// retransmission ends there.
    #[cold]
    pub(super) fn found_loss(&mut self, now: Instant) {
        self.probe.set_loss_found();
        self.note_loss();
        if self.gap.is_missing {
            // The loss was reported, so the probe timer was not too short.
            self.retry.end_back_off();
            if let Some(packets) = self.next_run(false) {
                self.send_again(now, packets);
                return;
            }
            self.gap.is_missing = false;
            self.gap.peer = match self.gap.peer {
                // The peer keeps only a few packets, or many were lost.
                Peer::Keeps => Peer::Unknown,
                Peer::Unknown | Peer::Drops => Peer::Drops,
            };
        } else {
            // The acknowledgment may be that of the original packet, if the path has become slower.
            // So the back-off goes on until there is a sample.
            self.window.halve();
        }
        self.rewind();
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_gap))]
mod tests {
    use super::*;
    use crate::testutil::LONG_TIMEOUT_NS as TIMEOUT_NS;
    use crate::testutil::*;
    use core::num::NonZero;

    /// Sends a WRITE of four packets from PSN `first` on; a NAK reports the second one as missing.
    fn lose_second(rc: &mut Half, first: u32) {
        post(rc, &[wr(SendOp::Write, 4 * MTU)]);
        assert!(sent(rc)[3].is_some());
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        let kind = acknowledge(rc, first + 1, nak);
        assert_eq!(kind, ResponseKind::NakSequence);
    }

    #[test]
    fn missing_packet_is_sent_again_alone() {
        let mut rc = measured(8);
        lose_second(&mut rc, 1);
        assert_eq!(sent(&mut rc), [Some((2, true)), None, None, None]);
        // The peer has kept the others.
        acknowledge(&mut rc, 4, Syndrome::ACK);
        assert_eq!(rc.gap.peer, Peer::Keeps);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(!rc.take_loss());
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn lost_train_is_sent_again_in_longer_and_longer_parts() {
        for (before, after) in [(Peer::Unknown, Peer::Drops), (Peer::Keeps, Peer::Unknown)] {
            let mut rc = measured(8);
            rc.window.set_size(64);
            rc.gap.peer = before;
            post(&mut rc, &[wr(SendOp::Write, 30 * MTU)]);
            assert_eq!(send_all(&mut rc), 30);
            let nak = Syndrome::Nak(NakCode::PsnSequence);
            let mut missing = 2;
            acknowledge(&mut rc, missing, nak);
            for packets in [1, 4, 16] {
                for psn in missing..missing + packets {
                    let is_last = psn + 1 == missing + packets;
                    let again = send(&mut rc).map(|sent| (sent.psn.get(), sent.ack_req));
                    assert_eq!(again, Some((psn, is_last)));
                }
                assert_eq!(send(&mut rc), None);
                // The peer acknowledges these, and repeats its NAK for the next one.
                missing += packets;
                acknowledge(&mut rc, missing - 1, Syndrome::ACK);
                assert_eq!(acknowledge(&mut rc, missing, nak), ResponseKind::Duplicate);
            }
            // More are missing than a train has: everything from there on is sent again.
            assert_eq!(send_all(&mut rc), 8);
            assert_eq!(rc.gap.peer, after);
        }
    }

    /// Even if the packet is late, those that have overtaken it are to be sent again.
    #[test]
    fn peer_that_drops_early_packets_gets_all_again() {
        for late in [Late::Unexpected, Late::Expected] {
            let mut rc = measured(8);
            rc.gap.late = late;
            rc.gap.peer = Peer::Drops;
            lose_second(&mut rc, 1);
            let rest = [Some((2, false)), Some((3, true)), Some((4, true)), None];
            assert_eq!(sent(&mut rc), rest);
            acknowledge(&mut rc, 4, Syndrome::ACK);
            assert_eq!(rc.gap.peer, Peer::Drops);
            assert_eq!(rc.next_timeout(), None);
        }
    }

    #[test]
    fn peer_that_keeps_early_packets_is_noticed() {
        let mut rc = measured(8);
        rc.gap.peer = Peer::Drops;
        lose_second(&mut rc, 1);
        assert_eq!(send(&mut rc).map(|sent| sent.psn.get()), Some(2));
        // A peer that drops packets could not have executed those that were not sent again.
        acknowledge(&mut rc, 4, Syndrome::ACK);
        lose_second(&mut rc, 5);
        assert_eq!(sent(&mut rc), [Some((6, true)), None, None, None]);
    }

    #[test]
    fn late_or_lost_ack_does_not_show_that_peer_keeps_packets() {
        for expired in [Expired::Retry, Expired::Probe] {
            let mut rc = measured(8);
            lose_second(&mut rc, 1);
            assert!(send(&mut rc).is_some());
            acknowledge(&mut rc, 4, Syndrome::ACK);
            rc.gap.peer = Peer::Drops;
            post(&mut rc, &[wr(SendOp::Write, 4 * MTU)]);
            assert!(sent(&mut rc)[3].is_some());
            let due = match expired {
                Expired::Retry => NOW.after(TIMEOUT_NS),
                _ => rc.next_timeout().unwrap(),
            };
            assert_eq!(rc.on_timeout(due), expired);
            assert!(send(&mut rc).is_some());
            acknowledge(&mut rc, 8, Syndrome::ACK);
            assert_eq!(rc.gap.peer, Peer::Drops);
        }
    }

    #[test]
    fn missing_read_request_is_sent_again_with_all_after_it() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Read, MTU), wr(SendOp::Send, 1)]);
        assert!(sent(&mut rc)[1].is_some());
        acknowledge(&mut rc, 1, Syndrome::Nak(NakCode::PsnSequence));
        let again = [Some((1, false)), Some((2, true)), None, None];
        assert_eq!(sent(&mut rc), again);
    }

    /// The RNR NAK shows that the peer has kept the packets that were not sent again.
    #[test]
    fn rnr_nak_after_the_missing_packet_starts_the_wait() {
        let mut rc = measured(8);
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

        let mut rc = requester(Transport::Rc, 8);
        adjust(&mut rc, |params| {
            params.ack_timeout = NonZero::new(TIMEOUT_NS);
            params.retry_cnt = 1;
        });
        post(&mut rc, &[wr(SendOp::Send, 0), wr(SendOp::Send, 0)]);
        assert!(send(&mut rc).is_some() && send(&mut rc).is_some());
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        let kind = acknowledge_at(&mut rc, LATE, 0, nak);
        assert_eq!(kind, ResponseKind::NakSequence);
        let again = rc.poll_transmit().unwrap();
        rc.transmitted(LATE, &again);
        assert_eq!(rc.on_timeout(NOW.after(TIMEOUT_NS)), Expired::Nothing);
        assert_eq!(rc.next_timeout(), Some(LATE.after(TIMEOUT_NS)));
    }

    const RTT_NS: u64 = 4_000_000;

    const LATER: Instant = NOW.after(RTT_NS);

    /// Sends a WRITE of four packets from PSN 1 on; at [`LATER`], a NAK reports PSN 2 as missing.
    fn overtaken(rc: &mut Half) -> ResponseKind {
        post(rc, &[wr(SendOp::Write, 4 * MTU)]);
        assert!(sent(rc)[3].is_some());
        acknowledge_at(rc, LATER, 2, Syndrome::Nak(NakCode::PsnSequence))
    }

    /// Makes a requester that has measured [`RTT_NS`].
    fn far() -> Half {
        let mut rc = requester(Transport::Rc, 8);
        adjust(&mut rc, |params| {
            params.ack_timeout = NonZero::new(TIMEOUT_NS)
        });
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert!(send(&mut rc).is_some());
        acknowledge_at(&mut rc, LATER, 0, Syndrome::ACK);
        rc
    }

    #[test]
    fn window_is_restored_if_packet_was_late() {
        for (ns, is_restored) in [(RTT_NS / 4 * 3 - 1, true), (RTT_NS / 4 * 3, false)] {
            let mut rc = far();
            let before = rc.window.size();
            assert_eq!(overtaken(&mut rc), ResponseKind::NakSequence);
            assert!(rc.window.size() < before);
            acknowledge_at(&mut rc, LATER.after(ns), 4, Syndrome::ACK);
            let (after, late) = match is_restored {
                true => (before..=before + 4, Late::Expected),
                false => (0..=before - 1, Late::Unexpected),
            };
            assert!(after.contains(&rc.window.size()));
            assert_eq!(rc.gap.late, late);
        }
    }

    #[test]
    fn late_packet_is_awaited() {
        let mut rc = far();
        rc.gap.late = Late::Expected;
        let before = rc.window.size();
        assert_eq!(overtaken(&mut rc), ResponseKind::Duplicate);
        assert_eq!(sent(&mut rc), [None; 4]);
        let due = LATER.after(RTT_NS / 4 * 3);
        assert_eq!(rc.next_timeout(), Some(due));
        acknowledge_at(&mut rc, due, 4, Syndrome::ACK);
        assert_eq!(sent(&mut rc), [None; 4]);
        assert!(rc.window.size() >= before && rc.gap.late == Late::Expected);
    }

    #[test]
    fn packet_that_does_not_arrive_is_sent_again() {
        let mut rc = far();
        rc.gap.late = Late::Expected;
        assert_eq!(overtaken(&mut rc), ResponseKind::Duplicate);
        let left = rc.retry.left();
        let due = rc.next_timeout().unwrap();
        let expired = rc.on_timeout(due);
        assert_eq!(expired, Expired::Missing(ResponseKind::NakSequence));
        assert_eq!(sent(&mut rc), [Some((2, true)), None, None, None]);
        assert_ne!(rc.retry.left(), left);
        // A loss makes other losses likely: the next packet is not waited for.
        assert_eq!(rc.gap.late, Late::Unexpected);
    }

    #[test]
    fn response_that_does_not_arrive_is_requested_again() {
        let mut rc = far();
        rc.gap.late = Late::Expected;
        post(&mut rc, &[wr(SendOp::Read, 1), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        acknowledge_at(&mut rc, LATER, 2, Syndrome::ACK);
        let due = rc.next_timeout().unwrap();
        let expired = rc.on_timeout(due);
        assert_eq!(expired, Expired::Missing(ResponseKind::Gap));
        assert_eq!(sent(&mut rc), [Some((1, false)), None, None, None]);
    }
}
