// SPDX-License-Identifier: GPL-2.0

//! The end of network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::NetId;
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};

/// Handles the end of network namespaces.
///
/// # Examples
///
/// ```
/// # use kernel::{
/// #     prelude::*,
/// #     sync::Mutex, //
/// # };
/// # use rdma::net::{
/// #     NetDevice,
/// #     SkBuffList,
/// #     UdpReceive, //
/// # };
/// use rdma::{
///     list,
///     net::{
///         NetId,
///         PernetHandler,
///         UdpTunnel, //
///     },
///     sync::Global, //
/// };
///
/// # struct Receiver;
/// # impl UdpReceive for Receiver {
/// #     fn receive(_packets: SkBuffList, _netdev: &NetDevice) {}
/// # }
/// // `Receiver` implements `UdpReceive`.
/// static OPEN: Global<Mutex<KVec<(NetId, UdpTunnel<Receiver>)>>> = Global::new();
///
/// struct Namespaces;
///
/// impl PernetHandler for Namespaces {
///     fn exit(net: NetId) {
///         if let Some(open) = OPEN.get() {
///             list::retain(&mut open.lock(), |(id, _)| *id != net);
///         }
///     }
/// }
/// ```
pub trait PernetHandler: 'static {
    /// Called when a namespace is dismantled, and for every namespace when the registration is
    /// dropped; may sleep.
    ///
    /// A namespace that ends is unused: all its devices have been unregistered or moved to the
    /// initial namespace, and their events are over. When the registration is dropped, namespaces
    /// may be in use. UDP still works, because its exit handler was registered earlier and so runs
    /// later. Release the sockets that the module opened there: they do not hold the namespace and
    /// must not outlive it.
    fn exit(net: NetId);
}

/// Calls `T` for each namespace that ends, until it is dropped. Dropping may sleep.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::net::{
///     NetId,
///     PernetHandler,
///     PernetRegistration, //
/// };
///
/// # struct Namespaces;
/// # impl PernetHandler for Namespaces {
/// #     fn exit(_net: NetId) {}
/// # }
/// // `Namespaces` implements `PernetHandler`.
/// let registration = KBox::pin_init(PernetRegistration::<Namespaces>::register(), GFP_KERNEL)?;
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct PernetRegistration<T: PernetHandler> {
    #[pin]
    ops: Opaque<bindings::pernet_operations>,
    _p: PhantomData<fn() -> T>,
}

// SAFETY: `ops` is only touched by the core, under the lock of the latter.
unsafe impl<T: PernetHandler> Send for PernetRegistration<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: PernetHandler> Sync for PernetRegistration<T> {}

impl<T: PernetHandler> PernetRegistration<T> {
    /// Starts to call `T`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::pernet_operations| {
                // `exit`, not `pre_exit`: that one runs while the devices are still there, so that
                // a socket could be opened again after it.
                // SAFETY: `ops` is valid for write.
                unsafe {
                    ops.write(bindings::pernet_operations {
                        exit: Some(Self::exit_callback),
                        ..pin_init::zeroed()
                    })
                };
                // SAFETY: `ops` is initialised, pinned, and unregistered before it is freed.
                to_result(unsafe { bindings::register_pernet_subsys(ops) })
            }),
            _p: PhantomData,
        })
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// `net` must point to a `struct net` that is not freed during the call.
    unsafe extern "C" fn exit_callback(net: *mut bindings::net) {
        // SAFETY: By the requirement of this function.
        T::exit(unsafe { NetId::from_raw(net) });
    }
}

#[pinned_drop]
impl<T: PernetHandler> PinnedDrop for PernetRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `ops` was registered by `register`.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) };
    }
}
