// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys to a part of a region that requests bind and invalidate.

use super::{
    object::{
        errno,
        InPlace,
        Kind,
        Pd, //
    },
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

impl<D: Driver> Kind<D> for bindings::ib_mw {
    type Data = D::Mw;
}

/// A memory window.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{mw::Mw, Driver};
/// fn rkey<D: Driver>(mw: &Mw<D>) -> u32 {
///     D::mw_rkey(mw)
/// }
/// ```
pub type Mw<D> = InPlace<bindings::ib_mw, D>;

/// `enum ib_mw_type`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::mw::MwType;
///
/// fn check(ty: MwType) -> Result {
///     match ty {
///         MwType::One => Err(EOPNOTSUPP),
///         MwType::Two => Ok(()),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MwType {
    /// For every queue pair of its protection domain. Bound anew by each request.
    One,
    /// For the queue pair that binds it, until it is invalidated.
    Two,
}

/// Implements `ib_device_ops.alloc_mw`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_mw` bytes whose protection domain and type are
/// set.
pub(super) unsafe extern "C" fn alloc_mw<D: Driver>(
    raw: *mut bindings::ib_mw,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let create = || {
        // SAFETY: The window is valid, and the core has set its type.
        let ty = match unsafe { (*raw).type_ } {
            bindings::ib_mw_type_IB_MW_TYPE_1 => MwType::One,
            bindings::ib_mw_type_IB_MW_TYPE_2 => MwType::Two,
            _ => return Err(EINVAL),
        };
        // SAFETY: The core has set the domain, which is alive for the call.
        let data = D::alloc_mw(unsafe { Pd::from_raw((*raw).pd) }, ty)?;
        // SAFETY: The allocation has room for it, and stays where it is until `dealloc_mw`.
        unsafe {
            (*raw).rkey = D::mw_rkey(&data);
            Mw::<D>::construct(raw, Ok(data))
        }
    };
    errno(create())
}

/// Implements `ib_device_ops.dealloc_mw`. May sleep.
///
/// # Safety
///
/// Only for the core, with a window that [`alloc_mw`] constructed.
pub(super) unsafe extern "C" fn dealloc_mw<D: Driver>(raw: *mut bindings::ib_mw) -> ffi::c_int {
    // SAFETY: The window was constructed; this is the last call with it.
    unsafe { Mw::<D>::destroy(raw) };
    0
}
