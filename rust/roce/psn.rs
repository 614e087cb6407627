// SPDX-License-Identifier: GPL-2.0

//! Packet sequence numbers: 24 bits that wrap.

/// Bits of a PSN that exist on the wire.
const MASK: u32 = 0x00ff_ffff;

/// The unused bits of a `u32`.
const UNUSED_BITS: u32 = 8;

/// A packet sequence number.
///
/// There is deliberately no `Ord`. One of two PSNs is the later one only if they are less than half
/// of the PSN space apart, which [`Psn::distance`] assumes.
///
/// # Invariants
///
/// The value is below 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Half of the PSN space: a packet up to this far before the expected one is a duplicate
    /// (9.7.1).
    ///
    /// The longest READ has as many PSNs.
    pub const HALF: u32 = 1 << 23;

    /// Makes a PSN from the low 24 bits of `raw`.
    #[inline]
    pub const fn new(raw: u32) -> Psn {
        // INVARIANT: the mask keeps 24 bits.
        Psn(raw & MASK)
    }

    /// Returns the number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the PSN `count` packets later.
    #[inline]
    pub const fn add(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_add(count))
    }

    /// Returns the PSN `count` packets earlier.
    #[inline]
    pub const fn sub(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(count))
    }

    /// Returns the PSN of the next packet.
    #[inline]
    pub const fn next(self) -> Psn {
        self.add(1)
    }

    /// Returns the PSN of the packet before.
    #[inline]
    pub const fn prev(self) -> Psn {
        self.sub(1)
    }

    /// Returns `to - from` as the signed difference that is smallest, from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn distance(from: Psn, to: Psn) -> i32 {
        let difference = to.0.wrapping_sub(from.0) << UNUSED_BITS;
        // CAST: the sign bit of the 24-bit difference is now the sign bit of the word; shifting
        // back extends it.
        (difference as i32) >> UNUSED_BITS
    }

    /// Returns the number of packets from `self` to `later`, from 0 to 2^24 - 1.
    #[inline]
    pub const fn forward(self, later: Psn) -> u32 {
        later.0.wrapping_sub(self.0) & MASK
    }

    /// Returns the number of multiples of `unit`, a power of two, among the `count` PSNs after this
    /// one.
    ///
    /// This is a fraction of `count`, and no remainder has to be kept.
    #[inline]
    pub fn multiples(self, count: u32, unit: u32) -> u32 {
        let phase = self.get() & unit.wrapping_sub(1);
        let end = phase.saturating_add(count);
        end.checked_div(unit).unwrap_or(0)
    }

    /// Returns whether `self` comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        Psn::distance(self, other) > 0
    }

    /// Returns whether `self` comes after `other`.
    #[inline]
    pub const fn is_after(self, other: Psn) -> bool {
        Psn::distance(self, other) < 0
    }

    /// Moves forward to `end`, unless it comes earlier.
    #[inline]
    pub fn advance_to(&mut self, end: Psn) {
        if self.is_before(end) {
            *self = end;
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_psn))]
mod tests {
    use super::*;

    #[test]
    fn keeps_24_bits() {
        assert_eq!(Psn::new(0xff00_0001).get(), 1);
        assert_eq!(Psn::new(0x00ff_ffff).next().get(), 0);
        assert_eq!(Psn::new(0).prev().get(), 0x00ff_ffff);
        assert_eq!(Psn::new(2).sub(5).get(), 0x00ff_fffd);
    }

    #[test]
    fn order_wraps() {
        let last = Psn::new(0x00ff_ffff);
        let first = Psn::new(0);
        assert!(last.is_before(first));
        assert!(first.is_after(last));
        assert!(!first.is_before(first));
        assert!(!first.is_after(first));
        for (start, end) in [(last, last), (last, first), (first, first)] {
            let mut psn = start;
            psn.advance_to(end);
            assert_eq!(psn, end);
        }
        let mut psn = first;
        psn.advance_to(last);
        assert_eq!(psn, first);
    }

    #[test]
    fn distance_is_signed() {
        let psn = Psn::new(0x00ff_fff0);
        assert_eq!(Psn::distance(psn, psn.add(0x20)), 0x20);
        assert_eq!(Psn::distance(psn.add(0x20), psn), -0x20);
        assert_eq!(Psn::distance(psn, psn.add(0x7f_ffff)), 0x7f_ffff);
        assert_eq!(Psn::distance(psn, psn.add(0x80_0000)), -0x80_0000);
    }

    #[test]
    fn forward_is_unsigned() {
        let psn = Psn::new(0x00ff_fff0);
        assert_eq!(psn.forward(psn), 0);
        assert_eq!(psn.forward(psn.add(0x20)), 0x20);
        assert_eq!(psn.forward(psn.prev()), 0x00ff_ffff);
    }
}
