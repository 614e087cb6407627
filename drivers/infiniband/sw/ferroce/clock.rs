// SPDX-License-Identifier: GPL-2.0

//! The kernel's clocks as times of the protocol core.

use rdma::time::{
    jiffies_ns,
    ktime_get_ns, //
};
use roce::time::Instant;

/// Returns the monotonic time. Callable in any context.
#[inline]
pub(crate) fn monotonic() -> Instant {
    Instant::from_ns(ktime_get_ns())
}

/// Returns the time of the last tick, which is cheaper than [`monotonic`]. The two clocks have
/// different origins: do not mix their times. Callable in any context.
#[inline]
pub(crate) fn coarse() -> Instant {
    Instant::from_ns(jiffies_ns())
}
