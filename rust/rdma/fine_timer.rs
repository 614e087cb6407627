// SPDX-License-Identifier: GPL-2.0

//! Timers of nanosecond resolution.
//!
//! The kernel's `HrTimer` abstraction cancels when a handle is dropped, and each arming makes a new
//! handle: moving a deadline with it would cancel the timer just armed. This one is moved by arming
//! it again. Its callback does not own the object with the timer, but has a number to look it up in
//! a [`Table`](crate::sync::Table), so that neither keeps the other alive.
//!
//! ```text
//!             arm()                  expires
//!   stopped ---------> armed -------------------> TimerCallback::expired(), stopped
//!                      |   ^
//!                      +---+ arm() moves the expiry
//! ```
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use crate::bindings;
use kernel::{
    container_of,
    ffi,
    prelude::*,
    types::Opaque, //
};

/// The callback of a [`FineTimer`].
///
/// # Examples
///
/// ```
/// # use kernel::sync::atomic::{Atomic, Relaxed};
/// use rdma::fine_timer::TimerCallback;
///
/// static EXPIRED: Atomic<u32> = Atomic::new(0);
///
/// struct Retry;
///
/// impl TimerCallback for Retry {
///     fn expired(&self) {
///         EXPIRED.add(1, Relaxed);
///     }
/// }
/// ```
pub trait TimerCallback: Send + Sync + 'static {
    /// Called when the timer has expired. Softirq context.
    fn expired(&self);
}

/// A `struct hrtimer` and its callback.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{fine_timer::{FineTimer, TimerCallback}, time::ktime_get_ns};
/// struct Pacer {
///     qpn: u32,
/// }
///
/// impl TimerCallback for Pacer {
///     fn expired(&self) {
///         // Look up queue pair `self.qpn`, and send its next packet.
///     }
/// }
///
/// let timer = KBox::pin_init(FineTimer::new(Pacer { qpn: 17 }), GFP_KERNEL)?;
/// timer.arm(ktime_get_ns().saturating_add(50_000));
/// // This moves the expiry: the callback is called once.
/// timer.arm(ktime_get_ns().saturating_add(80_000));
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct FineTimer<C: TimerCallback> {
    #[pin]
    raw: Opaque<bindings::hrtimer>,
    callback: C,
}

// SAFETY: The timer core serialises all accesses to `raw`; the callback is `Send`.
unsafe impl<C: TimerCallback> Send for FineTimer<C> {}
// SAFETY: The timer core serialises all accesses to `raw`; the callback is `Sync`.
unsafe impl<C: TimerCallback> Sync for FineTimer<C> {}

impl<C: TimerCallback> FineTimer<C> {
    /// Creates a stopped timer.
    ///
    /// Dropping it stops it and waits for a running callback, so a callback must not own it, and it
    /// must not be armed then.
    pub fn new(callback: C) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for write and pinned.
            raw <- unsafe {
                Opaque::ffi_init(|raw| {
                    // CAST: The value is 1.
                    bindings::hrtimer_setup(
                        raw,
                        Some(Self::expired),
                        bindings::CLOCK_MONOTONIC as ffi::c_int,
                        bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
                    )
                })
            },
            callback,
        })
    }

    /// Arms the timer to expire at `at` nanoseconds of
    /// [`ktime_get_ns`](crate::time::ktime_get_ns)'s clock, or moves it there. Callable in any
    /// context but a hard interrupt, the callback included.
    pub fn arm(&self, at: u64) {
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        // SAFETY: `raw` was set up, and `Drop` cancels it before the memory goes away; a reference
        // to `self` says that this has not begun.
        unsafe {
            bindings::hrtimer_start_range_ns(
                self.raw.get(),
                at,
                0,
                bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
            )
        };
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// Only for the timer core, with the `raw` of a [`FineTimer`].
    unsafe extern "C" fn expired(raw: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        let this = container_of!(Opaque::cast_from(raw), Self, raw);
        // SAFETY: `raw` is embedded in a `FineTimer`, which `Drop` keeps alive until this returns.
        unsafe { &*this }.callback.expired();
        bindings::hrtimer_restart::HRTIMER_NORESTART
    }
}

#[pinned_drop]
impl<C: TimerCallback> PinnedDrop for FineTimer<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` was set up. After this call the callback neither runs nor will run, because
        // no reference is left to arm it with.
        unsafe { bindings::hrtimer_cancel(self.raw.get()) };
    }
}
