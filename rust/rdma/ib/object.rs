// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates: protection domains and user contexts.
//!
//! ```text
//!   core's kzalloc(size from the ops table)
//!   +------------------+--------------------------------------------+
//!   | struct ib_pd     | what the driver constructs in place        |  pd, ucontext, ah
//!   +------------------+--------------------------------------------+
//!   | struct ib_qp     | Owned<Qp<D>> ---> allocation of our own    |  qp, cq
//!   +------------------+--------------------------------------------+
//! ```
//!
//! The core frees its allocation with a plain `kfree()` right after the destroy callback, so what
//! is looked up under RCU does not live there.

use super::{
    udata::Udata,
    Device,
    Driver, //
};
use crate::bindings;
use core::{
    alloc::Layout,
    ops::Deref, //
};
use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

/// Returns the size that makes kmalloc's alignment cover that of `T`.
pub(super) const fn alloc_size<T>() -> usize {
    Layout::new::<T>().pad_to_align().size()
}

/// Returns the result of a callback as the C core wants it.
pub(super) fn errno(result: Result) -> ffi::c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Identity of a protection domain, for comparison only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PdId(usize);

impl PdId {
    /// Returns the identity of a `struct ib_pd`.
    pub(super) fn of(pd: *const bindings::ib_pd) -> Self {
        Self(pd.addr())
    }
}

/// A user process' context of the device.
#[repr(C)]
pub struct Ucontext<D: Driver> {
    raw: Opaque<bindings::ib_ucontext>,
    data: D::Ucontext,
}

impl<D: Driver> Ucontext<D> {
    /// Borrows a context.
    ///
    /// # Safety
    ///
    /// `raw` must be null or a context of a device of `D` that is valid for the lifetime.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_ucontext) -> Option<&'a Self> {
        // SAFETY: By the requirement of this function, and because `raw` is the first field.
        unsafe { raw.cast::<Self>().as_ref() }
    }
}

impl<D: Driver> Deref for Ucontext<D> {
    type Target = D::Ucontext;

    fn deref(&self) -> &Self::Target {
        &self.data
    }
}

/// `ib_device_ops.alloc_ucontext`: may sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_ucontext` bytes.
pub(super) unsafe extern "C" fn alloc_ucontext<D: Driver>(
    raw: *mut bindings::ib_ucontext,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The core sets the device before the call.
    let dev = unsafe { Device::<D>::from_raw((*raw).device) };
    // SAFETY: The allocation has room for an `Ucontext<D>`.
    let data = unsafe { &raw mut (*raw.cast::<Ucontext<D>>()).data };
    // SAFETY: `data` is valid for write and stays where it is until `dealloc_ucontext`.
    errno(unsafe { pin_init::raw_try_init(data, D::alloc_ucontext(dev)) })
}

/// `ib_device_ops.dealloc_ucontext`: may sleep.
///
/// # Safety
///
/// Only for the core, with a context that [`alloc_ucontext`] constructed.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(raw: *mut bindings::ib_ucontext) {
    // SAFETY: The context was constructed; this is the last call with it.
    unsafe { core::ptr::drop_in_place(&raw mut (*raw.cast::<Ucontext<D>>()).data) };
}

/// `ib_device_ops.disassociate_ucontext`.
///
/// Mappings hold references on their pages, so there is nothing to do: the core zaps them.
///
/// # Safety
///
/// None.
pub(super) unsafe extern "C" fn disassociate_ucontext(_raw: *mut bindings::ib_ucontext) {}

/// `ib_device_ops.mmap`: the core holds the mmap lock for writing.
///
/// # Safety
///
/// Only for the core, with a live context and an area that is being set up.
pub(super) unsafe extern "C" fn mmap<D: Driver>(
    raw: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> ffi::c_int {
    // SAFETY: The context is alive for the call.
    let Some(ucontext) = (unsafe { Ucontext::<D>::from_raw(raw) }) else {
        return EINVAL.to_errno();
    };
    // SAFETY: `vma` is valid.
    let offset = unsafe { (*vma).vm_pgoff };
    // SAFETY: The area is being set up by this `mmap` call.
    let vma = unsafe { kernel::mm::virt::VmaNew::from_raw(vma) };
    // CAST: `unsigned long` is 64 bits wide on the architectures that have this driver.
    errno(D::mmap(ucontext, vma, offset as u64))
}

/// A protection domain.
#[repr(C)]
pub struct Pd<D: Driver> {
    raw: Opaque<bindings::ib_pd>,
    data: D::Pd,
}

impl<D: Driver> Pd<D> {
    /// Borrows a protection domain.
    ///
    /// # Safety
    ///
    /// `raw` must be a protection domain of a device of `D` that is valid for the lifetime.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_pd) -> &'a Self {
        // SAFETY: By the requirement of this function, and because `raw` is the first field.
        unsafe { &*raw.cast() }
    }

    /// Returns the identity.
    pub fn id(&self) -> PdId {
        PdId::of(self.raw.get())
    }

    /// Returns the device.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The core sets the device, which outlives its objects.
        unsafe { Device::from_raw((*self.raw.get()).device) }
    }
}

impl<D: Driver> Deref for Pd<D> {
    type Target = D::Pd;

    fn deref(&self) -> &Self::Target {
        &self.data
    }
}

/// `ib_device_ops.alloc_pd`: may sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_pd` bytes.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(
    raw: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The core sets the device before the call.
    let dev = unsafe { Device::<D>::from_raw((*raw).device) };
    // SAFETY: The allocation has room for a `Pd<D>`.
    let data = unsafe { &raw mut (*raw.cast::<Pd<D>>()).data };
    // SAFETY: The argument of the core's callback.
    let ucontext = match unsafe { Udata::from_raw(udata) } {
        // SAFETY: The context of a verb is alive during the verb.
        Some(udata) => unsafe { Ucontext::<D>::from_raw(udata.ucontext()) },
        None => None,
    };
    // SAFETY: `data` is valid for write and stays where it is until `dealloc_pd`.
    errno(unsafe { pin_init::raw_try_init(data, D::alloc_pd(dev, ucontext)) })
}

/// `ib_device_ops.dealloc_pd`: may sleep.
///
/// # Safety
///
/// Only for the core, with a protection domain that [`alloc_pd`] constructed.
pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    raw: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The domain was constructed; this is the last call with it.
    unsafe { core::ptr::drop_in_place(&raw mut (*raw.cast::<Pd<D>>()).data) };
    0
}

/// Answers what a provider sent with a verb that has neither input nor output of the driver's.
pub(super) fn no_udata(udata: Option<Udata<'_>>) -> Result {
    match udata {
        Some(udata) if udata.in_len() != 0 || udata.out_len() != 0 => Err(EINVAL),
        _ => Ok(()),
    }
}
