// SPDX-License-Identifier: GPL-2.0

//! References that keep a device registered.
//!
//! `ib_device.refcount` counts them. It is not the reference count of `struct device`, which only
//! keeps the allocation.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use super::{
    Device,
    Driver, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

/// A reference that keeps a device of any driver registered.
///
/// While it exists, the core does not finish to unregister the device, or to move it to another
/// namespace: both remove the clients first, and then wait for it. If it is not dropped by then,
/// they wait forever.
///
/// # Invariants
///
/// The device is registered, and this value owns one of its references.
pub(super) struct Registered(NonNull<bindings::ib_device>);

// SAFETY: The count is atomic, and any thread may drop the last reference.
unsafe impl Send for Registered {}
// SAFETY: As for `Send`.
unsafe impl Sync for Registered {}

impl Registered {
    /// Takes a reference; `None` if the device is not registered. Callable in any context.
    ///
    /// # Safety
    ///
    /// `raw` must be a device that is not freed during the call.
    pub(super) unsafe fn get(raw: NonNull<bindings::ib_device>) -> Option<Self> {
        // SAFETY: By the requirement of this function.
        let is_taken = unsafe { bindings::ib_device_try_get(raw.as_ptr()) };
        // A closure: `then_some` would construct and drop a value, which would put a reference.
        // INVARIANT: The count was not 0, so the device is registered. The new value owns the
        // reference that was added.
        is_taken.then(|| Self(raw))
    }

    /// Takes over a reference of the caller.
    ///
    /// # Safety
    ///
    /// `raw` must be a registered device, and the caller must own a reference to it.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::ib_device>) -> Self {
        // INVARIANT: By the requirement of this function.
        Self(raw)
    }

    /// Returns the device.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }
}

impl Clone for Registered {
    fn clone(&self) -> Self {
        // SAFETY: The device is registered. INVARIANT: This value owns a reference, so the count is
        // not 0 and one is added.
        unsafe { bindings::ib_device_try_get(self.as_raw()) };
        Self(self.0)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: This value owns a reference.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// A reference that keeps a device registered.
///
/// # Invariants
///
/// The device is of `D`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{Device, DeviceRef, Driver};
/// # use rdma::net::NetDevice;
/// fn find<D: Driver>(netdev: &NetDevice) -> Result<DeviceRef<D>> {
///     Device::by_netdev(netdev).ok_or(ENODEV)
/// }
/// ```
pub struct DeviceRef<D: Driver> {
    device: Registered,
    _p: PhantomData<D>,
}

impl<D: Driver> DeviceRef<D> {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// The device must be of `D`.
    pub(super) unsafe fn new(device: Registered) -> Self {
        // INVARIANT: By the requirement of this function.
        Self {
            device,
            _p: PhantomData,
        }
    }
}

impl<D: Driver> Deref for DeviceRef<D> {
    type Target = Device<D>;

    fn deref(&self) -> &Device<D> {
        // SAFETY: The device is valid while it is referenced, and is of `D` by the type invariant.
        unsafe { Device::from_raw(self.device.as_raw()) }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_ib_registered)]
mod tests {
    use super::*;

    #[test]
    fn device_that_is_not_registered_has_no_reference() {
        // SAFETY: The initial namespace always exists, and the size is that of the structure.
        let raw = unsafe {
            bindings::_ib_alloc_device(
                size_of::<bindings::ib_device>(),
                &raw mut bindings::init_net,
            )
        };
        let raw = NonNull::new(raw).unwrap();
        // The second call shows that the first one has put nothing.
        for _ in 0..2 {
            // SAFETY: The device was allocated, and is freed below.
            assert!(unsafe { Registered::get(raw) }.is_none());
        }
        // SAFETY: The device is not registered, and not used any more.
        unsafe { bindings::ib_dealloc_device(raw.as_ptr()) };
    }
}
