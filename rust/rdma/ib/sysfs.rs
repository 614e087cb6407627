// SPDX-License-Identifier: GPL-2.0

//! Attributes of a device in sysfs.
//!
//! `/sys/class/infiniband/*/parent` has the name of the net device, as for other drivers of devices
//! on net devices. Scripts and the udev rules of rdma-core read it.
//!
//! C header: [`include/linux/device.h`](srctree/include/linux/device.h)

use crate::{
    bindings,
    ib::ops::PORT,
    net::NetDevice, //
};
use core::{
    mem::zeroed,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    container_of,
    ffi,
    sync::aref::ARef, //
};

/// An object of the driver core that never changes.
#[repr(transparent)]
struct Fixed<T>(T);

// SAFETY: The driver core only reads it.
unsafe impl Sync for Fixed<bindings::device_attribute> {}
// SAFETY: As above.
unsafe impl Sync for Fixed<[*mut bindings::attribute; 2]> {}
// SAFETY: As above.
unsafe impl Sync for Fixed<bindings::attribute_group> {}

static PARENT: Fixed<bindings::device_attribute> = Fixed({
    // SAFETY: Null pointers and numbers.
    let mut attribute: bindings::device_attribute = unsafe { zeroed() };
    attribute.attr.name = c"parent".to_bytes_with_nul().as_ptr().cast();
    attribute.attr.mode = 0o444;
    attribute.__bindgen_anon_1.show = Some(show_parent);
    attribute
});

static ATTRIBUTES: Fixed<[*mut bindings::attribute; 2]> =
    Fixed([(&raw const PARENT.0.attr).cast_mut(), null_mut()]);

static GROUP: Fixed<bindings::attribute_group> = Fixed({
    // SAFETY: Null pointers.
    let mut group: bindings::attribute_group = unsafe { zeroed() };
    group.__bindgen_anon_2.attrs = (&raw const ATTRIBUTES.0).cast_mut().cast();
    group
});

/// `ib_device_ops.device_group`.
pub(super) const DEVICE_GROUP: *const bindings::attribute_group = &raw const GROUP.0;

/// `device_attribute.show` of `parent`.
///
/// # Safety
///
/// Only for the driver core, with a device of a [`Device`](super::Device) and a page.
unsafe extern "C" fn show_parent(
    device: *mut bindings::device,
    _: *mut bindings::device_attribute,
    page: *mut ffi::c_char,
) -> isize {
    let core = container_of!(device, bindings::ib_core_device, dev);
    // SAFETY: The device is alive for the call. The function returns a reference, or null.
    let netdev = unsafe {
        let netdev = bindings::ib_device_get_netdev((*core).owner, PORT);
        NonNull::new(netdev).map(|dev| ARef::<NetDevice>::from_raw(dev.cast()))
    };
    let mut len = 0;
    if let Some(netdev) = netdev {
        for byte in netdev.name().into_iter().take_while(|byte| *byte != 0) {
            // SAFETY: A name is shorter than a page.
            unsafe { page.add(len).cast::<u8>().write(byte) };
            len = len.wrapping_add(1);
        }
    }
    // SAFETY: As above.
    unsafe { page.add(len).cast::<u8>().write(b'\n') };
    // CAST: A few bytes.
    len.wrapping_add(1) as isize
}
