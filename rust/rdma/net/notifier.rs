// SPDX-License-Identifier: GPL-2.0

//! Events of network devices.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::NetDevice;
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    types::Opaque, //
};

/// An event of a network device.
///
/// # Examples
///
/// ```
/// use rdma::net::NetdevEvent;
///
/// /// Returns whether the state of a port may have changed.
/// fn changes_port(event: &NetdevEvent) -> bool {
///     matches!(
///         event,
///         NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change
///     )
/// }
/// ```
pub enum NetdevEvent {
    /// It is up.
    Up,
    /// It is down.
    Down,
    /// Its flags or its carrier changed.
    Change,
    /// Its MTU changed.
    ChangeMtu,
    /// It is about to be removed, or moved to another namespace: drop every reference to it.
    Unregister,
    /// Something else.
    Other,
}

impl From<ffi::c_ulong> for NetdevEvent {
    fn from(event: ffi::c_ulong) -> Self {
        match u32::try_from(event) {
            Ok(bindings::netdev_cmd_NETDEV_UP) => Self::Up,
            Ok(bindings::netdev_cmd_NETDEV_DOWN) => Self::Down,
            Ok(bindings::netdev_cmd_NETDEV_CHANGE) => Self::Change,
            Ok(bindings::netdev_cmd_NETDEV_CHANGEMTU) => Self::ChangeMtu,
            Ok(bindings::netdev_cmd_NETDEV_UNREGISTER) => Self::Unregister,
            _ => Self::Other,
        }
    }
}

/// Handles the events of all network devices of all namespaces.
///
/// # Examples
///
/// ```
/// use core::marker::PhantomData;
/// # use rdma::{ib::{Device, Driver}, net::{NetDevice, NetdevEvent, NetdevHandler}};
///
/// struct Link<D>(PhantomData<D>);
///
/// impl<D: Driver> NetdevHandler for Link<D> {
///     fn event(netdev: &NetDevice, event: NetdevEvent) {
///         if let NetdevEvent::Unregister = event {
///             Device::<D>::unregister_queued_on(netdev);
///         }
///     }
/// }
/// ```
pub trait NetdevHandler: 'static {
    /// Called with RTNL held; may sleep.
    ///
    /// Registering replays `Up` for each device that is up. Unregistering replays `Down` for these
    /// and `Unregister` for every device: unregister last, or make this handle them.
    fn event(dev: &NetDevice, event: NetdevEvent);
}

/// Calls `T` for each event until it is dropped. Dropping takes RTNL and may sleep.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::net::{NetdevHandler, NetdevNotifier};
/// fn register<T: NetdevHandler>() -> Result<Pin<KBox<NetdevNotifier<T>>>> {
///     KBox::pin_init(NetdevNotifier::register(), GFP_KERNEL)
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct NetdevNotifier<T: NetdevHandler> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    _p: PhantomData<fn() -> T>,
}

// SAFETY: `block` is only touched by the notifier chain, under the lock of the latter.
unsafe impl<T: NetdevHandler> Send for NetdevNotifier<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: NetdevHandler> Sync for NetdevNotifier<T> {}

impl<T: NetdevHandler> NetdevNotifier<T> {
    /// Starts to call `T`. Takes RTNL and may sleep; calls `T` before it returns.
    ///
    /// # Errors
    ///
    /// The error of `register_netdevice_notifier()`, which today cannot fail for a handler that
    /// refuses nothing.
    pub fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block <- Opaque::try_ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: `block` is valid for write.
                unsafe {
                    block.write(bindings::notifier_block {
                        notifier_call: Some(Self::notifier_callback),
                        ..pin_init::zeroed()
                    })
                };
                // SAFETY: `block` is initialised, pinned, and unregistered before it is freed.
                to_result(unsafe { bindings::register_netdevice_notifier(block) })
            }),
            _p: PhantomData,
        })
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// `info` must be a `struct netdev_notifier_info` of a device that outlives the call.
    unsafe extern "C" fn notifier_callback(
        _block: *mut bindings::notifier_block,
        event: ffi::c_ulong,
        info: *mut ffi::c_void,
    ) -> ffi::c_int {
        // SAFETY: The chain of network devices passes that structure, by the requirement of this
        // function, and the device is not freed while its event is handled.
        let dev =
            unsafe { NetDevice::from_raw(bindings::netdev_notifier_info_to_dev(info.cast())) };

        T::event(dev, NetdevEvent::from(event));
        // CAST: The value is 1.
        bindings::NOTIFY_OK as ffi::c_int
    }
}

#[pinned_drop]
impl<T: NetdevHandler> PinnedDrop for NetdevNotifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `block` was registered by `register`. Unregistering fails only for a block that
        // was not.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}
