// SPDX-License-Identifier: GPL-2.0

//! Clocks, in nanoseconds.
//!
//! C headers: [`include/linux/timekeeping.h`](srctree/include/linux/timekeeping.h),
//! [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h)

use crate::bindings;

/// Returns `ktime_get()`: nanoseconds of the monotonic clock since boot. Callable in any context.
///
/// # Examples
///
/// ```
/// use rdma::time::ktime_get_ns;
///
/// let start = ktime_get_ns();
/// let elapsed = ktime_get_ns().saturating_sub(start);
/// ```
#[inline]
pub fn ktime_get_ns() -> u64 {
    // SAFETY: `ktime_get` has no requirement. The clock starts at boot, so it is not negative.
    // CAST: A non-negative `i64` fits.
    unsafe { bindings::ktime_get() as u64 }
}

/// Returns the nanoseconds of the last tick, on a clock with an origin of its own, which wraps
/// around. Costs a load. Callable in any context.
///
/// # Examples
///
/// ```
/// use rdma::time::jiffies_ns;
///
/// let last_used = jiffies_ns();
/// let is_idle = jiffies_ns().wrapping_sub(last_used) > 1_000_000_000;
/// ```
#[inline]
pub fn jiffies_ns() -> u64 {
    // CAST: Widening.
    const NS_PER_JIFFY: u64 = 1_000_000_000 / kernel::bindings::HZ as u64;

    // CAST: An `unsigned long` has at most 64 bits.
    (jiffies() as u64).wrapping_mul(NS_PER_JIFFY)
}

/// Returns the jiffies counter.
#[inline]
pub(crate) fn jiffies() -> usize {
    // SAFETY: The counter is a static of the kernel, written by it at any time: hence volatile.
    unsafe { core::ptr::addr_of!(bindings::jiffies).read_volatile() }
}
