// SPDX-License-Identifier: GPL-2.0

//! Clocks.

use crate::bindings;
use roce::time::Instant;

/// Returns the monotonic time as the protocol core counts it, in nanoseconds.
#[inline]
pub fn now() -> Instant {
    // SAFETY: `ktime_get` has no requirement. The clock starts at boot, so it is not negative.
    // CAST: A non-negative `i64` fits.
    Instant::from_ns(unsafe { bindings::ktime_get() } as u64)
}

/// Returns the time of the last tick, on a clock with an origin of its own, in nanoseconds. Costs a
/// load.
#[inline]
pub fn coarse_now() -> Instant {
    const NS_PER_JIFFY: u64 = 1_000_000_000 / kernel::bindings::HZ as u64;

    // CAST: An `unsigned long` has at most 64 bits.
    Instant::from_ns((jiffies() as u64).wrapping_mul(NS_PER_JIFFY))
}

/// Returns the jiffies counter.
#[inline]
pub(crate) fn jiffies() -> usize {
    // SAFETY: The counter is a static of the kernel, written by it at any time: hence volatile.
    unsafe { core::ptr::addr_of!(bindings::jiffies).read_volatile() }
}
