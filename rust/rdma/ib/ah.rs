// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::{
    gid::Path,
    object::{
        errno,
        InPlace,
        Kind,
        Pd, //
    },
    udata::Udata,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

impl<D: Driver> Kind<D> for bindings::ib_ah {
    type Data = D::Ah;
}

/// An address handle.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{ah::Ah, Driver};
/// /// Returns the driver's part of an address handle.
/// fn data<D: Driver>(ah: &Ah<D>) -> &D::Ah {
///     ah
/// }
/// ```
pub type Ah<D> = InPlace<bindings::ib_ah, D>;

/// Implements `ib_device_ops.create_ah` and `create_user_ah`. Sleeps only if the flags allow it.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_ah` bytes.
pub(super) unsafe extern "C" fn create_ah<D: Driver>(
    raw: *mut bindings::ib_ah,
    init: *mut bindings::rdma_ah_init_attr,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let create = || {
        // SAFETY: The core sets the protection domain before the call.
        let pd = unsafe { Pd::<D>::from_raw((*raw).pd) };
        // SAFETY: `init` is valid, and the core references the GID entry for the call.
        let (path, gid) = unsafe { Path::from_raw(&*(*init).ah_attr) }.ok_or(EINVAL)?;
        // SAFETY: `init` is valid.
        let asked = unsafe { (*init).flags };
        let sleepable = asked & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0;
        let flags = match (sleepable, udata.is_null()) {
            (true, false) => GFP_KERNEL_ACCOUNT,
            (true, true) => GFP_KERNEL,
            // A kernel consumer, in any context.
            (false, _) => GFP_ATOMIC,
        };
        // SAFETY: The argument of the core's callback.
        let mut udata = unsafe { Udata::from_raw(udata) };
        let data = D::create_ah(pd, path, &gid, flags, udata.as_mut())?;
        // SAFETY: The allocation has room for it, and stays where it is until `destroy_ah`.
        unsafe { Ah::<D>::construct(raw, Ok(data)) }
    };
    errno(create())
}

/// Implements `ib_device_ops.modify_ah`. Does not sleep.
///
/// # Safety
///
/// Only for the core, with an address handle that [`create_ah`] constructed.
pub(super) unsafe extern "C" fn modify_ah<D: Driver>(
    raw: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> ffi::c_int {
    let modify = || {
        // SAFETY: The handle was constructed, and the core references the GID entry for the call.
        let (ah, path) = unsafe { (Ah::<D>::from_raw(raw), Path::from_raw(&*attr)) };
        let (path, gid) = path.ok_or(EINVAL)?;
        D::modify_ah(ah, path, &gid)
    };
    errno(modify())
}

/// Implements `ib_device_ops.query_ah`.
///
/// # Safety
///
/// Only for the core, with an address handle that [`create_ah`] constructed.
pub(super) unsafe extern "C" fn query_ah<D: Driver>(
    raw: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_attr,
) -> ffi::c_int {
    // SAFETY: The handle was constructed.
    let ah = unsafe { Ah::<D>::from_raw(raw) };
    match D::query_ah(ah) {
        Some(path) => {
            // SAFETY: `attr` is valid for write, and initialised before there is a reference to it.
            let attr = unsafe {
                attr.write(pin_init::zeroed());
                &mut *attr
            };
            path.to_raw(attr);
            0
        }
        None => EINVAL.to_errno(),
    }
}

/// Implements `ib_device_ops.destroy_ah`. Does not sleep.
///
/// # Safety
///
/// Only for the core, with an address handle that [`create_ah`] constructed.
pub(super) unsafe extern "C" fn destroy_ah<D: Driver>(
    raw: *mut bindings::ib_ah,
    _flags: u32,
) -> ffi::c_int {
    // SAFETY: The handle was constructed; this is the last call with it.
    unsafe { Ah::<D>::destroy(raw) };
    0
}
