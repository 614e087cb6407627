// SPDX-License-Identifier: GPL-2.0

//! Packets.
//!
//! ```text
//!   head          data            tail           end
//!    |  headroom   |  linear data  |   tailroom   |      + data in pages, if not linear
//!    |             |-> pull        |-> append     |
//! ```
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

mod headers;
mod list;
mod pool;
mod queue;
mod train;
mod transmit;

pub(super) mod raw;

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub use headers::IpHeader;
pub use list::SkBuffList;
pub use pool::PacketPools;
pub use queue::SkBuffQueue;
pub use train::Train;

use crate::bindings;
use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};
use kernel::{
    cpu::CpuId,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

/// Bytes of an Ethernet header.
pub const ETHERNET_LEN: usize = 14;

/// Returns the size of a linear packet with its headroom, in bytes. Returns [`None`] above a MiB,
/// which is more than any packet has, and so small that `SKB_HEAD_ALIGN()` does not overflow. The
/// headroom is at most a page, so that the offsets of the headers fit into 16 bits.
#[inline]
fn linear_len(headroom: usize, size: usize) -> Option<u32> {
    const MAX: usize = 1 << 20;

    let total = headroom.checked_add(size)?;
    if headroom > PAGE_SIZE || total > MAX {
        return None;
    }
    u32::try_from(total).ok()
}

/// A packet: an owned `struct sk_buff`.
///
/// If it is dropped, the kernel's statistics and tracers count a lost packet; use
/// [`SkBuff::consume`] for others. Callable in softirq context, but not with interrupts off.
///
/// # Invariants
///
/// - The pointer is to a `struct sk_buff` that this value owns alone. The data may be shared with
///   clones; it is not written then.
/// - Every byte between `data` and the tail is initialised. If the transport header was set, every
///   byte from the network header on is initialised, too.
/// - `data` is less than 32 KiB behind `head`, because the offsets of the headers have 16 bits.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::net::SkBuff;
///
/// let mut packet = SkBuff::alloc(64, 1024).ok_or(ENOMEM)?;
/// *packet.append_array()? = *b"a header";
/// packet.append(b"payload")?;
/// assert_eq!(packet.len(), 15);
/// assert_eq!(packet.data(), b"a headerpayload");
/// # Ok::<(), Error>(())
/// ```
pub struct SkBuff(NonNull<bindings::sk_buff>);

// SAFETY: A packet may be handed to another thread.
unsafe impl Send for SkBuff {}

impl SkBuff {
    /// Allocates an empty linear packet. Does not sleep.
    ///
    /// The network stack can add `headroom` bytes in front, and the caller at least `size` at the
    /// end. Returns [`None`] if there is no memory, if `headroom` is more than a page, or if both
    /// together are more than a MiB.
    pub fn alloc(headroom: usize, size: usize) -> Option<Self> {
        let total = linear_len(headroom, size)?;
        // A peer can trigger this allocation, so a failure must not fill the log.
        let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN;

        // SAFETY: No requirement.
        let skb = NonNull::new(unsafe { bindings::alloc_skb(total, gfp) })?;
        // SAFETY: The packet is empty and has room for `total` bytes.
        unsafe { raw::skb_reserve(skb.as_ptr(), headroom) };

        // INVARIANT: The packet was just allocated, has no data, and no transport header. The
        // headroom is at most a page.
        Some(Self(skb))
    }

    /// Takes over a packet.
    ///
    /// # Safety
    ///
    /// The caller must pass ownership of a packet that fulfils the invariants of this type.
    pub(super) unsafe fn from_raw(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the requirement of this function.
        Self(skb)
    }

    /// Returns the `struct sk_buff`.
    pub(super) fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Frees a packet that was handled (`consume_skb()`).
    #[inline]
    pub fn consume(self) {
        let skb = ManuallyDrop::new(self).as_raw();

        // SAFETY: The packet is alive by the type invariant.
        let allocated_on = unsafe { (*skb).__bindgen_anon_4.headers.as_ref().alloc_cpu };
        // SAFETY: Both only read the state of the CPU.
        let is_here = unsafe { bindings::in_softirq() && !bindings::in_hardirq() }
            && u32::from(allocated_on) == CpuId::current().as_u32();
        if is_here {
            // The packet goes to the cache of this CPU. One that another CPU has allocated would be
            // queued until a softirq runs there.
            //
            // SAFETY: The packet is owned, and given away. Bottom halves are off, and this is no
            // hard interrupt.
            unsafe { bindings::napi_consume_skb(skb, 1) };
        } else {
            // SAFETY: The packet is owned, and given away.
            unsafe { bindings::consume_skb(skb) };
        }
    }

    /// Returns the length of the whole packet, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: The packet is alive by the type invariant.
        // CAST: A `u32` fits.
        unsafe { (*self.as_raw()).len as usize }
    }

    /// Returns whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether all of the packet is in [`SkBuff::data`].
    #[inline]
    pub fn is_linear(&self) -> bool {
        // SAFETY: The packet is alive by the type invariant.
        unsafe { (*self.as_raw()).data_len == 0 }
    }

    /// Returns the number of bytes in front of the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        let skb = self.as_raw();
        // SAFETY: The packet is alive by the type invariant.
        let (head, data) = unsafe { ((*skb).head, (*skb).data) };
        data.addr().wrapping_sub(head.addr())
    }

    /// Makes the packet linear.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the packet is unchanged then.
    pub fn linearize(&mut self) -> Result {
        // SAFETY: The packet is owned alone.
        to_result(unsafe { bindings::skb_linearize(self.as_raw()) })
    }

    /// Returns the length of [`SkBuff::data`].
    #[inline]
    fn linear_len(&self) -> usize {
        // SAFETY: The packet is alive by the type invariant.
        let len = unsafe { (*self.as_raw()).len.wrapping_sub((*self.as_raw()).data_len) };
        // CAST: A `u32` fits.
        len as usize
    }

    /// Returns the linear part of the packet.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: By the type invariant these bytes are initialised, and they are not written while
        // `self` is borrowed.
        unsafe { slice::from_raw_parts((*self.as_raw()).data, self.linear_len()) }
    }

    /// Returns the linear part of the packet, to change it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is shared with a clone.
    #[inline]
    pub fn data_mut(&mut self) -> Result<&mut [u8]> {
        self.check_writable()?;
        // SAFETY: By the type invariant these bytes are initialised, and no one else accesses them
        // while `self` is borrowed, because there is no clone.
        Ok(unsafe { slice::from_raw_parts_mut((*self.as_raw()).data, self.linear_len()) })
    }

    /// Returns the maximum amount of memory, in bytes, that the packet occupies: its own, or the
    /// whole page of [`PacketPools`] in which it may be the last packet.
    pub fn footprint(&self) -> u32 {
        // SAFETY: The packet is alive by the type invariant.
        let size = unsafe { (*self.as_raw()).truesize };
        // CAST: The constant is small.
        size.max(PacketPools::PAGE as u32)
    }

    /// Fails if the data is shared.
    #[inline]
    pub(super) fn check_writable(&self) -> Result {
        // SAFETY: The packet is alive by the type invariant.
        if unsafe { raw::skb_cloned(self.as_raw()) } {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Returns a clone that shares the data, which neither packet can change while both exist.
    pub fn try_clone(&self) -> Option<Self> {
        // A peer can trigger this allocation, so a failure must not fill the log.
        let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN;
        // SAFETY: The packet is alive by the type invariant, and no other thread refers to it, for
        // it is not `Sync`.
        let raw = unsafe { bindings::skb_clone(self.as_raw(), gfp) };
        // INVARIANT: The clone is owned, and has the headers and the data of this packet.
        NonNull::new(raw).map(Self)
    }

    /// Adds `bytes` at the end.
    ///
    /// # Errors
    ///
    /// `ENOSPC` without tailroom, `EBUSY` if the data is shared with a clone. The data of a newly
    /// allocated packet is not shared.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: The closure writes exactly the bytes that it is given room for.
        unsafe {
            self.append_with(bytes.len(), |room| {
                room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                Ok(())
            })
        }
    }

    /// Adds `n` zero bytes at the end.
    ///
    /// # Errors
    ///
    /// See [`SkBuff::append`].
    #[inline]
    pub fn append_zeros(&mut self, n: usize) -> Result {
        // SAFETY: The closure writes exactly the bytes that it is given room for.
        unsafe {
            self.append_with(n, |room| {
                room.write_bytes(0, n);
                Ok(())
            })
        }
    }

    /// Adds `N` zero bytes at the end, and returns them.
    ///
    /// # Errors
    ///
    /// See [`SkBuff::append`].
    #[inline]
    pub fn append_array<const N: usize>(&mut self) -> Result<&mut [u8; N]> {
        self.append_zeros(N)?;
        // SAFETY: The packet ends with these bytes. No one else accesses them while `self` is
        // borrowed: `append_zeros` has checked that there is no clone.
        Ok(unsafe { &mut *self.tail().sub(N).cast() })
    }

    /// Shortens a packet to `len` bytes, if it is longer.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the packet is not linear.
    #[inline]
    pub fn truncate(&mut self, len: usize) -> Result {
        if !self.is_linear() {
            return Err(EINVAL);
        }
        let Some(excess) = self.len().checked_sub(len) else {
            return Ok(());
        };
        let skb = self.as_raw();
        // CAST: At most the length of the packet, a `u32`.
        let excess = excess as u32;
        // SAFETY: The packet is alive by the type invariant. All of its data ends at the tail, and
        // is at least that long.
        unsafe {
            (*skb).tail = (*skb).tail.wrapping_sub(excess);
            (*skb).len = (*skb).len.wrapping_sub(excess);
        }
        Ok(())
    }

    /// Adds `n` bytes at the end, which `write` writes to the room that it is given.
    ///
    /// # Safety
    ///
    /// If `write` returns `Ok`, it must have initialised all the `n` bytes; it must not write
    /// beyond them.
    ///
    /// # Errors
    ///
    /// See [`SkBuff::append`]; also the error of `write`. On error nothing is added.
    #[inline]
    pub(crate) unsafe fn append_with(
        &mut self,
        n: usize,
        write: impl FnOnce(*mut u8) -> Result,
    ) -> Result {
        self.check_writable()?;
        let skb = self.as_raw();
        // SAFETY: The packet is alive by the type invariant. The tail is not behind the end.
        let room = unsafe { (*skb).end.wrapping_sub((*skb).tail) };
        // CAST: A `u32` fits.
        if n > room as usize || !self.is_linear() {
            return Err(ENOSPC);
        }
        write(self.tail())?;
        // CAST: `n` is at most `room`.
        let n = n as u32;
        // INVARIANT: `write` has initialised the bytes that become data here.
        // SAFETY: The packet is linear and has that much tailroom, so neither sum overflows.
        unsafe {
            (*skb).tail = (*skb).tail.wrapping_add(n);
            (*skb).len = (*skb).len.wrapping_add(n);
        }
        Ok(())
    }

    /// Returns the end of the linear part.
    #[inline]
    fn tail(&self) -> *mut u8 {
        let skb = self.as_raw();
        // SAFETY: The packet is alive by the type invariant, and the tail is in its buffer.
        // CAST: Widening.
        unsafe { (*skb).head.add((*skb).tail as usize) }
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: The packet is owned, and given away.
        unsafe { bindings::kfree_skb(self.as_raw()) };
    }
}
