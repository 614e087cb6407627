// SPDX-License-Identifier: GPL-2.0

//! The PSNs in flight, and the bounds on them (RC).

use crate::psn::Psn;

/// The most unacknowledged PSNs of SENDs and WRITEs (RC); READ responses do not count.
pub const PSN_WINDOW: u32 = 256;

/// The smallest window after losses; it starts at [`PSN_WINDOW`].
pub(super) const MIN_WINDOW: u16 = 4;

/// The smallest window for READ responses, all of which are requested again after a lost one.
const MIN_READ_WINDOW: u32 = 16;

/// Above half of the size at the last loss, the window grows by this part of what is acknowledged,
/// as a shift: by 1/8 in a round trip.
const GROWTH: u32 = 3;

/// The largest window: only READ responses count beyond [`PSN_WINDOW`].
const MAX_WINDOW: u16 = 1 << 14;

/// The most PSNs that one READ request packet covers.
///
/// A longer READ is split into several request packets, sent one after the other. This bounds the
/// waste after a loss, and keeps the outstanding PSNs far below half of the PSN space. While the
/// window is smaller, so are the parts.
pub const READ_WINDOW: u32 = 1024;

/// The most PSNs between the oldest unacknowledged one and the next.
///
/// A READ waits until its responses fit.
const MAX_OUTSTANDING: u32 = 1 << 22;

/// The PSNs in flight.
///
/// A loss halves the window. After that it grows slowly, because a queue on the way that was
/// overrun once will be again; up to that size, and before the first loss, it doubles in a round
/// trip. The responses to READs count like packets, because the requester alone decides how many of
/// them meet on the way.
///
/// # Invariants
///
/// In the order of PSNs, `una` is not after `base`, `next` or `recover`, and none of these is after
/// `max`.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// The oldest unacknowledged PSN; inside a READ, the PSN of the next expected response.
    una: Psn,
    /// The PSN of the next packet.
    next: Psn,
    /// The PSN after the last one ever sent.
    max: Psn,
    /// The start of the window: `una`, or the PSN after the last request with an explicit response
    /// if that is later.
    base: Psn,
    /// The end of what was in flight at the last loss, or `una` if that is later: another loss
    /// before it is part of that one.
    recover: Psn,
    /// The most unacknowledged PSNs, from [`MIN_WINDOW`] to [`MAX_WINDOW`].
    size: u16,
    /// The size from which on the window grows slowly.
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
            base: psn,
            recover: psn,
            // CAST: Narrowing: 256 fits.
            size: PSN_WINDOW as u16,
            threshold: MAX_WINDOW,
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
        self.size.into()
    }

    /// Returns whether everything that was sent since the last rewind is acknowledged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.una == self.next
    }

    /// Returns whether a packet with the PSN, or a READ that covers it, was sent and is not
    /// acknowledged.
    #[inline]
    pub(super) fn is_unacknowledged(&self, psn: Psn) -> bool {
        self.una.forward(psn) < self.una.forward(self.max)
    }

    /// Returns whether a packet with the PSN may be sent.
    ///
    /// PSNs of READ responses do not count. For simplicity, neither does anything sent before the
    /// last READ; that is bounded, because the number of outstanding READs is.
    #[inline]
    pub(super) fn has_room(&self, psn: Psn) -> bool {
        self.base.forward(psn) < self.size().min(PSN_WINDOW)
    }

    /// Returns whether a request with explicit responses up to `end` may be outstanding, beside
    /// others.
    #[inline]
    pub(super) fn has_room_for_responses(&self, end: Psn) -> bool {
        let most = match self.size {
            MAX_WINDOW.. => MAX_OUTSTANDING,
            size => u32::from(size).max(MIN_READ_WINDOW),
        };
        self.una.forward(end) <= most
    }

    /// Returns the size of a new part of a READ in PSNs, a power of two.
    #[inline]
    pub(super) fn read_part(&self) -> u32 {
        let most = self.size().clamp(MIN_READ_WINDOW, READ_WINDOW);
        1 << (most.checked_ilog2().unwrap_or(0) & 31)
    }

    /// Moves on past a packet that was sent, to `end`.
    #[inline]
    pub(super) fn sent(&mut self, end: Psn) {
        self.next = end;
        if end.is_after(self.max) {
            self.max = end;
        }
    }

    /// Starts the window after a request with an explicit response, which also acknowledges
    /// everything before it.
    #[inline]
    pub(super) fn restart_at(&mut self, end: Psn) {
        self.base = end;
    }

    /// Moves `una` forward to `end`, and the others to at least that: acknowledged packets are not
    /// retransmitted.
    #[inline]
    pub(super) fn acknowledge(&mut self, end: Psn) {
        self.una = end;
        if self.next.is_before(end) {
            self.next = end;
        }
        if self.base.is_before(end) {
            self.base = end;
        }
        if self.recover.is_before(end) {
            self.recover = end;
        }
    }

    /// Widens the window after the PSNs from `before` on were acknowledged.
    #[inline]
    pub(super) fn widen(&mut self, before: Psn) {
        let acknowledged = before.forward(self.una);
        let growth = if self.size < self.threshold {
            acknowledged
        } else {
            // One for each multiple of eight, so that no remainder has to be kept.
            let phase = before.get() & ((1 << GROWTH) - 1);
            acknowledged.saturating_add(phase) >> GROWTH
        };
        let growth = u16::try_from(growth).unwrap_or(MAX_WINDOW);
        self.size = self.size.saturating_add(growth).min(MAX_WINDOW);
    }

    /// Halves the window after a loss unless it was halved for another loss of what was in flight
    /// then. Returns whether it did.
    pub(super) fn halve_once(&mut self) -> bool {
        let is_first = !self.una.is_before(self.recover);
        if is_first {
            self.halve();
        }
        is_first
    }

    /// Halves the window: to half of what is in flight, if that is less.
    pub(super) fn halve(&mut self) {
        self.recover = self.max;
        let in_flight = u16::try_from(self.una.forward(self.max)).unwrap_or(MAX_WINDOW);
        self.size = (self.size.min(in_flight) >> 1).max(MIN_WINDOW);
        self.threshold = self.size;
    }

    /// Goes back to the packet at `una`.
    pub(super) fn rewind(&mut self) {
        self.next = self.una;
        self.base = self.una;
    }

    /// Goes back to the first packet of a request that is not to be sent again.
    pub(super) fn rewind_to(&mut self, psn: Psn) {
        self.next = psn;
    }
}
