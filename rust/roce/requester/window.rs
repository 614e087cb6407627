// SPDX-License-Identifier: GPL-2.0

//! The send window: the PSNs in flight, and their limit (RC).

use super::ACK_EVERY;
use crate::psn::Psn;

/// The most unacknowledged PSNs of SENDs and WRITEs (RC); READ responses do not count.
const PSN_WINDOW: u32 = 4096;

/// The initial window. It is small because the queues on the way may be short, and shared by many
/// queue pairs that begin together.
pub(super) const INITIAL_WINDOW: u16 = 16;

/// The smallest window after losses, unless others may share a queue: see [`MIN_SHARED_WINDOW`].
pub(super) const MIN_WINDOW: u16 = 4;

/// The smallest window for READ responses, unless others may share a queue.
///
/// A loss is noticed by the responses after it. With fewer of them, the probe timer often has to
/// expire instead.
const MIN_READ_WINDOW: u16 = 16;

/// The smallest window if the network marks packets, or packets waited in queues before the last
/// loss.
///
/// It is smaller than the others, because many senders may have to share a short queue.
const MIN_SHARED_WINDOW: u16 = 2;

/// The size from which on the window does not grow while packets wait in queues.
const LARGE_WINDOW: u16 = 64;

/// The acknowledged PSNs for which the window grows by one above the threshold: 1/8 per round trip.
const GROWTH: u32 = 8;

/// The round trips in which the window grows by one while packets wait in queues, or up to twice as
/// many.
const QUEUED_GROWTH: u32 = 8;

/// The largest window: only READ responses count beyond [`PSN_WINDOW`].
const MAX_WINDOW: u16 = 1 << 14;

/// The most PSNs that one READ request packet covers.
///
/// A longer READ is split into parts, and each one waits until its responses fit into the window.
/// This bounds the number of responses that a loss wastes, and keeps the outstanding PSNs far below
/// half of the PSN space. While the window is smaller, so are the parts.
const READ_WINDOW: u32 = 1024;

/// The send window.
///
/// Below the threshold the window doubles in a round trip (slow start). A loss sets the threshold
/// and the window to half of the window. Above the threshold it grows slowly, because a queue on
/// the way that has overflowed once will do so again. READ responses count like packets, because
/// only the requester can limit the number of them that meet in a queue.
///
/// While packets spend much of a round trip in queues, a window of [`LARGE_WINDOW`] does not grow,
/// because more packets would only make the queues longer, until one overflows. A smaller one grows
/// by one packet in 8 to 16 round trips, because others that share the queue may not yield.
///
/// If the network marks packets (ECN), the first mark halves the window, and each later round trip
/// with marks takes a quarter of it. From then on it grows by one packet in one or two round trips.
/// So the windows of senders that share a queue converge (AIMD).
///
/// # Invariants
///
/// In the order of PSNs, `una` is not after `base`, `next`, `recover`, `narrowed` or `refused`, and
/// none of these but `refused` is after `max`.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The oldest unacknowledged PSN; inside a READ, the PSN of the next expected response.
    una: Psn,
    /// The PSN of the next packet.
    next: Psn,
    /// The PSN after the last one ever sent.
    max: Psn,
    /// The PSN after the last packet that was refused, or `una` if that is later (checkpoint.rs).
    pub(super) refused: Psn,
    /// The start of the window: `una`, or the PSN after the last request with an explicit response
    /// if that is later.
    base: Psn,
    /// `max` at the last loss, or `una` if that is later. Another loss before it does not halve the
    /// window again (the recovery point of RFC 6582).
    recover: Psn,
    /// The same for marks of congestion.
    narrowed: Psn,
    size: WindowSize,
    /// True if packets spent much of the last measured round trip in queues.
    has_queues: bool,
    /// The most PSNs in flight since the last loss, at least the size after that.
    peak: u16,
    sharing: Sharing,
}

/// The evidence that others share a queue on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// There was no loss, or no packets waited in queues before the last one.
    Unknown,
    /// Packets waited in queues before the last loss.
    Queues,
    /// The network has marked packets.
    Marks,
}

/// The size of a window and its threshold.
#[derive(Clone, Copy)]
pub(super) struct WindowSize {
    /// The most unacknowledged PSNs, from [`MIN_SHARED_WINDOW`] to [`MAX_WINDOW`].
    psns: u16,
    /// The size from which on the window grows slowly (ssthresh).
    threshold: u16,
}

impl Window {
    /// Makes a window with nothing in flight.
    pub(super) fn new(psn: Psn) -> Window {
        // INVARIANT: All are equal.
        Window {
            una: psn,
            next: psn,
            max: psn,
            refused: psn,
            base: psn,
            recover: psn,
            narrowed: psn,
            size: WindowSize {
                psns: INITIAL_WINDOW,
                threshold: MAX_WINDOW,
            },
            has_queues: false,
            peak: 0,
            sharing: Sharing::Unknown,
        }
    }

    /// Returns the oldest unacknowledged PSN.
    #[inline]
    pub(super) fn una(&self) -> Psn {
        self.una
    }

    /// Returns the PSN of the next packet.
    #[inline]
    pub(super) fn next(&self) -> Psn {
        self.next
    }

    /// Returns the PSN after the last one ever sent.
    #[inline]
    pub(super) fn max(&self) -> Psn {
        self.max
    }

    /// Returns the most unacknowledged PSNs.
    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.size.psns.into()
    }

    /// Sets the size, for tests.
    #[cfg(any(test, CONFIG_KUNIT = "y"))]
    pub(super) fn set_size(&mut self, psns: u16) {
        self.size.psns = psns;
    }

    /// Returns whether all packets sent since the last rewind are acknowledged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.una == self.next
    }

    /// Returns whether the packet with PSN `psn`, or a READ that covers it, was sent and is not
    /// acknowledged.
    #[inline]
    pub(super) fn is_unacknowledged(&self, psn: Psn) -> bool {
        self.una.forward(psn) < self.una.forward(self.max)
    }

    /// Returns whether a response to the packet with PSN `psn` may be a late duplicate, which is at
    /// most a window behind.
    #[inline]
    pub(super) fn was_acknowledged(&self, psn: Psn) -> bool {
        (1..=u32::from(MAX_WINDOW)).contains(&psn.forward(self.una))
    }

    /// Returns whether the packet with PSN `psn` may be sent.
    ///
    /// PSNs of READ responses do not count. For simplicity, neither do packets sent before the last
    /// READ. A READ must have room for its responses behind all that is outstanding.
    #[inline]
    pub(super) fn has_room(&self, psn: Psn) -> bool {
        self.base.forward(psn) < self.size().min(PSN_WINDOW)
    }

    /// Returns whether a request whose explicit responses end before `end` may be sent while others
    /// are outstanding.
    #[inline]
    pub(super) fn has_room_for_responses(&self, end: Psn) -> bool {
        self.una.forward(end) <= self.read_window()
    }

    /// Returns the most packets from one acknowledgment request to the next.
    ///
    /// There are at least two in a window, so that one half of it is on the way when the
    /// acknowledgment of the other half arrives.
    #[inline]
    pub(super) fn ack_every(&self) -> u32 {
        ACK_EVERY.min(self.size() >> 1)
    }

    /// Returns the size of a new part of a READ in PSNs, a power of two.
    ///
    /// Unless the window has only two packets, it leaves a quarter of the window, so that the next
    /// part is requested before the last responses arrive.
    #[inline]
    pub(super) fn read_part(&self) -> u32 {
        let window = self.read_window();
        let most = window.saturating_sub(window >> 2).min(READ_WINDOW);
        1 << (most.checked_ilog2().unwrap_or(0) & 31)
    }

    /// Returns the most READ responses in flight.
    #[inline]
    fn read_window(&self) -> u32 {
        self.size().max(self.at_least(MIN_READ_WINDOW).into())
    }

    /// Returns the smallest window after losses: `usual`, or less if others may share a queue.
    #[inline]
    fn at_least(&self, usual: u16) -> u16 {
        match self.sharing {
            Sharing::Unknown => usual,
            Sharing::Queues | Sharing::Marks => MIN_SHARED_WINDOW,
        }
    }

    /// Accounts for a packet that was sent. `end` is the PSN after it.
    #[inline]
    pub(super) fn sent(&mut self, end: Psn) {
        self.next = end;
        if end.is_after(self.max) {
            self.max = end;
            self.peak = self.peak.max(self.in_flight());
        }
    }

    /// Returns the number of PSNs in flight.
    #[inline]
    fn in_flight(&self) -> u16 {
        u16::try_from(self.una.forward(self.max)).unwrap_or(MAX_WINDOW)
    }

    /// Starts the window at `end`, after a request with an explicit response.
    ///
    /// That response also acknowledges all packets before it.
    #[inline]
    pub(super) fn restart_at(&mut self, end: Psn) {
        self.base = end;
    }

    /// Moves `una` forward to `end`, and the other PSNs to at least `end`: acknowledged packets are
    /// not retransmitted.
    #[inline]
    pub(super) fn acknowledge(&mut self, end: Psn) {
        self.una = end;
        self.next.advance_to(end);
        self.base.advance_to(end);
        self.recover.advance_to(end);
        self.narrowed.advance_to(end);
        self.refused.advance_to(end);
    }

    /// Widens the window after the PSNs from `before` on were acknowledged.
    ///
    /// `has_queues` is true if packets spent much of the round trip in queues, and `None` if it was
    /// not measured.
    #[inline]
    pub(super) fn widen(&mut self, before: Psn, has_queues: Option<bool>) {
        self.has_queues = has_queues.unwrap_or(self.has_queues);
        let acknowledged = before.forward(self.una);
        // A power of two: multiples of the size could follow each other closely as it grows.
        let round_trip = self.size().checked_next_power_of_two().unwrap_or(u32::MAX);
        let growth = if self.has_queues {
            if self.size.psns >= LARGE_WINDOW {
                return;
            }
            before.multiples(acknowledged, round_trip.saturating_mul(QUEUED_GROWTH))
        } else if self.size.psns < self.size.threshold {
            acknowledged
        } else if self.is_marked() {
            before.multiples(acknowledged, round_trip)
        } else {
            before.multiples(acknowledged, GROWTH)
        };
        let growth = u16::try_from(growth).unwrap_or(MAX_WINDOW);
        self.size.psns = self.size.psns.saturating_add(growth).min(MAX_WINDOW);
    }

    /// Halves the window after a loss, once for all packets in flight. Returns whether it did.
    pub(super) fn halve_once(&mut self) -> bool {
        let is_first = !self.una.is_before(self.recover);
        if is_first {
            self.halve();
        }
        is_first
    }

    /// Returns whether there were marks of congestion.
    pub(super) fn is_marked(&self) -> bool {
        self.sharing == Sharing::Marks
    }

    /// Returns the size and its threshold, for [`Window::restore_size`].
    pub(super) fn saved_size(&self) -> WindowSize {
        self.size
    }

    /// Undoes the last reduction, because there was no loss.
    ///
    /// `before` is the result of [`Window::saved_size`] before that.
    pub(super) fn restore_size(&mut self, before: WindowSize) {
        self.size = WindowSize {
            psns: self.size.psns.max(before.psns),
            threshold: before.threshold,
        };
        self.peak = self.peak.max(before.psns);
        self.recover = self.una;
    }

    /// Halves the window, or the most packets that were in flight since the last loss if that is
    /// less. Those that are in flight now may be the last few of a message.
    pub(super) fn halve(&mut self) {
        self.recover = self.max;
        self.sharing = match self.sharing {
            Sharing::Marks => Sharing::Marks,
            _ if self.has_queues => Sharing::Queues,
            _ => Sharing::Unknown,
        };
        let least = self.at_least(MIN_WINDOW).min(self.size.psns);
        self.size.psns = (self.size.psns.min(self.peak) >> 1).max(least);
        self.size.threshold = self.size.psns;
        self.peak = self.size.psns;
    }

    /// Narrows the window after a mark of congestion, once for all packets in flight.
    #[cold]
    pub(super) fn narrow_once(&mut self) {
        if self.una.is_before(self.narrowed) {
            return;
        }
        self.narrowed = self.max;
        let cut = if self.is_marked() {
            (self.size.psns >> 2).max(1)
        } else {
            self.size.psns >> 1
        };
        self.sharing = Sharing::Marks;
        self.size.psns = self.size.psns.saturating_sub(cut).max(MIN_SHARED_WINDOW);
        self.size.threshold = self.size.psns;
    }

    /// Rewinds to the packet at `una`.
    pub(super) fn rewind(&mut self) {
        self.next = self.una;
        self.base = self.una;
    }

    /// Goes back to `psn`, that of the first packet of a request that has failed locally.
    pub(super) fn rewind_to(&mut self, psn: Psn) {
        self.next = psn;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_window))]
mod tests {
    use super::*;

    /// Makes a window with `size` packets in flight.
    fn full(size: u16) -> Window {
        let psn = Psn::new(0xff_fff0);
        let mut window = Window::new(psn);
        window.size.psns = size;
        window.sent(psn.add(size.into()));
        window
    }

    /// Sends and acknowledges a whole window.
    fn round_trip(window: &mut Window) {
        let (una, size) = (window.una(), window.size());
        window.sent(una.add(size));
        window.acknowledge(una.add(size));
        window.widen(una, None);
    }

    #[test]
    fn first_mark_halves_and_later_ones_take_a_quarter() {
        let mut window = full(64);
        window.narrow_once();
        assert_eq!(window.size(), 32);
        // The marked packets were sent before the window was narrowed.
        window.narrow_once();
        window.acknowledge(window.una().add(63));
        window.narrow_once();
        assert_eq!(window.size(), 32);
        window.acknowledge(window.una().add(1));
        window.narrow_once();
        assert_eq!(window.size(), 24);
    }

    #[test]
    fn window_grows_by_one_in_one_or_two_round_trips_after_a_mark() {
        let mut window = full(64);
        window.narrow_once();
        window.acknowledge(window.una().add(64));
        for _ in 0..8 {
            round_trip(&mut window);
        }
        assert!((36..=40).contains(&window.size()));
    }

    #[test]
    fn window_grows_as_fast_if_packets_are_acknowledged_one_by_one() {
        let mut window = full(64);
        window.narrow_once();
        window.acknowledge(window.una().add(64));
        for _ in 0..32 {
            let una = window.una();
            window.sent(una.next());
            window.acknowledge(una.next());
            window.widen(una, None);
        }
        assert_eq!(window.size(), 33);
    }

    #[test]
    fn marks_leave_two_packets() {
        let mut window = full(2);
        for _ in 0..4 {
            window.narrow_once();
            assert_eq!(window.size(), 2);
            assert_eq!((window.read_part(), window.ack_every()), (2, 1));
            round_trip(&mut window);
            assert_eq!(window.size(), 3);
            window.acknowledge(window.max());
            window.sent(window.una().add(3));
        }
    }

    #[test]
    fn loss_after_a_mark_is_the_first_one() {
        let mut window = full(64);
        window.narrow_once();
        assert!(window.halve_once());
        assert_eq!(window.size(), 16);
        assert!(!window.halve_once());
    }

    #[test]
    fn loss_at_the_end_of_a_message_halves_the_window() {
        let mut window = full(64);
        window.acknowledge(window.max().sub(2));
        assert!(window.halve_once());
        assert_eq!(window.size(), 32);
        // The next message is as long as the window, but another loss is one of its last packets.
        window.acknowledge(window.max());
        window.sent(window.una().add(32));
        window.acknowledge(window.max().prev());
        assert!(window.halve_once());
        assert_eq!(window.size(), 16);
    }

    /// Returns the growth of a window of `size` when `round_trips` windows are acknowledged.
    fn growth(size: u16, threshold: u16, has_queues: bool, round_trips: u32) -> u16 {
        let mut window = Window::new(Psn::new(7));
        window.size = WindowSize {
            psns: size,
            threshold,
        };
        let end = window.una().add(round_trips * u32::from(size));
        window.sent(end);
        window.acknowledge(end);
        window.widen(Psn::new(7), Some(has_queues));
        window.size.psns - size
    }

    #[test]
    fn window_doubles_below_the_threshold_and_grows_by_an_eighth_above() {
        assert_eq!(growth(16, MAX_WINDOW, false, 1), 16);
        assert_eq!(growth(LARGE_WINDOW, MAX_WINDOW, false, 1), LARGE_WINDOW);
        assert_eq!(growth(16, 16, false, 1), 2);
    }

    #[test]
    fn window_grows_by_one_in_eight_round_trips_while_packets_wait_in_queues() {
        for size in [2, 4, 16, 32] {
            assert_eq!(growth(size, MAX_WINDOW, true, 8), 1);
            assert_eq!(growth(size, size, true, 8), 1);
        }
        assert_eq!(growth(LARGE_WINDOW, MAX_WINDOW, true, 8), 0);
    }

    #[test]
    fn losses_leave_fewer_packets_while_packets_wait_in_queues() {
        for (has_queues, size, read_part) in [(false, MIN_WINDOW, 8), (true, 2, 2)] {
            let mut window = full(64);
            window.has_queues = has_queues;
            for _ in 0..8 {
                window.halve();
            }
            assert_eq!(window.size(), u32::from(size));
            // The queues may be short for a moment, because packets were lost.
            window.has_queues = !has_queues;
            assert_eq!(window.read_part(), read_part);
        }
    }

    #[test]
    fn loss_does_not_widen_a_narrow_window() {
        let mut window = full(4);
        window.narrow_once();
        window.halve();
        assert_eq!(window.size(), 2);
    }

    #[test]
    fn responses_fit_into_the_window() {
        for (size, marked, most) in [(64, false, 64), (4, false, 16), (2, true, 2)] {
            let mut window = Window::new(Psn::new(0));
            if marked {
                window.narrow_once();
            }
            window.size.psns = size;
            assert!(window.is_empty() && window.has_room_for_responses(Psn::new(most)));
            assert!(!window.has_room_for_responses(Psn::new(most + 1)));
        }
    }

    #[test]
    fn window_grows_by_an_eighth_in_a_round_trip_after_a_loss() {
        let mut window = full(64);
        window.halve();
        for _ in 0..64 {
            let una = window.una();
            window.acknowledge(una.next());
            window.widen(una, None);
        }
        assert_eq!(window.size(), 40);
        // No more than half of that was in flight since the loss.
        window.halve();
        assert_eq!(window.size(), 16);
    }

    #[test]
    fn reduction_can_be_undone() {
        let mut window = full(64);
        let before = window.saved_size();
        assert!(window.halve_once());
        window.restore_size(before);
        assert_eq!(window.size(), 64);
        // Another loss halves the same size.
        assert!(window.halve_once());
        assert_eq!(window.size(), 32);
    }

    #[test]
    fn next_loss_and_mark_may_come_after_half_of_the_psns() {
        let mut window = full(64);
        window.narrow_once();
        window.halve();
        for _ in 0..9 {
            let end = window.una().add(1 << 20);
            window.sent(end);
            window.acknowledge(end);
        }
        let before = window.size();
        window.narrow_once();
        assert!(window.size() < before);
        assert!(window.halve_once());
    }

    #[test]
    fn window_starts_at_oldest_packet_after_rewind() {
        let mut window = full(64);
        let una = window.una();
        window.restart_at(una.add(10));
        assert!(window.has_room(una.add(64)));
        window.rewind();
        assert!(window.has_room(una.add(63)) && !window.has_room(una.add(64)));
    }
}
