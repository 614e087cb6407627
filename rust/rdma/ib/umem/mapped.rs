// SPDX-License-Identifier: GPL-2.0

//! Memory that a kernel consumer has mapped to a region.

use crate::bindings;
use kernel::prelude::*;

/// Pages of the kernel that make up a region, all of one size, in order.
///
/// By the contract of `IB_WR_REG_MR`, the consumer keeps the pages as long as a key to them is
/// valid: it invalidates the key first.
///
/// # Invariants
///
/// Each entry of `pages` is the address that `ib_dma_map_sg()` returned for a page of `1 << shift`
/// bytes of the kernel's memory.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::umem::Mapped;
///
/// let pages = Mapped::new(64)?;
/// assert!(pages.is_empty());
/// # Ok::<(), Error>(())
/// ```
pub struct Mapped {
    pages: KVVec<u64>,
    shift: u32,
    /// The address of the first byte. Only its offset in a page matters here.
    iova: u64,
    /// Bytes.
    len: u64,
}

impl Mapped {
    /// Allocates room for some pages. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(max_pages: usize) -> Result<Self> {
        // INVARIANT: There are no pages.
        Ok(Self {
            pages: KVVec::with_capacity(max_pages, GFP_KERNEL)?,
            shift: 0,
            iova: 0,
            len: 0,
        })
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether requests may use `iova` for the first byte: it must have the same offset in
    /// a page as the memory.
    pub fn fits(&self, iova: u64) -> bool {
        (iova ^ self.iova) & self.mask() == 0
    }

    /// Forgets the mapped pages.
    pub fn forget(&mut self) {
        self.clear(0);
    }

    /// Forgets the mapped pages; pages of another size may follow.
    pub(in crate::ib) fn clear(&mut self, shift: u32) {
        self.pages.clear();
        self.shift = shift;
        self.len = 0;
    }

    /// Adds a page.
    ///
    /// # Safety
    ///
    /// `addr` must satisfy the type invariant.
    pub(in crate::ib) unsafe fn push(&mut self, addr: u64) -> Result {
        // INVARIANT: By the requirement of this function.
        self.pages.push_within_capacity(addr).map_err(|_| ENOMEM)
    }

    /// Sets the range of bytes in the pages.
    pub(in crate::ib) fn set_range(&mut self, iova: u64, len: u64) {
        self.iova = iova;
        self.len = len;
    }

    /// Returns the mask of the address bits that form the offset in a page.
    fn mask(&self) -> u64 {
        1u64.checked_shl(self.shift).unwrap_or(0).wrapping_sub(1)
    }

    /// Calls `f` with each contiguous range of the `len` bytes at `offset`, one for each page. `f`
    /// is not called if they are not all mapped.
    pub(super) fn for_each_range(
        &self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        let mask = self.mask();
        let skip = self.iova & mask;
        // CAST: Widening.
        let end = offset.checked_add(len as u64).ok_or(EFAULT)?;
        let last = end.checked_add(skip).ok_or(EFAULT)?;
        // CAST: Widening.
        let room = (self.pages.len() as u64).saturating_mul(mask.saturating_add(1));
        if end > self.len || last > room {
            return Err(EFAULT);
        }
        let mut pos = offset.wrapping_add(skip);
        // CAST: Widening.
        let mut left = len as u64;
        while left > 0 {
            let in_page = pos & mask;
            let count = left.min(mask.wrapping_add(1).wrapping_sub(in_page));
            let index = pos.checked_shr(self.shift).ok_or(EFAULT)?;
            // CAST: Below the number of pages.
            let page = self.pages.get(index as usize).ok_or(EFAULT)?;
            // SAFETY: Only a conversion of an address within the page.
            let ptr = unsafe { bindings::ib_virt_dma_to_ptr(page.wrapping_add(in_page)) };
            if ptr.is_null() {
                return Err(EFAULT);
            }
            // CAST: At most `len`.
            f(ptr.cast(), count as usize);
            pos = pos.wrapping_add(count);
            left = left.wrapping_sub(count);
        }
        Ok(())
    }
}
