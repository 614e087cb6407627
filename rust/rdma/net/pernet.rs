// SPDX-License-Identifier: GPL-2.0

//! Registration of handlers of network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use crate::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// A registered `struct pernet_operations`.
///
/// Dropping it calls the exit handler for each namespace, and may sleep.
#[pin_data(PinnedDrop)]
pub(super) struct Pernet {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
}

// SAFETY: `ops` is only touched by the core, under the lock of the latter.
unsafe impl Send for Pernet {}
// SAFETY: As for `Send`.
unsafe impl Sync for Pernet {}

impl Pernet {
    /// Registers handlers. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of the init handler.
    ///
    /// # Safety
    ///
    /// The core may call the handlers for any namespace, and write to `id`, until this is dropped.
    pub(super) unsafe fn register(
        operations: bindings::pernet_operations,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::pernet_operations| {
                // SAFETY: `ops` is valid for write.
                unsafe { ops.write(operations) };
                // SAFETY: `ops` is initialised, pinned, and unregistered before it is freed. The
                // handlers may be called by the requirement of this function.
                to_result(unsafe { bindings::register_pernet_subsys(ops) })
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Pernet {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `ops` was registered by `register`.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
    }
}
