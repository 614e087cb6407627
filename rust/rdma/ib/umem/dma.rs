// SPDX-License-Identifier: GPL-2.0

//! The kernel's own memory.

use crate::bindings;
use kernel::prelude::*;

/// The kernel's memory, by virtual address.
///
/// `get_dma_mr` makes it, for a protection domain of a kernel consumer. Offsets are the results of
/// `ib_dma_map_single()`: for a device without a DMA device these are virtual addresses. By the
/// contract of `ib_post_send()` and `ib_post_recv()`, the consumer keeps them valid until the
/// request completes. A user process cannot name the region, because its queue pairs are in other
/// protection domains.
///
/// # Examples
///
/// ```
/// # use rdma::ib::umem::{DmaMemory, Memory};
/// fn memory_of(dma: DmaMemory) -> Memory {
///     Memory::Dma(dma)
/// }
/// ```
pub struct DmaMemory(());

impl DmaMemory {
    /// Creates the access to the kernel's memory.
    ///
    /// # Safety
    ///
    /// Only requests of kernel consumers that honour the contract above may be served from it.
    pub(in crate::ib) unsafe fn new() -> Self {
        Self(())
    }

    /// Returns the pointer to `len` bytes at an address.
    pub(super) fn ptr(addr: u64, len: usize) -> Result<*mut u8> {
        // CAST: A `usize` fits.
        addr.checked_add(len as u64).ok_or(EFAULT)?;
        // SAFETY: Only a conversion.
        let ptr = unsafe { bindings::ib_virt_dma_to_ptr(addr) };
        if ptr.is_null() {
            return Err(EFAULT);
        }
        Ok(ptr.cast())
    }
}
