// SPDX-License-Identifier: GPL-2.0

//! The memory behind a region: pages of a process, pinned or not, or the kernel's own.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)

mod dma;
mod mapped;
mod paged;
mod pinned;

pub use self::{
    dma::DmaMemory,
    mapped::Mapped,
    paged::{
        Fetch,
        Paged, //
    },
    pinned::Umem, //
};

use crate::{
    mm::copy::copy,
    net::skbuff::SkBuff, //
};
use core::sync::atomic::{
    AtomicU16,
    AtomicU32,
    AtomicU64,
    AtomicU8,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Memory that a region gives access to. Offsets count from the start of the region.
///
/// A process may change its pages at any time, so this code forms no references into them, except
/// to atomic words. No function sleeps: an access to absent memory fails with `EAGAIN`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{ib::umem::Memory, net::SkBuff};
/// /// Appends a part of a region to a packet.
/// fn read(memory: &Memory, offset: u64, len: usize, packet: &mut SkBuff) -> Result {
///     // `EAGAIN` means that the memory has to be fetched first.
///     memory.append_to(offset, len, packet)
/// }
/// ```
pub enum Memory {
    /// Pinned pages of a process.
    User(Umem),
    /// Pages of a process that are fetched when they are used.
    Paged(Arc<Paged>),
    /// The kernel's memory, by address.
    Dma(DmaMemory),
    /// Pages that a kernel consumer has mapped.
    Mapped(Mapped),
}

impl Memory {
    /// Returns whether it can be written to.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::User(umem) => umem.is_writable(),
            Self::Paged(paged) => paged.is_writable(),
            Self::Dma(_) | Self::Mapped(_) => true,
        }
    }

    /// Returns the memory if it is fetched when it is used.
    pub fn paged(&self) -> Option<&Arc<Paged>> {
        match self {
            Self::Paged(paged) => Some(paged),
            Self::User(_) | Self::Dma(_) | Self::Mapped(_) => None,
        }
    }

    /// Appends `len` bytes at `offset` to a packet.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory, `ENOSPC` if they do not fit into the packet; the
    /// packet is unchanged then.
    #[inline]
    pub fn append_to(&self, offset: u64, len: usize, skb: &mut SkBuff) -> Result {
        // SAFETY: `copy_out` writes all of the `len` bytes or fails.
        unsafe { skb.append_with(len, |dst| self.copy_out(offset, dst, len)) }
    }

    /// Copies bytes at `offset` out.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result {
        // SAFETY: `out` is valid for write for its length.
        unsafe { self.copy_out(offset, out.as_mut_ptr(), out.len()) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// The last bytes are stored last, see [`copy_in`].
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not within the memory, or if it is read-only.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result {
        let mut src = bytes.as_ptr();
        self.for_each_range(offset, bytes.len(), true, |range, len| {
            // SAFETY: `range` is valid for `len` bytes, and the ranges add up to `bytes`.
            unsafe {
                copy_in(src, range, len);
                src = src.add(len);
            }
        })
    }

    /// Stores `swap` in the word at `offset` if it is `compare`, and returns the original value.
    ///
    /// Atomic with respect to all CPUs of this machine, including accesses by user programs.
    ///
    /// # Errors
    ///
    /// `EFAULT` as for [`write`](Self::write), `EINVAL` if the word is not aligned to eight bytes.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64> {
        self.with_word(offset, |word| {
            match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(old) | Err(old) => old,
            }
        })
    }

    /// Adds `add` to the word at `offset`, wrapping, and returns the original value.
    ///
    /// Atomic like [`compare_swap`](Self::compare_swap).
    ///
    /// # Errors
    ///
    /// See [`compare_swap`](Self::compare_swap).
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64> {
        self.with_word(offset, |word| word.fetch_add(add, Ordering::SeqCst))
    }

    /// Stores the word at `offset`, after everything that was written before.
    ///
    /// # Errors
    ///
    /// See [`compare_swap`](Self::compare_swap).
    pub fn store(&self, offset: u64, value: u64) -> Result {
        self.with_word(offset, |word| word.store(value, Ordering::Release))
    }

    /// Calls `f` with the word at `offset`.
    #[inline]
    fn with_word<R>(&self, offset: u64, f: impl FnOnce(&AtomicU64) -> R) -> Result<R> {
        const LEN: usize = size_of::<u64>();

        let mut f = Some(f);
        let mut result = None;
        self.for_each_range(offset, LEN, true, |range, len| {
            if len == LEN && range.cast::<u64>().is_aligned() {
                // SAFETY: `range` is valid for eight bytes and aligned. A process accesses them
                // through another mapping of the page. A copy of this module may race, like the
                // DMA of a NIC: any bytes are valid, and nothing relies on their values.
                let word = unsafe { AtomicU64::from_ptr(range.cast()) };
                result = f.take().map(|f| f(word));
            }
        })?;
        result.ok_or(EINVAL)
    }

    /// Copies `len` bytes at `offset` to `dst`.
    ///
    /// # Safety
    ///
    /// `dst` must be valid for write for `len` bytes.
    #[inline]
    unsafe fn copy_out(&self, offset: u64, mut dst: *mut u8, len: usize) -> Result {
        self.for_each_range(offset, len, false, |range, len| {
            // SAFETY: `range` is valid for `len` bytes, and the ranges add up to the room at `dst`.
            unsafe {
                copy(range, dst, len);
                dst = dst.add(len);
            }
        })
    }

    /// Calls `f` with each contiguous range of the `len` bytes at `offset`, for reading or, if
    /// `write`, also for writing. A range never crosses a page boundary of a process.
    ///
    /// `f` is not called if they are not all within the memory.
    #[inline]
    fn for_each_range(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        match self {
            Self::User(umem) => umem.for_each_range(offset, len, write, f),
            Self::Paged(paged) => paged.for_each_range(offset, len, write, f),
            Self::Mapped(mapped) => mapped.for_each_range(offset, len, f),
            Self::Dma(_) => {
                f(DmaMemory::ptr(offset, len)?, len);
                Ok(())
            }
        }
    }
}

/// Copies `len` bytes, and stores the end of the target last, in one access: the largest aligned
/// unit of 1, 2, 4 or 8 bytes that ends where the target ends.
///
/// Programs poll the end of a message that they expect, and then use all of it. [`copy`] alone is
/// not enough for them: `memcpy()` may copy backwards or store the same bytes twice, and a string
/// instruction may store in any order.
///
/// # Safety
///
/// `src` must be valid for read and `dst` for write, for `len` bytes each, and they must not
/// overlap.
#[inline]
unsafe fn copy_in(src: *const u8, dst: *mut u8, len: usize) {
    let Some(longest) = len.checked_ilog2() else {
        return;
    };
    let end = dst.addr().wrapping_add(len);
    let unit = 1usize << end.trailing_zeros().min(longest).min(3);
    let rest = len.wrapping_sub(unit);

    // SAFETY: `unit` is at most `len`, so both parts are valid by the contract of this function.
    // `end` is a multiple of `unit`, so the last part is aligned to its size. The target belongs to
    // a process or a consumer, so there are no references to it here; concurrent accesses do not
    // conflict, see `with_word`.
    unsafe {
        copy(src, dst, rest);
        let src = src.add(rest);
        let dst = dst.add(rest);
        match unit {
            8 => AtomicU64::from_ptr(dst.cast())
                .store(src.cast::<u64>().read_unaligned(), Ordering::Release),
            4 => AtomicU32::from_ptr(dst.cast())
                .store(src.cast::<u32>().read_unaligned(), Ordering::Release),
            2 => AtomicU16::from_ptr(dst.cast())
                .store(src.cast::<u16>().read_unaligned(), Ordering::Release),
            _ => AtomicU8::from_ptr(dst).store(src.read(), Ordering::Release),
        }
    }
}
