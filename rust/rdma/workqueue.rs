// SPDX-License-Identifier: GPL-2.0

//! A work queue of the module's own, and work items that call a function with a number.
//!
//! As [`Timer`](crate::timer::Timer)s, work items know their user by number, so that a pending item
//! keeps nobody alive.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    container_of,
    prelude::*,
    types::Opaque, //
};

/// An unbound work queue. Dropping it waits for every item that is queued.
///
/// # Invariants
///
/// The pointer is to a work queue that this value owns.
pub struct Workqueue(NonNull<bindings::workqueue_struct>);

// SAFETY: The functions of a work queue may be called from any thread.
unsafe impl Send for Workqueue {}
// SAFETY: As for `Send`.
unsafe impl Sync for Workqueue {}

impl Workqueue {
    /// Allocates a work queue. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` is a C string, and it is copied.
        let wq = unsafe { bindings::alloc_workqueue_unbound(name.as_char_ptr()) };
        // INVARIANT: The queue was just allocated.
        Ok(Self(NonNull::new(wq).ok_or(ENOMEM)?))
    }

    /// Queues an item; returns `false` if it was queued already. Callable in any context.
    pub fn queue(&self, work: &Work) -> bool {
        // SAFETY: The queue is alive by the type invariant, and `Work` cancels itself before its
        // memory goes away.
        unsafe { bindings::queue_work(self.0.as_ptr(), work.raw.get()) }
    }

    /// Waits until every item queued before has run. May sleep.
    pub fn flush(&self) {
        // SAFETY: The queue is alive by the type invariant.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Drop for Workqueue {
    fn drop(&mut self) {
        // SAFETY: This value owns the queue.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// A `struct work_struct` and what it calls.
#[pin_data(PinnedDrop)]
pub struct Work {
    #[pin]
    raw: Opaque<bindings::work_struct>,
    callback: fn(u32),
    cookie: u32,
}

// SAFETY: The work queue core serialises all accesses to `raw`; the rest is never written.
unsafe impl Send for Work {}
// SAFETY: As for `Send`.
unsafe impl Sync for Work {}

impl Work {
    /// Creates an item that will call `callback(cookie)` in process context.
    ///
    /// Dropping it cancels it and waits for a running callback, so a callback must not own it.
    pub fn new(callback: fn(u32), cookie: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for write and pinned.
            raw <- unsafe {
                Opaque::ffi_init(|raw| bindings::INIT_WORK(raw, Some(Self::run)))
            },
            callback,
            cookie,
        })
    }

    /// The C callback.
    unsafe extern "C" fn run(raw: *mut bindings::work_struct) {
        let this = container_of!(Opaque::cast_from(raw), Self, raw);
        // SAFETY: `raw` is embedded in a `Work`, which `Drop` keeps alive until this returns.
        let Some(this) = NonNull::new(this.cast_mut()).map(|this| unsafe { this.as_ref() }) else {
            return;
        };
        (this.callback)(this.cookie);
    }
}

#[pinned_drop]
impl PinnedDrop for Work {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `raw` was initialised. After this call the callback neither runs nor will run:
        // nobody has a reference to queue it again.
        unsafe { bindings::cancel_work_sync(self.raw.get()) };
    }
}
