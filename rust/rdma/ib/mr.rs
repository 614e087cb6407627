// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::{
    object::{
        errno,
        Pd, //
    },
    umem::DmaMemory,
    Access,
    Driver, //
};
use crate::{
    bindings,
    sync::Owned, //
};
use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

/// What the core gets a pointer to. Allocated here: the core leaves that to the driver.
#[repr(C)]
struct MrObject<D: Driver> {
    raw: Opaque<bindings::ib_mr>,
    owned: Owned<D::Mr>,
}

/// The keys of a region.
#[derive(Clone, Copy)]
pub struct Keys {
    /// For local requests.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// A part of a process' address space, and the address that requests use for its start.
#[derive(Clone, Copy)]
pub struct UserRange {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The address that requests use for the first byte.
    pub iova: u64,
}

impl<D: Driver> MrObject<D> {
    /// Hands a region to the core.
    fn create(pd: *mut bindings::ib_pd, owned: Owned<D::Mr>) -> Result<*mut bindings::ib_mr> {
        let object = KBox::new(
            Self {
                raw: Opaque::zeroed(),
                owned,
            },
            GFP_KERNEL,
        )?;
        let keys = D::publish_mr(&object.owned);
        let object = KBox::into_raw(object);
        let raw = object.cast::<bindings::ib_mr>();
        // SAFETY: `raw` is the first field of the allocation, and zeroed; `pd` is alive.
        unsafe {
            (*raw).device = (*pd).device;
            (*raw).pd = pd;
            (*raw).lkey = keys.lkey;
            (*raw).rkey = keys.rkey;
        }
        Ok(raw)
    }
}

/// Returns the result of a callback as the C core wants it.
fn ptr_or_err(result: Result<*mut bindings::ib_mr>) -> *mut bindings::ib_mr {
    match result {
        Ok(raw) => raw,
        Err(e) => e.to_ptr(),
    }
}

/// `ib_device_ops.reg_user_mr`: may sleep.
///
/// # Safety
///
/// Only for the core, with a live protection domain.
pub(super) unsafe extern "C" fn reg_user_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    len: u64,
    iova: u64,
    access: ffi::c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let create = || {
        if !dmah.is_null() {
            return Err(EOPNOTSUPP);
        }
        let range = UserRange { start, len, iova };
        // CAST: A mask of flags.
        let access = Access::from_raw(access as u32);
        // SAFETY: The domain is alive for the call.
        let data = D::reg_user_mr(unsafe { Pd::from_raw(pd) }, range, access)?;
        MrObject::<D>::create(pd, Owned::new(Ok(data))?)
    };
    ptr_or_err(create())
}

/// `ib_device_ops.get_dma_mr`: may sleep.
///
/// # Safety
///
/// Only for the core, with a live protection domain of a kernel consumer.
pub(super) unsafe extern "C" fn get_dma_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    access: ffi::c_int,
) -> *mut bindings::ib_mr {
    let create = || {
        // SAFETY: Only kernel consumers reach this callback, and the region is found only by
        // requests of queue pairs in its protection domain.
        let memory = unsafe { DmaMemory::new() };
        // CAST: A mask of flags.
        let access = Access::from_raw(access as u32);
        // SAFETY: The domain is alive for the call.
        let data = D::get_dma_mr(unsafe { Pd::from_raw(pd) }, memory, access)?;
        MrObject::<D>::create(pd, Owned::new(Ok(data))?)
    };
    ptr_or_err(create())
}

/// `ib_device_ops.dereg_mr`: may sleep.
///
/// # Safety
///
/// Only for the core, with a region of [`reg_user_mr`] or [`get_dma_mr`].
pub(super) unsafe extern "C" fn dereg_mr<D: Driver>(
    raw: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The region was made by `MrObject::create`; this is the last call with it.
    let object = unsafe { KBox::<MrObject<D>>::from_raw(raw.cast()) };
    D::dereg_mr(&object.owned);
    // The drop waits for every packet that is using the region, then releases its memory.
    drop(object);
    errno(Ok(()))
}
