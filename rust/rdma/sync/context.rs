// SPDX-License-Identifier: GPL-2.0

//! The context of the caller.

use crate::bindings;
use kernel::types::NotThreadSafe;

/// Returns whether interrupts are on and no hard interrupt is being served: then locks that disable
/// bottom halves may be taken.
///
/// # Examples
///
/// ```
/// # use rdma::sync::{can_run, SpinLockBh};
/// /// Takes all waiting requests, or none where the lock must not be taken.
/// fn take(waiting: &SpinLockBh<u32>) -> u32 {
///     if can_run() {
///         core::mem::take(&mut *waiting.lock())
///     } else {
///         0
///     }
/// }
/// ```
#[inline]
pub fn can_run() -> bool {
    // SAFETY: Both only read the state of the CPU and the task.
    unsafe { !bindings::irqs_disabled() && !bindings::in_hardirq() }
}

/// Keeps bottom halves off on this CPU while it lives.
///
/// If they were off before, the caller must keep them off for as long: this guard does not nest.
///
/// # Examples
///
/// ```
/// use rdma::sync::BottomHalvesOff;
///
/// /// Calls a function that may raise a softirq, which then runs at once.
/// fn call(f: impl FnOnce()) {
///     let _bh = BottomHalvesOff::new();
///     f();
/// }
/// ```
pub struct BottomHalvesOff {
    /// True if they were on before.
    turns_on: bool,
    _task: NotThreadSafe,
}

impl BottomHalvesOff {
    /// Turns bottom halves off, unless they are.
    #[inline]
    #[expect(clippy::new_without_default)]
    pub fn new() -> Self {
        // SAFETY: This only reads the state of the CPU.
        let turns_on = !unsafe { bindings::in_softirq() };
        if turns_on {
            // SAFETY: No requirement.
            unsafe { bindings::local_bh_disable() };
        }
        Self {
            turns_on,
            _task: NotThreadSafe,
        }
    }
}

impl Drop for BottomHalvesOff {
    #[inline]
    fn drop(&mut self) {
        if self.turns_on {
            // SAFETY: Paired with the call in `new`, on the same thread.
            unsafe { bindings::local_bh_enable() };
        }
    }
}

/// Reschedules if necessary. May sleep.
///
/// # Examples
///
/// ```
/// use rdma::sync::cond_resched;
///
/// fn clear(entries: &mut [u64]) {
///     for part in entries.chunks_mut(4096) {
///         part.fill(0);
///         cond_resched();
///     }
/// }
/// ```
pub fn cond_resched() {
    // SAFETY: The caller may sleep, so the scheduler may be called.
    unsafe { bindings::cond_resched() };
}

/// Returns whether the calling process was killed: it need not wait any more.
pub(crate) fn is_killed() -> bool {
    // SAFETY: The current task is alive as long as it runs.
    unsafe { bindings::fatal_signal_pending(bindings::get_current()) != 0 }
}
