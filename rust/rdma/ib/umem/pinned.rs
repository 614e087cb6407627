// SPDX-License-Identifier: GPL-2.0

//! Pinned pages of a process.

use crate::{
    bindings,
    ib::{
        Access,
        Device,
        Driver, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    ffi,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Pages of a process, pinned until this is dropped. The drop may sleep.
///
/// # Invariants
///
/// `pages` are the pages of `umem`, in order, and pinned by it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{mr::UserRange, object::Pd, umem::{Memory, Umem}, Access, Driver};
/// fn pin<D: Driver>(pd: &Pd<D>, range: &UserRange, access: Access) -> Result<Memory> {
///     Umem::new(pd.device(), range.start, range.len, access).map(Memory::User)
/// }
/// ```
pub struct Umem {
    umem: NonNull<bindings::ib_umem>,
    pages: KVVec<NonNull<bindings::page>>,
    /// Bytes before the region in the first page.
    skip: usize,
    /// Bytes of the region.
    len: u64,
    writable: bool,
}

// SAFETY: The pages are accessed by raw copies only, and may be released by any thread.
unsafe impl Send for Umem {}
// SAFETY: As for `Send`.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `len` bytes of the calling process' memory at `start`. May sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT`; `EINVAL`, also in a kernel thread, which has no memory of its own; `ENOMEM`, also
    /// if this exceeds RLIMIT_MEMLOCK; `EPERM` if that is 0.
    pub fn new<D: Driver>(dev: &Device<D>, start: u64, len: u64, access: Access) -> Result<Self> {
        current!().mm().ok_or(EINVAL)?;
        // SAFETY: The device is alive, and the task has an address space, of which the core checks
        // the range.
        // CAST: The address and the length have 64 bits; flags are signed in C.
        let umem = from_err_ptr(unsafe {
            bindings::ib_umem_get_va(
                dev.as_raw(),
                start as ffi::c_ulong,
                len as usize,
                access.raw() as ffi::c_int,
            )
        })?;
        let mut this = Self {
            umem: NonNull::new(umem).ok_or(ENOMEM)?,
            pages: KVVec::new(),
            // SAFETY: `umem` was just returned.
            // CAST: An offset in a page.
            skip: unsafe { bindings::ib_umem_offset(umem) } as usize,
            len,
            // SAFETY: `umem` was just returned.
            writable: unsafe { (*umem).writable() } != 0,
        };
        // INVARIANT: The list is filled in order from the pages that `umem` pins.
        this.collect_pages()?;
        Ok(this)
    }

    /// Returns whether the pages are pinned for writing.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Fills the page array from the scatter list.
    fn collect_pages(&mut self) -> Result {
        // SAFETY: `umem` is valid by the type invariant.
        let num = unsafe { bindings::ib_umem_num_pages(self.umem.as_ptr()) };
        self.pages = KVVec::with_capacity(num, GFP_KERNEL_ACCOUNT)?;

        let mut iter: bindings::sg_page_iter = pin_init::zeroed();
        // SAFETY: The table of `umem` is valid and not changed while `umem` lives; the iterator
        // visits each of its pages once.
        unsafe {
            let table = &raw const (*self.umem.as_ptr()).sgt_append.sgt;
            bindings::__sg_page_iter_start(&mut iter, (*table).sgl, (*table).orig_nents, 0);
            while bindings::__sg_page_iter_next(&mut iter) {
                let page = bindings::sg_page_iter_page(&mut iter);
                self.pages
                    .push_within_capacity(NonNull::new(page).ok_or(EFAULT)?)
                    .map_err(|_| EFAULT)?;
            }
        }
        Ok(())
    }

    /// Calls `f` with each contiguous range of the `len` bytes at `offset`, one for each page.
    ///
    /// `f` is not called if they are not all within the region.
    #[inline]
    pub(super) fn for_each_range(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        if write && !self.writable {
            return Err(EFAULT);
        }
        // CAST: Both fit into 64 bits.
        let end = offset.checked_add(len as u64).ok_or(EFAULT)?;
        if end > self.len {
            return Err(EFAULT);
        }
        // CAST: At most `self.len`, which fits the address space.
        let mut pos = (offset as usize).checked_add(self.skip).ok_or(EFAULT)?;
        let mut left = len;
        while left > 0 {
            let in_page = pos % PAGE_SIZE;
            let count = left.min(PAGE_SIZE.wrapping_sub(in_page));
            let page = self.pages.get(pos / PAGE_SIZE).ok_or(EFAULT)?;
            // SAFETY: The page is pinned by the type invariant, and `in_page + count` is at most a
            // page. The mapping is used before it is undone.
            unsafe {
                let addr = bindings::kmap_local_page(page.as_ptr());
                f(addr.cast::<u8>().add(in_page), count);
                bindings::kunmap_local(addr);
            }
            pos = pos.wrapping_add(count);
            left = left.wrapping_sub(count);
        }
        Ok(())
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: This value owns the pages.
        unsafe { bindings::ib_umem_release(self.umem.as_ptr()) };
    }
}
