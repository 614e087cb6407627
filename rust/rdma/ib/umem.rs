// SPDX-License-Identifier: GPL-2.0

//! The memory behind a region: pinned pages of a process, or the kernel's own.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)

use super::{
    Access,
    Device,
    Driver, //
};
use crate::{
    bindings,
    net::skbuff::SkBuff, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    ffi,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Memory that a region gives access to. Offsets count from the start of the region.
///
/// A process may change its pages at any time, so no reference into them is ever formed.
pub enum Memory {
    /// Pinned pages of a process.
    User(Umem),
    /// The kernel's memory, by address.
    Dma(DmaMemory),
}

impl Memory {
    /// Appends `len` bytes at `offset` to a packet. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory, `ENOMEM` if they do not fit into the packet; the
    /// packet is unchanged then.
    #[inline]
    pub fn append_to(&self, offset: u64, len: usize, skb: &mut SkBuff) -> Result {
        // SAFETY: `copy_out` writes all of the `len` bytes or fails.
        unsafe { skb.append_with(len, |dst| self.copy_out(offset, dst, len)) }
    }

    /// Copies bytes at `offset` out. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result {
        // SAFETY: `out` is valid for write for its length.
        unsafe { self.copy_out(offset, out.as_mut_ptr(), out.len()) }
    }

    /// Copies bytes in at `offset`. Does not sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory, or if it is read-only.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result {
        let mut src = bytes.as_ptr();
        match self {
            Self::User(umem) if !umem.writable => Err(EFAULT),
            Self::User(umem) => umem.for_each_piece(offset, bytes.len(), |page, len| {
                // SAFETY: `page` is valid for `len` bytes, and the pieces add up to `bytes`.
                unsafe {
                    core::ptr::copy_nonoverlapping(src, page, len);
                    src = src.add(len);
                }
            }),
            Self::Dma(_) => {
                let dst = DmaMemory::ptr(offset, bytes.len())?;
                // SAFETY: The consumer vouches for the address (see `DmaMemory`).
                unsafe { core::ptr::copy_nonoverlapping(src, dst, bytes.len()) };
                Ok(())
            }
        }
    }

    /// Copies `len` bytes at `offset` to `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for write for `len` bytes.
    #[inline]
    unsafe fn copy_out(&self, offset: u64, mut dst: *mut u8, len: usize) -> Result {
        match self {
            Self::User(umem) => umem.for_each_piece(offset, len, |page, len| {
                // SAFETY: `page` is valid for `len` bytes, and the pieces add up to the room at
                // `dst`.
                unsafe {
                    core::ptr::copy_nonoverlapping(page, dst, len);
                    dst = dst.add(len);
                }
            }),
            Self::Dma(_) => {
                let src = DmaMemory::ptr(offset, len)?;
                // SAFETY: The consumer vouches for the address (see `DmaMemory`); `dst` is valid by
                // the requirement of this function.
                unsafe { core::ptr::copy_nonoverlapping(src, dst, len) };
                Ok(())
            }
        }
    }
}

/// Pages of a process, pinned until this is dropped. The drop may sleep.
///
/// # Invariants
///
/// `pages` are the pages of `umem`, in order, and pinned by it.
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
    /// `ENOMEM`, `EFAULT`, `EINVAL`, or `EPERM` if the process may not lock that much.
    pub fn new<D: Driver>(dev: &Device<D>, start: u64, len: u64, access: Access) -> Result<Self> {
        // SAFETY: The device is alive; the core checks the range.
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
            skip: unsafe { bindings::ib_umem_offset(umem) } as usize,
            len,
            // SAFETY: `umem` was just returned.
            writable: unsafe { (*umem).writable() } != 0,
        };
        // INVARIANT: The list is filled in order from the pages that `umem` pins.
        this.collect_pages()?;
        Ok(this)
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

    /// Calls `f` with each piece of a page that `len` bytes at `offset` consist of.
    ///
    /// Nothing is called if they are not all within the region.
    #[inline]
    fn for_each_piece(&self, offset: u64, len: usize, mut f: impl FnMut(*mut u8, usize)) -> Result {
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
            let piece = left.min(PAGE_SIZE.wrapping_sub(in_page));
            let page = self.pages.get(pos / PAGE_SIZE).ok_or(EFAULT)?;
            // SAFETY: The page is pinned by the type invariant, and `in_page + piece` is at most a
            // page. The mapping is used before it is undone.
            unsafe {
                let addr = bindings::kmap_local_page(page.as_ptr());
                f(addr.cast::<u8>().add(in_page), piece);
                bindings::kunmap_local(addr);
            }
            pos = pos.wrapping_add(piece);
            left = left.wrapping_sub(piece);
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

/// The kernel's memory, by virtual address.
///
/// `get_dma_mr` makes it, for a protection domain of a kernel consumer. The offsets that come with
/// it are what the consumer got from `ib_dma_map_single()`: for a device without a DMA device these
/// are virtual addresses. That they are valid until the request completes is the contract of
/// `ib_post_send()` and `ib_post_recv()` with the consumer; a user process cannot name the region,
/// because its queue pairs are in other protection domains.
pub struct DmaMemory(());

impl DmaMemory {
    /// Creates the access to the kernel's memory.
    ///
    /// # Safety
    ///
    /// Only requests of kernel consumers that honour the contract above may be served from it.
    pub(super) unsafe fn new() -> Self {
        Self(())
    }

    /// Returns the pointer to `len` bytes at an address.
    fn ptr(addr: u64, len: usize) -> Result<*mut u8> {
        addr.checked_add(len as u64).ok_or(EFAULT)?;
        // SAFETY: Only a conversion.
        let ptr = unsafe { bindings::ib_virt_dma_to_ptr(addr) };
        if ptr.is_null() {
            return Err(EFAULT);
        }
        Ok(ptr.cast())
    }
}
