// SPDX-License-Identifier: GPL-2.0

//! Pages that a user process maps and may write to at any time.
//!
//! Their contents are hostile: no reference into them is ever formed, each load and store is
//! volatile or atomic and checked against the size, and the result of a read is a private copy.

use crate::bindings;
use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering, //
    }, //
};
use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Zeroed pages, charged to the requesting process, that it may map.
///
/// A mapping keeps the pages by itself: it may outlive this value.
///
/// A few pages are allocated as adjacent pages, which costs nothing more. A vmalloc area takes some
/// hundred bytes more, and much time. It is used for more pages, or if memory is fragmented.
///
/// # Invariants
///
/// `ptr` is a vmalloc area of `size` bytes if `is_area`, and else as many that `alloc_pages_exact`
/// has returned. `size` is a multiple of the page size. This value owns the memory.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::mm::SharedMemory;
///
/// const PRODUCER: usize = 0;
/// const CONSUMER: usize = 64;
/// const ENTRIES: usize = 128;
///
/// // A ring that a process fills.
/// let ring = SharedMemory::new(4096)?;
/// let producer = ring.load_acquire(PRODUCER).ok_or(EINVAL)?;
/// let mut entry = [0; 64];
/// if producer != 0 && ring.read(ENTRIES, &mut entry) {
///     // `entry` no longer changes, so that it can be validated.
///     ring.store_release(CONSUMER, 1);
/// }
/// # Ok::<(), Error>(())
/// ```
pub struct SharedMemory {
    ptr: NonNull<u8>,
    size: usize,
    is_area: bool,
}

// SAFETY: All accesses are volatile or atomic.
unsafe impl Send for SharedMemory {}
// SAFETY: As for `Send`.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// The maximum size, in bytes, for which adjacent pages are tried.
    const MAX_EXACT: usize = 4 * PAGE_SIZE;

    /// Allocates at least `size` bytes, rounded up to pages. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also for 0, or for a size that no address space holds.
    pub fn new(size: usize) -> Result<Self> {
        if size == 0 {
            return Err(ENOMEM);
        }
        let size = size.checked_next_multiple_of(PAGE_SIZE).ok_or(ENOMEM)?;
        let gfp = bindings::GFP_KERNEL_ACCOUNT | bindings::__GFP_ZERO;
        if size <= Self::MAX_EXACT {
            let cheap = gfp | bindings::RUST_CONST_HELPER_GFP_NORETRY | bindings::__GFP_NOWARN;
            // SAFETY: No requirement for a size that is not 0.
            let ptr = unsafe { bindings::alloc_pages_exact(size, cheap) };
            if let Some(ptr) = NonNull::new(ptr.cast()) {
                // INVARIANT: The pages were just allocated.
                return Ok(Self {
                    ptr,
                    size,
                    is_area: false,
                });
            }
        }
        // SAFETY: `__vmalloc` has no requirement.
        let ptr = unsafe { bindings::__vmalloc(size, gfp) };
        // INVARIANT: The area was just allocated.
        Ok(Self {
            ptr: NonNull::new(ptr.cast()).ok_or(ENOMEM)?,
            size,
            is_area: true,
        })
    }

    /// Returns the size in bytes, a multiple of the page size.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Maps the memory into a user process. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the area of the process is larger than the memory, or the error of the memory
    /// manager.
    pub fn map(&self, vma: &VmaNew) -> Result {
        let len = vma.end().checked_sub(vma.start()).ok_or(EINVAL)?;
        if len > self.size {
            return Err(EINVAL);
        }
        let area = vma.set_mixedmap();
        vma.set_dontexpand();
        vma.set_dontdump();

        let mut offset = 0;
        while offset < len {
            // SAFETY: `offset` is a multiple of the page size below `size`, so that this is the
            // address of a page of the memory, each of which has a reference count of its own; the
            // area of the process is being set up, and `start + offset` lies in it.
            // `vm_insert_page` takes a reference on the page.
            let ret = unsafe {
                let at = self.ptr.as_ptr().add(offset).cast();
                let page = if self.is_area {
                    bindings::vmalloc_to_page(at)
                } else {
                    bindings::virt_to_page(at)
                };
                bindings::vm_insert_page(area.as_ptr(), vma.start().wrapping_add(offset), page)
            };
            kernel::error::to_result(ret)?;
            offset = offset.saturating_add(PAGE_SIZE);
        }
        Ok(())
    }

    /// Loads a 32-bit number with acquire ordering; `None` if `offset` is out of range or not
    /// aligned.
    #[inline]
    pub fn load_acquire(&self, offset: usize) -> Option<u32> {
        Some(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a 32-bit number with release ordering; does nothing if `offset` is out of range or
    /// not aligned.
    #[inline]
    pub fn store_release(&self, offset: usize, value: u32) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    /// Copies bytes out, once each; returns `false`, with nothing copied, if they are out of range
    /// or `offset` or the length is not a multiple of eight.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(src) = self.range(offset, out.len()) else {
            return false;
        };
        for (i, chunk) in out.chunks_exact_mut(8).enumerate() {
            // SAFETY: `range` checked that all of it lies in the area and is aligned to eight.
            let word = unsafe { src.cast::<u64>().add(i).read_volatile() };
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        true
    }

    /// Copies bytes in; returns `false`, with nothing written, if they are out of range or `offset`
    /// or the length is not a multiple of eight.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(dst) = self.range(offset, bytes.len()) else {
            return false;
        };
        for (i, chunk) in bytes.chunks_exact(8).enumerate() {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            // SAFETY: `range` checked that all of it lies in the area and is aligned to eight.
            unsafe {
                dst.cast::<u64>()
                    .add(i)
                    .write_volatile(u64::from_ne_bytes(word))
            };
        }
        true
    }

    /// Returns a pointer to `len` bytes at `offset`, both multiples of eight.
    #[inline]
    fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.size || offset & 7 != 0 || len & 7 != 0 {
            return None;
        }
        // SAFETY: `offset` is within the area.
        Some(unsafe { self.ptr.as_ptr().add(offset) })
    }

    /// Returns the atomic word at `offset`.
    #[inline]
    fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let end = offset.checked_add(4)?;
        if end > self.size || offset & 3 != 0 {
            return None;
        }
        // SAFETY: The word lies in the area, which lives as long as `self`, and is aligned. The
        // driver only accesses it through this type. The process may write to it at any time, also
        // through the kernel (by a region over the ring, for instance), which an atomic allows.
        Some(unsafe { AtomicU32::from_ptr(self.ptr.as_ptr().add(offset).cast()) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        let ptr = self.ptr.as_ptr().cast();

        // SAFETY: This value owns the memory, which was allocated so by the type invariant. Pages
        // that are mapped have references of their own.
        unsafe {
            if self.is_area {
                bindings::vfree(ptr);
            } else {
                bindings::free_pages_exact(ptr, self.size);
            }
        }
    }
}
