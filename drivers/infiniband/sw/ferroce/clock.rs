// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks as the protocol core counts time.

use rdma::time::{
    jiffies_ns,
    ktime_get_ns, //
};
use roce::time::Instant;

/// Returns the monotonic time. Callable in any context.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::from_ns(ktime_get_ns())
}

/// Returns the time of the last tick, on a clock with an origin of its own. Cheaper than [`now`].
/// Callable in any context.
#[inline]
pub(crate) fn coarse_now() -> Instant {
    Instant::from_ns(jiffies_ns())
}
