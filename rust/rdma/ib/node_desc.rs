// SPDX-License-Identifier: GPL-2.0

//! The description of a device, which an administrator may change (`node_desc` in sysfs).

use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

/// Implements `ib_device_ops.modify_device`, for the description only. May sleep.
///
/// The driver is not asked: without a subnet manager, no peer needs to know.
///
/// # Safety
///
/// Only for the core, with a live device and attributes valid for read.
pub(super) unsafe extern "C" fn modify_device(
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
    // SAFETY: The device is alive, and only the address of its field is computed; `attr` is valid.
    let (to, desc) = unsafe { (&raw mut (*raw).node_desc, &(*attr).node_desc) };
    for (i, byte) in desc.iter().enumerate() {
        // SAFETY: `i` is an index of the array, which is valid as long as the device. The core
        // reads it, and calls this, under no lock, so each byte is written once, by a volatile
        // access like `WRITE_ONCE()`.
        unsafe { to.cast::<u8>().add(i).write_volatile(*byte) };
    }
    0
}
