// SPDX-License-Identifier: GPL-2.0

//! Timers of jiffy resolution that call a function with a number.
//!
//! The kernel's `HrTimer` abstraction cancels when a handle is dropped, and each arming makes a new
//! handle: moving a retransmission deadline with it would cancel the timer just armed. This one is
//! moved by arming it again. It knows its user by a number, to be looked up in a
//! [`Table`](crate::sync::Table), so that neither keeps the other alive.
//!
//! ```text
//!             arm()                  expires
//!   stopped ---------> armed -------------------> callback(cookie), stopped
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

/// A `struct timer_list` and its callback.
#[pin_data(PinnedDrop)]
pub struct Timer {
    #[pin]
    raw: Opaque<bindings::timer_list>,
    callback: fn(u32),
    cookie: u32,
}

// SAFETY: The timer core serialises all accesses to `raw`; the rest is never written.
unsafe impl Send for Timer {}
// SAFETY: As for `Send`.
unsafe impl Sync for Timer {}

impl Timer {
    /// Creates a stopped timer that will call `callback(cookie)` in softirq context.
    ///
    /// Dropping it stops it and waits for a running callback, so a callback must not own it.
    pub fn new(callback: fn(u32), cookie: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for write and pinned.
            raw <- unsafe {
                Opaque::ffi_init(|raw| bindings::timer_setup(raw, Some(Self::expired), 0))
            },
            callback,
            cookie,
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
        (this.callback)(this.cookie);
    }
}

#[pinned_drop]
impl PinnedDrop for Timer {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` was set up. After this call the callback neither runs nor will run.
        unsafe { bindings::timer_shutdown_sync(self.raw.get()) };
    }
}
