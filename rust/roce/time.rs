// SPDX-License-Identifier: GPL-2.0

//! Time in nanoseconds, which the driver passes as an argument.

use core::num::NonZero;

/// A point in time: nanoseconds of a monotonic clock with any origin, but never 0.
///
/// Because it is never 0, an `Option` of it takes no more memory. A queue pair has many of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZero<u64>);

impl Instant {
    /// The earliest instant.
    const FIRST: Instant = Instant(NonZero::<u64>::MIN);

    /// Makes an instant from nanoseconds; 0 becomes 1.
    #[inline]
    pub const fn from_ns(ns: u64) -> Instant {
        match NonZero::new(ns) {
            Some(ns) => Instant(ns),
            None => Instant::FIRST,
        }
    }

    /// Returns the nanoseconds.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0.get()
    }

    /// Returns the instant `ns` nanoseconds later; saturates.
    #[inline]
    pub const fn after(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Returns the nanoseconds since an earlier instant, 0 if it is not earlier.
    #[inline]
    pub const fn since(self, earlier: Instant) -> u64 {
        self.as_ns().saturating_sub(earlier.as_ns())
    }

    /// Returns whether the instant is now or past.
    #[inline]
    pub const fn is_due(self, now: Instant) -> bool {
        self.as_ns() <= now.as_ns()
    }
}

impl Default for Instant {
    fn default() -> Instant {
        Instant::FIRST
    }
}

/// Bits of a timeout or RNR timer code that exist on the wire.
const CODE_MASK: u8 = 0x1f;

/// The unit of the local ACK timeout: code `n` stands for `2^n` of these, except code 0.
const ACK_TIMEOUT_UNIT_NS: u64 = 4096;

/// Nanoseconds in the unit of [`RNR_TIMER`].
const RNR_TIMER_UNIT_NS: u64 = 10_000;

/// The RNR timer of each code, in units of 10 µs (IBTA table 45).
#[rustfmt::skip]
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12,
    16, 24, 32, 48, 64, 96, 128, 192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the nanoseconds of a local ACK timeout code, or `None` for code 0, which never expires.
///
/// Only the low five bits of `code` count.
#[inline]
pub const fn ack_timeout_ns(code: u8) -> Option<NonZero<u64>> {
    match code & CODE_MASK {
        0 => None,
        code => NonZero::new(ACK_TIMEOUT_UNIT_NS << code),
    }
}

/// Returns the nanoseconds of an RNR timer code, between 10 µs and 655.36 ms.
///
/// Only the low five bits of `code` count.
#[inline]
pub fn rnr_timer_ns(code: u8) -> u64 {
    let units = RNR_TIMER.get(usize::from(code & CODE_MASK));
    u64::from(units.copied().unwrap_or_default()).wrapping_mul(RNR_TIMER_UNIT_NS)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_time))]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_doubles_per_code() {
        let ns = |code| ack_timeout_ns(code).map(NonZero::get);
        assert_eq!(ns(0), None);
        assert_eq!(ns(1), Some(8_192));
        assert_eq!(ns(14), Some(67_108_864));
        assert_eq!(ns(31), Some(4096 << 31));
        assert_eq!(ns(32 + 14), ns(14));
    }

    #[test]
    fn rnr_timer_matches_ibta_table() {
        assert_eq!(rnr_timer_ns(0), 655_360_000);
        assert_eq!(rnr_timer_ns(1), 10_000);
        assert_eq!(rnr_timer_ns(12), 640_000);
        assert_eq!(rnr_timer_ns(31), 491_520_000);
        assert_eq!(rnr_timer_ns(33), rnr_timer_ns(1));
    }

    #[test]
    fn instants_saturate() {
        let late = Instant::from_ns(u64::MAX - 1);
        assert_eq!(late.after(5).as_ns(), u64::MAX);
        assert!(Instant::from_ns(7).is_due(Instant::from_ns(7)));
        assert!(!Instant::from_ns(8).is_due(Instant::from_ns(7)));
    }
}
