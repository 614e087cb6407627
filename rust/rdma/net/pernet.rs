// SPDX-License-Identifier: GPL-2.0

//! Registration of handlers of network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::{
    namespace::{
        NetId,
        REGISTERED, //
    },
    route,
    udp_tunnel, //
};
use crate::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Relaxed,
        Release, //
    },
    types::Opaque, //
};

/// Closes the sockets and releases the cached routes of each namespace that ends. Without it no
/// socket is opened and no route is cached.
///
/// Dropping it does the same for all namespaces, and may sleep.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::net::NetRegistration;
///
/// /// A module that opens sockets and caches routes.
/// #[pin_data]
/// struct Module {
///     #[pin]
///     _net: NetRegistration,
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct NetRegistration {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
}

// SAFETY: `ops` is only touched by the core, under the lock of the latter.
unsafe impl Send for NetRegistration {}
// SAFETY: As for `Send`.
unsafe impl Sync for NetRegistration {}

impl NetRegistration {
    /// Registers the handlers, once in a module. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if this was called before, even if it failed; `ENOMEM`.
    pub fn register() -> impl PinInit<Self, Error> {
        // `exit`, not `pre_exit`, so that the port stays in use as long as there are net devices.
        // UDP still works then: its exit handler was registered earlier, and so runs later.
        let operations = bindings::pernet_operations {
            init: Some(route::init_list),
            exit: Some(exit_callback),
            id: route::ID.as_ptr(),
            size: size_of::<bindings::list_head>(),
            ..pin_init::zeroed()
        };
        try_pin_init!(Self {
            _: {
                udp_tunnel::init()?;
                route::init()?;
            },
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::pernet_operations| {
                // SAFETY: `ops` is valid for write.
                unsafe { ops.write(operations) };
                // SAFETY: `ops` is initialised, pinned, and unregistered before it is freed. The
                // handlers take any namespace, with a list of its own. Only the core writes to the
                // id, which is static.
                to_result(unsafe { bindings::register_pernet_subsys(ops) })
            }),
            _: { REGISTERED.store(true, Release) },
        })
    }
}

#[pinned_drop]
impl PinnedDrop for NetRegistration {
    fn drop(self: Pin<&mut Self>) {
        REGISTERED.store(false, Relaxed);
        // The core calls the exit handler for every namespace, after a grace period. So the handler
        // finds every socket that was opened and every route that was cached.
        //
        // SAFETY: `ops` was registered by `register`.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
    }
}

/// Closes the sockets and releases the routes of a namespace. Called when it is dismantled, and for
/// every namespace when the handlers are unregistered; may sleep.
///
/// # Safety
///
/// Only for the core.
unsafe extern "C" fn exit_callback(net: *mut bindings::net) {
    // SAFETY: The core does not free the namespace during the call.
    udp_tunnel::close_all(unsafe { NetId::from_raw(net) });
    // SAFETY: This is the exit handler.
    unsafe { route::release_all(net) };
}
