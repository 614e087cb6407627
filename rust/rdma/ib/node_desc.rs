// SPDX-License-Identifier: GPL-2.0

//! The description of a device, which an administrator may change (`node_desc` in sysfs).

use super::{
    device::Device,
    object::errno,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

/// A description of a device: a C string, unless it fills the array.
///
/// # Examples
///
/// ```
/// use rdma::ib::NodeDesc;
///
/// fn is_empty(desc: &NodeDesc) -> bool {
///     desc.first() == Some(&0)
/// }
/// ```
pub type NodeDesc = [u8; LEN];

/// Bytes of a description.
// CAST: The value is 64.
const LEN: usize = bindings::IB_DEVICE_NODE_DESC_MAX as usize;

impl<D: Driver> Device<D> {
    /// Changes the description.
    fn set_node_desc(&self, desc: &NodeDesc) {
        // SAFETY: The device is alive; only an address is computed.
        let to = unsafe { (&raw mut (*self.as_raw()).node_desc).cast::<u8>() };
        for (i, byte) in desc.iter().enumerate() {
            // SAFETY: `i` is an index of the array, which is valid as long as the device. The core
            // reads it, and calls this, under no lock, so each byte is written once, by a volatile
            // access like `WRITE_ONCE()`.
            unsafe { to.add(i).write_volatile(*byte) };
        }
    }
}

/// Implements `ib_device_ops.modify_device`, for the description only. May sleep.
///
/// # Safety
///
/// Only for the core, with a live device and attributes valid for read.
pub(super) unsafe extern "C" fn modify_device<D: Driver>(
    raw: *mut bindings::ib_device,
    mask: ffi::c_int,
    attr: *mut bindings::ib_device_modify,
) -> ffi::c_int {
    // CAST: A small constant.
    const NODE_DESC: ffi::c_int =
        bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC as ffi::c_int;

    if mask & !NODE_DESC != 0 {
        return EOPNOTSUPP.to_errno();
    }
    if mask == 0 {
        return 0;
    }
    // SAFETY: The device is alive, and `attr` is valid.
    let (dev, desc) = unsafe { (Device::<D>::from_raw(raw), &(*attr).node_desc) };
    errno(D::modify_node_desc(dev, desc).map(|()| dev.set_node_desc(desc)))
}
