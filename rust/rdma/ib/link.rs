// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use crate::{
    bindings,
    net::netdevice::NetDevice, //
};
use core::marker::PhantomData;
use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

/// A link type.
///
/// `rdma link delete` does not call the link type: the core unregisters the device.
///
/// # Examples
///
/// ```
/// use core::marker::PhantomData;
/// # use kernel::prelude::*;
/// # use rdma::{ib::{device::DeviceInit, link::LinkType, Device, Driver}, net::NetDevice};
///
/// struct Link<D>(PhantomData<D>);
///
/// impl<D: Driver + Default> LinkType for Link<D> {
///     const TYPE: &'static CStr = c"my_driver";
///
///     fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
///         let init = DeviceInit {
///             name,
///             netdev,
///             node_guid: [0x02, 0, 0, 0xff, 0xfe, 0, 0, 1],
///             node_desc: c"my_driver",
///             comp_vectors: 1,
///         };
///         Device::register(&init, Ok(D::default()))
///     }
/// }
/// ```
pub trait LinkType: 'static {
    /// The name, as in `rdma link add NAME type TYPE`.
    const TYPE: &'static CStr;

    /// Adds a device on a net device. May sleep. The core holds the semaphore of link types for
    /// reading, so calls may overlap, also for the same net device.
    fn newlink(name: &CStr, netdev: &NetDevice) -> Result;
}

/// A registered link type. Dropping it waits for a running `newlink`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::link::{LinkRegistration, LinkType};
/// fn register<T: LinkType>() -> Result<Pin<KBox<LinkRegistration<T>>>> {
///     KBox::pin_init(LinkRegistration::register(), GFP_KERNEL)
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct LinkRegistration<T: LinkType> {
    #[pin]
    ops: Opaque<bindings::rdma_link_ops>,
    _p: PhantomData<T>,
}

// SAFETY: The core serialises accesses to the table.
unsafe impl<T: LinkType> Send for LinkRegistration<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: LinkType> Sync for LinkRegistration<T> {}

impl<T: LinkType> LinkRegistration<T> {
    /// Registers the type. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a type of that name; the core warns about it.
    pub fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            ops <- Opaque::try_ffi_init(|ops: *mut bindings::rdma_link_ops| {
                // SAFETY: `ops` is valid for write and pinned; if it was added to the list of the
                // core, it is unregistered before it goes away. The core adds it unless the name is
                // taken; no one else adds it or removes it.
                let is_added = unsafe {
                    ops.write(pin_init::zeroed());
                    (*ops).type_ = T::TYPE.as_char_ptr();
                    (*ops).newlink = Some(newlink::<T>);
                    bindings::INIT_LIST_HEAD(&raw mut (*ops).list);
                    bindings::rdma_link_register(ops);
                    (*ops).list.next != &raw mut (*ops).list
                };
                if is_added {
                    Ok(())
                } else {
                    Err(EEXIST)
                }
            }),
            _p: PhantomData,
        })
    }
}

#[pinned_drop]
impl<T: LinkType> PinnedDrop for LinkRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The table was registered.
        unsafe { bindings::rdma_link_unregister(self.ops.get()) };
    }
}

/// Implements `rdma_link_ops.newlink`.
///
/// # Safety
///
/// Only for the core.
unsafe extern "C" fn newlink<T: LinkType>(
    name: *const ffi::c_char,
    netdev: *mut bindings::net_device,
) -> ffi::c_int {
    // SAFETY: The name is a C string, and the core holds the net device for the call.
    let (name, netdev) = unsafe { (crate::c_str(name), NetDevice::from_raw(netdev)) };
    super::object::errno(T::newlink(name, netdev))
}
