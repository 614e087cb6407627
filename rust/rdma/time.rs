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

/// Returns the jiffies counter.
#[inline]
pub(crate) fn jiffies() -> usize {
    // SAFETY: The counter is a static of the kernel, written by it at any time: hence volatile.
    unsafe { core::ptr::addr_of!(bindings::jiffies).read_volatile() }
}
