// SPDX-License-Identifier: GPL-2.0

//! Timers of jiffy resolution.
//!
//! The kernel's `HrTimer` abstraction cancels when a handle is dropped, and each arming makes a new
//! handle: moving a retransmission deadline with it would cancel the timer just armed. This one is
//! moved by arming it again. Its callback does not own the object with the timer, but has a number
//! to look it up in a [`Table`](crate::sync::Table), so that neither keeps the other alive.
//!
//! ```text
//!             arm()                  expires
//!   stopped ---------> armed -------------------> TimerCallback::expired(), stopped
//!                      |   ^
//!                      +---+ arm() moves the expiry
//! ```
//!
//! C header: [`include/linux/timer.h`](srctree/include/linux/timer.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    container_of,
    prelude::*,
    types::Opaque, //
};

/// The callback of a [`Timer`] or a [`FineTimer`](crate::fine_timer::FineTimer).
pub trait TimerCallback: Send + Sync {
    /// Called when the timer has expired. Softirq context.
    fn expired(&self);
}

/// A `struct timer_list` and its callback.
///
/// # Examples
///
/// ```ignore
/// struct AckTimeout {
///     qpn: u32,
/// }
///
/// impl TimerCallback for AckTimeout {
///     fn expired(&self) {
///         if let Some(qp) = TABLE.get(self.qpn) {
///             qp.retransmit();
///         }
///     }
/// }
///
/// let timer = KBox::pin_init(Timer::new(AckTimeout { qpn }), GFP_KERNEL)?;
/// timer.arm(1_000_000);
/// ```
#[pin_data(PinnedDrop)]
pub struct Timer<C: TimerCallback> {
    #[pin]
    raw: Opaque<bindings::timer_list>,
    callback: C,
}

// SAFETY: The timer core serialises all accesses to `raw`; the callback is `Send`.
unsafe impl<C: TimerCallback> Send for Timer<C> {}
// SAFETY: The timer core serialises all accesses to `raw`; the callback is `Sync`.
unsafe impl<C: TimerCallback> Sync for Timer<C> {}

impl<C: TimerCallback> Timer<C> {
    /// Creates a stopped timer.
    ///
    /// Dropping it stops it and waits for a running callback, so a callback must not own it.
    pub fn new(callback: C) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for write and pinned.
            raw <- unsafe {
                Opaque::ffi_init(|raw| bindings::timer_setup(raw, Some(Self::expired), 0))
            },
            callback,
        })
    }

    /// Arms the timer to expire `delay` nanoseconds from now, or moves it there. Rounded up to the
    /// next jiffy. Callable in any context but a hard interrupt.
    pub fn arm(&self, delay: u64) {
        let ns_per_jiffy = 1_000_000_000 / u64::from(kernel::bindings::HZ);
        let jiffies = delay.div_ceil(ns_per_jiffy).min(i32::MAX as u64);
        // SAFETY: `raw` was set up, and `Drop` shuts it down before the memory goes away.
        unsafe {
            bindings::mod_timer(
                self.raw.get(),
                crate::time::jiffies().wrapping_add(jiffies as usize),
            )
        };
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// Only for the timer core, with the `raw` of a [`Timer`].
    unsafe extern "C" fn expired(raw: *mut bindings::timer_list) {
        let this = container_of!(Opaque::cast_from(raw), Self, raw);
        // SAFETY: `raw` is embedded in a `Timer`, which `Drop` keeps alive until this returns.
        let Some(this) = NonNull::new(this.cast_mut()).map(|this| unsafe { this.as_ref() }) else {
            return;
        };
        this.callback.expired();
    }
}

#[pinned_drop]
impl<C: TimerCallback> PinnedDrop for Timer<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` was set up. After this call the callback neither runs nor will run.
        unsafe { bindings::timer_shutdown_sync(self.raw.get()) };
    }
}
