// SPDX-License-Identifier: GPL-2.0

//! Memory of packets that is reused without being cleared.
//!
//! A packet of 4 KiB takes 8 KiB of `alloc_skb()`, and the smallest takes 704 bytes, which hardened
//! kernels clear (`init_on_alloc`): that costs as much as to copy the payload, or a fifth of a
//! small READ. Packets that fit share a page, which returns to the pool when the last of them is
//! freed, on any CPU.
//!
//! ```text
//!   alloc:  cache of the CPU's pool <- ring of the pool <- page allocator
//!   free:   bottom halves off, on that CPU -> cache of its pool, if that has room
//!           otherwise, anywhere -> ring of the pool -> page allocator, if the ring is full
//! ```
//!
//! C header: [`include/net/page_pool/helpers.h`](srctree/include/net/page_pool/helpers.h)

use super::{
    linear_len,
    raw,
    SkBuff, //
};
use crate::{
    bindings,
    sync::BottomHalvesOff, //
};
use core::{
    ptr::{
        null_mut,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    }, //
};
use kernel::{
    cpu::{
        nr_cpu_ids,
        CpuId, //
    },
    error::from_err_ptr,
    ffi,
    page::PAGE_SIZE,
    prelude::*,
    sync::rcu, //
};

/// The order of the pages: a packet of the largest path MTU does not fit into a single page.
const ORDER: ffi::c_uint = 1;

/// The maximum number of pages that the ring of a pool keeps. With the 128 of its cache that is 3
/// MiB for each CPU that ever sent that much at once, if a page is 4 KiB.
const RING: ffi::c_uint = 256;

/// Pools of packet memory, one for each CPU.
///
/// # Invariants
///
/// `pools` is null or came from `KBox::into_raw`, and is freed a grace period after it has become
/// null. Until then, only the CPU whose number is the index of a pool touches its cache, to
/// allocate or to free, with bottom halves off. (No hard interrupt does: the kernel defers the free
/// of packets to a softirq there. The exception is netpoll, for instance of netconsole, as with the
/// pools of network drivers.)
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::net::PacketPools;
///
/// let pools = PacketPools::new()?;
/// let packet = pools.alloc(64, 1024).ok_or(ENOMEM)?;
/// pools.shut_down();
/// # Ok::<(), Error>(())
/// ```
pub struct PacketPools {
    pools: AtomicPtr<Pools>,
}

/// The pools, by the number of their CPU.
///
/// # Invariants
///
/// They are alive, and owned by this.
struct Pools(KVec<NonNull<bindings::page_pool>>);

// SAFETY: A pool may be destroyed by any thread.
unsafe impl Send for Pools {}
// SAFETY: A pool may be used by any thread that runs on its CPU.
unsafe impl Sync for Pools {}

impl PacketPools {
    /// The size of a page of a pool, in bytes. It is in use as long as any packet in it is.
    pub(super) const PAGE: usize = PAGE_SIZE << ORDER;

    /// Makes the pools, which are empty. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        // CAST: Widening.
        let cpus = nr_cpu_ids() as usize;
        let mut pools = KBox::new(Pools(KVec::with_capacity(cpus, GFP_KERNEL)?), GFP_KERNEL)?;
        for cpu in 0..cpus {
            // INVARIANT: The pool was just created, and its index is the number of a CPU.
            pools
                .0
                .push_within_capacity(create(cpu)?)
                .map_err(|_| ENOMEM)?;
        }
        // INVARIANT: It is from `into_raw`.
        Ok(Self {
            pools: AtomicPtr::new(KBox::into_raw(pools)),
        })
    }

    /// Allocates an empty linear packet, as [`SkBuff::alloc`] does. Callable wherever bottom halves
    /// may be switched off.
    pub fn alloc(&self, headroom: usize, size: usize) -> Option<SkBuff> {
        let total = linear_len(headroom, size)?;

        // If softirqs can be preempted, disabling bottom halves excludes nothing.
        if cfg!(CONFIG_PREEMPT_RT) {
            return SkBuff::alloc(headroom, size);
        }
        self.alloc_pooled(headroom, total)
            .or_else(|| SkBuff::alloc(headroom, size))
    }

    /// Allocates from the pool of this CPU.
    #[inline]
    fn alloc_pooled(&self, headroom: usize, total: u32) -> Option<SkBuff> {
        let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN;
        // SAFETY: No requirement.
        let mut size = unsafe { bindings::SKB_HEAD_ALIGN(total) };
        // CAST: Widening.
        if size as usize > Self::PAGE {
            return None;
        }
        let _bh = BottomHalvesOff::new();
        // SAFETY: By the type invariant they are alive: a grace period waits for bottom halves that
        // are off.
        let pools = unsafe { self.pools.load(Ordering::Acquire).as_ref() }?;
        // CAST: Widening.
        let pool = pools.0.get(CpuId::current().as_u32() as usize)?.as_ptr();

        // SAFETY: The pool is alive. Bottom halves are off, so no other context allocates from it
        // meanwhile. A page has that size.
        let head = NonNull::new(unsafe { bindings::page_pool_alloc_va(pool, &mut size, gfp) })?;
        // SAFETY: `head` is `size` bytes of a page, and given away if this succeeds. Bottom halves
        // are off.
        let skb = unsafe { bindings::napi_build_skb(head.as_ptr(), size) };
        let Some(skb) = NonNull::new(skb) else {
            // SAFETY: No one else has `head`, and the conditions of the allocation still hold.
            unsafe { bindings::page_pool_free_va(pool, head.as_ptr(), true) };
            return None;
        };
        // SAFETY: The packet is empty, has room for `total` bytes, and its head is of a pool.
        unsafe {
            (*skb.as_ptr()).set_pp_recycle(1);
            raw::skb_reserve(skb.as_ptr(), headroom);
        }
        // SAFETY: The packet was just made, has no data, and no transport header.
        Some(unsafe { SkBuff::from_raw(skb) })
    }

    /// Frees the memory. Sleeps. A page that still contains packets is freed within a second after
    /// the last of them; the kernel polls for this, and logs each minute that it still waits.
    ///
    /// [`PacketPools::alloc`] still works afterwards, but no longer uses the pools.
    pub fn shut_down(&self) {
        let Some(pools) = NonNull::new(self.pools.swap(null_mut(), Ordering::AcqRel)) else {
            return;
        };
        // SAFETY: By the type invariant it is from `into_raw`, and no other thread destroys it.
        for pool in unsafe { &pools.as_ref().0 } {
            // A context that looks up where to put a page from now on uses the ring. One that
            // looked before, and uses the cache, has bottom halves off, for which the grace period
            // waits.
            //
            // SAFETY: The pool is alive by the type invariant.
            unsafe { bindings::page_pool_disable_direct_recycling(pool.as_ptr()) };
        }
        rcu::synchronize_rcu();
        // SAFETY: By the type invariant it is from `into_raw`. After the swap no thread can find
        // it, and all earlier readers have finished.
        drop(unsafe { KBox::from_raw(pools.as_ptr()) });
    }
}

impl Drop for PacketPools {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        for pool in &self.0 {
            // SAFETY: The pool is alive by the type invariant, and no thread allocates from it any
            // more.
            unsafe { bindings::page_pool_destroy(pool.as_ptr()) };
        }
    }
}

/// Creates the pool of a CPU. May sleep.
fn create(cpu: usize) -> Result<NonNull<bindings::page_pool>> {
    let mut params = bindings::page_pool_params::zeroed();

    // SAFETY: The other view of these parameters has the same fields.
    let fast = unsafe { params.__bindgen_anon_1.fast.as_mut() };
    fast.order = ORDER;
    fast.pool_size = RING;
    fast.nid = bindings::NUMA_NO_NODE;
    let cpu = ffi::c_int::try_from(cpu)?;
    // SAFETY: The parameters are those of a pool without DMA. By the invariant of `PacketPools`
    // only that CPU allocates from it, with bottom halves off. The kernel requires this of a CPU
    // that returns pages to the cache.
    let pool = from_err_ptr(unsafe { bindings::page_pool_create_percpu(&params, cpu) })?;
    NonNull::new(pool).ok_or(ENOMEM)
}
