// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::{
    object::{
        errno,
        Pd, //
    },
    umem::{
        DmaMemory,
        Fetch,
        Mapped, //
    },
    wr::Sges,
    Access,
    Device,
    Driver, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};
use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

/// A region: the structure of the core, then the driver's part. The core leaves the allocation to
/// the driver.
#[repr(C)]
struct MrObject<D: Driver> {
    raw: Opaque<bindings::ib_mr>,
    data: D::Mr,
}

/// A part of a process' address space, and the address that requests use for its start.
///
/// # Examples
///
/// ```
/// use rdma::ib::mr::UserRange;
///
/// /// Returns the offset in a region of the address that a request uses.
/// fn offset_of(range: &UserRange, addr: u64) -> Option<u64> {
///     let offset = addr.checked_sub(range.iova)?;
///     (offset < range.len).then_some(offset)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct UserRange {
    /// The first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The address that requests use for the first byte.
    pub iova: u64,
}

/// The changes of a registration; `None` for no change.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{mr::Change, Access, Driver};
/// /// Changes the rights of a region, but neither its memory nor its protection domain.
/// fn rereg<D: Driver>(access: &mut Access, change: &Change<'_, D>) -> Result {
///     if change.range.is_some() || change.pd.is_some() {
///         return Err(EOPNOTSUPP);
///     }
///     *access = change.access.unwrap_or(*access);
///     Ok(())
/// }
/// ```
pub struct Change<'a, D: Driver> {
    /// The memory.
    pub range: Option<UserRange>,
    /// The protection domain.
    pub pd: Option<&'a Pd<D>>,
    /// The access that it allows.
    pub access: Option<Access>,
    /// The device.
    pub device: &'a Device<D>,
}

impl<D: Driver> MrObject<D> {
    /// Hands a region to the core.
    fn create(
        pd: *mut bindings::ib_pd,
        make: impl FnOnce() -> Result<D::Mr>,
    ) -> Result<*mut bindings::ib_mr> {
        // Allocate first: nothing may fail once requests find the region.
        let room = KBox::<MaybeUninit<Self>>::new(MaybeUninit::uninit(), GFP_KERNEL_ACCOUNT)?;
        let data = make()?;
        let key = D::mr_key(&data);
        let object = KBox::write(
            room,
            Self {
                raw: Opaque::zeroed(),
                data,
            },
        );
        let raw = KBox::into_raw(object).cast::<bindings::ib_mr>();
        // SAFETY: `raw` is the first field of the allocation, and zeroed; `pd` is alive.
        unsafe {
            (*raw).device = (*pd).device;
            (*raw).pd = pd;
            (*raw).lkey = key;
            (*raw).rkey = key;
        }
        Ok(raw)
    }
}

/// Converts the result of a callback for the C core.
fn ptr_or_err(result: Result<*mut bindings::ib_mr>) -> *mut bindings::ib_mr {
    match result {
        Ok(raw) => raw,
        Err(e) => e.to_ptr(),
    }
}

/// Implements `ib_device_ops.reg_user_mr`. May sleep.
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
        let mr = MrObject::<D>::create(pd, || {
            // SAFETY: The domain is alive for the call.
            D::reg_user_mr(unsafe { Pd::from_raw(pd) }, range, access)
        })?;
        // The core sets these fields for the write command, but not for the ioctl method.
        // SAFETY: The region was just created, and the core does not know it yet.
        unsafe {
            (*mr).iova = iova;
            (*mr).length = len;
        }
        Ok(mr)
    };
    ptr_or_err(create())
}

/// Implements `ib_device_ops.get_dma_mr`. May sleep.
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
        MrObject::<D>::create(pd, || {
            // SAFETY: The domain is alive for the call.
            D::get_dma_mr(unsafe { Pd::from_raw(pd) }, memory, access)
        })
    };
    ptr_or_err(create())
}

/// Returns the mode of the fetch that a process advises.
fn advised(advice: bindings::ib_uverbs_advise_mr_advice) -> Result<Fetch> {
    use bindings::ib_uverbs_advise_mr_advice as raw;

    match advice {
        raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH => Ok(Fetch::Read),
        raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => Ok(Fetch::Write),
        raw::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Ok(Fetch::Present),
        _ => Err(EOPNOTSUPP),
    }
}

/// Implements `ib_device_ops.advise_mr`. May sleep.
///
/// # Safety
///
/// Only for the core, with a live protection domain and a list of `num_sge` entries.
pub(super) unsafe extern "C" fn advise_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut bindings::ib_sge,
    num_sge: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> ffi::c_int {
    let advise = || {
        let flush = flags & bindings::ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0;
        let num = i32::try_from(num_sge)?;
        // SAFETY: The list has `num_sge` entries, valid for the call.
        let sges = unsafe { Sges::new(sg_list, num) };
        // SAFETY: The domain is alive for the call.
        let pd = unsafe { Pd::from_raw(pd) };
        D::advise_mr(pd, advised(advice)?, flush, sges)
    };
    errno(advise())
}

/// Implements `ib_device_ops.alloc_mr`. May sleep. For kernel consumers.
///
/// # Safety
///
/// Only for the core, with a live protection domain.
pub(super) unsafe extern "C" fn alloc_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    ty: bindings::ib_mr_type,
    max_pages: u32,
) -> *mut bindings::ib_mr {
    let create = || {
        if ty != bindings::ib_mr_type::IB_MR_TYPE_MEM_REG {
            return Err(EOPNOTSUPP);
        }
        MrObject::<D>::create(pd, || {
            // SAFETY: The domain is alive for the call.
            D::alloc_mr(unsafe { Pd::from_raw(pd) }, max_pages)
        })
    };
    ptr_or_err(create())
}

/// Implements `ib_device_ops.map_mr_sg`. Called in any context. For kernel consumers.
///
/// # Safety
///
/// Only for the core, with a region of [`alloc_mr`] and a list that is mapped for its device.
pub(super) unsafe extern "C" fn map_mr_sg<D: Driver>(
    raw: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    entries: ffi::c_int,
    offset: *mut ffi::c_uint,
) -> ffi::c_int {
    // SAFETY: The region was made by `MrObject::create`, and is not destroyed during the call.
    let data = unsafe { &(*raw.cast::<MrObject<D>>()).data };
    // INVARIANT: By the requirement of this function.
    let list = SgList {
        mr: raw,
        list,
        entries,
        offset,
        _p: PhantomData,
    };
    match D::map_mr_sg(data, list) {
        Ok(entries) => entries,
        Err(e) => e.to_errno(),
    }
}

/// A scatter list of a kernel consumer, for one call of [`Driver::map_mr_sg`].
///
/// # Invariants
///
/// The pointers are the arguments of the core's callback, valid for `'a`; `offset` may be null.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{mr::SgList, umem::Mapped};
/// fn map(pages: &mut Mapped, list: SgList<'_>) -> Result<i32> {
///     list.map_to(pages)
/// }
/// ```
pub struct SgList<'a> {
    mr: *mut bindings::ib_mr,
    list: *mut bindings::scatterlist,
    entries: ffi::c_int,
    offset: *mut ffi::c_uint,
    _p: PhantomData<&'a mut bindings::scatterlist>,
}

/// The region that `ib_sg_to_pages()` works on, with more data behind it: its callback gets nothing
/// but the region.
#[repr(C)]
struct Walk<'a> {
    raw: bindings::ib_mr,
    to: &'a mut Mapped,
}

impl SgList<'_> {
    /// Maps as many entries as fit, from the first one, and returns how many that were.
    ///
    /// The previous mapping is forgotten.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a page size that is no power of two, or the error of `ib_sg_to_pages()`.
    pub fn map_to(self, to: &mut Mapped) -> Result<ffi::c_int> {
        // SAFETY: Valid by the type invariant; the core has set the page size.
        let page_size = unsafe { (*self.mr).page_size };
        to.clear(page_size.trailing_zeros());
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let mut walk = Walk {
            raw: bindings::ib_mr {
                page_size,
                ..pin_init::zeroed()
            },
            to,
        };
        // SAFETY: The list is valid by the type invariant. The callback is for a `Walk`, and gets
        // the pointer to this one, which no one else uses meanwhile.
        let ret = unsafe {
            let walk = &raw mut walk;
            bindings::ib_sg_to_pages(
                walk.cast(),
                self.list,
                self.entries,
                self.offset,
                Some(set_page),
            )
        };
        kernel::error::to_result(ret.min(0))?;
        let (iova, len) = (walk.raw.iova, walk.raw.length);
        walk.to.set_range(iova, len);
        // SAFETY: Valid by the type invariant. These are the core's to read, and the consumer's.
        unsafe {
            (*self.mr).iova = iova;
            (*self.mr).length = len;
        }
        Ok(ret)
    }
}

/// The callback of `ib_sg_to_pages()`.
///
/// # Safety
///
/// `raw` must point to the first field of a [`Walk`] that is not used otherwise.
unsafe extern "C" fn set_page(raw: *mut bindings::ib_mr, addr: u64) -> ffi::c_int {
    let walk = raw.cast::<Walk<'_>>();
    // SAFETY: By the requirement of this function. The address is that of a page of the consumer's
    // list, which it has mapped for this device.
    match unsafe { (*walk).to.push(addr) } {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// Implements `ib_device_ops.rereg_user_mr`. May sleep. Changes the region in place.
///
/// # Safety
///
/// Only for the core, with a region of [`reg_user_mr`] that no other verb uses meanwhile.
pub(super) unsafe extern "C" fn rereg_user_mr<D: Driver>(
    raw: *mut bindings::ib_mr,
    flags: ffi::c_int,
    start: u64,
    len: u64,
    iova: u64,
    access: ffi::c_int,
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    // CAST: A mask of flags.
    let has = |flag| flags as u32 & flag != 0;
    // SAFETY: The domain, either the new one or that of the region, is alive for the call.
    let pd = unsafe { Pd::<D>::from_raw(pd) };
    let change = Change {
        range: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS).then_some(UserRange {
            start,
            len,
            iova,
        }),
        pd: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then_some(pd),
        access: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS)
            // CAST: A mask of flags.
            .then_some(Access::from_raw(access as u32)),
        device: pd.device(),
    };
    // SAFETY: The region was made by `MrObject::create`. The core holds its object for writing, so
    // there is no other reference to it. The data path finds nothing in it.
    match D::rereg_user_mr(unsafe { &mut (*raw.cast::<MrObject<D>>()).data }, change) {
        // The region is still the same one to the core.
        Ok(()) => core::ptr::null_mut(),
        Err(e) => e.to_ptr(),
    }
}

/// Returns whether the registration of a region is aborted: its keys did not reach its owner,
/// because the response could not be written to the memory of the process.
///
/// # Safety
///
/// `raw` must be a region that the core is deregistering.
unsafe fn is_aborted(raw: *mut bindings::ib_mr) -> bool {
    // SAFETY: By the requirement of this function. `uobject` is the member in use of the union for
    // a region of this type, null or the object of the caller, which is alive.
    unsafe {
        if (*raw).type_ != bindings::ib_mr_type::IB_MR_TYPE_USER {
            return false;
        }
        let uobject = *(*raw).__bindgen_anon_1.uobject.as_ref();
        if uobject.is_null() {
            return false;
        }
        // The core adds an object to a list when its creation can no longer fail, and removes it
        // after it was destroyed. Meanwhile, only changes of neighbouring entries write the
        // pointer, and never make it point to this entry.
        let list = &raw mut (*uobject).list;
        core::ptr::read_volatile(&raw const (*list).next) == list
    }
}

/// Implements `ib_device_ops.dereg_mr`. May sleep.
///
/// # Safety
///
/// Only for the core, with a region that one of the above has made.
pub(super) unsafe extern "C" fn dereg_mr<D: Driver>(
    raw: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let object = raw.cast::<MrObject<D>>();
    // The core considers it a bug if the deregistration of an aborted region fails. Otherwise the
    // driver may refuse: then an explicit deregistration fails, and the cleanup of a context tries
    // again once other objects are gone.
    // SAFETY: The region is alive until the end of this call.
    let result = if unsafe { is_aborted(raw) } {
        Ok(())
    } else {
        // SAFETY: The region was made by `MrObject::create`, and is not destroyed during the call.
        D::dereg_mr(unsafe { &(*object).data })
    };
    if result.is_ok() {
        // The drop waits for every packet that is using the region, then releases its memory.
        // SAFETY: As above; this is the last call with it.
        drop(unsafe { KBox::from_raw(object) });
    }
    errno(result)
}
