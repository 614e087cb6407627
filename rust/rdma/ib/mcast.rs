// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of queue pairs.

use super::{
    object::errno,
    qp::Qp,
    Driver, //
};
use crate::bindings;
use kernel::ffi;

/// Implements `ib_device_ops.attach_mcast`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and a valid GID.
pub(super) unsafe extern "C" fn attach_mcast<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed, and a GID is plain bytes.
    let (qp, gid) = unsafe { (Qp::<D>::owned(raw), *(*gid).raw.as_ref()) };
    errno(D::attach_mcast(qp, gid))
}

/// Implements `ib_device_ops.detach_mcast`. May sleep.
///
/// # Safety
///
/// As for [`attach_mcast`].
pub(super) unsafe extern "C" fn detach_mcast<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed, and a GID is plain bytes.
    let (qp, gid) = unsafe { (Qp::<D>::owned(raw), *(*gid).raw.as_ref()) };
    errno(D::detach_mcast(qp, gid))
}
