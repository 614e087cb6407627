// SPDX-License-Identifier: GPL-2.0

//! Counters of a port, and those that queue pairs are bound to, as `rdma statistic` shows them.
//!
//! A queue pair counts either for its port or for the counter that it is bound to, and the core
//! adds up both for the port.
//!
//! C header: [`include/rdma/rdma_counter.h`](srctree/include/rdma/rdma_counter.h)

use super::{
    qp::Qp,
    Device,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    types::Opaque, //
};

/// The name of a counter.
///
/// # Examples
///
/// ```
/// use rdma::ib::counter::CounterDesc;
///
/// const COUNTERS: &[CounterDesc] = &[
///     CounterDesc::new(c"sent_pkts"),
///     CounterDesc::new(c"rcvd_pkts"), //
/// ];
/// ```
#[repr(transparent)]
pub struct CounterDesc(bindings::rdma_stat_desc);

// SAFETY: A description is only read.
unsafe impl Sync for CounterDesc {}

impl CounterDesc {
    /// Makes a description.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: kernel::str::as_char_ptr_in_const_context(name),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &'static CStr {
        // SAFETY: `new` took the name from a static C string.
        unsafe { crate::c_str(self.0.name) }
    }
}

/// Implements `ib_device_ops.alloc_hw_port_stats`. May sleep.
///
/// # Safety
///
/// Only for the core.
pub(super) unsafe extern "C" fn alloc_hw_port_stats<D: Driver>(
    _raw: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    alloc::<D>()
}

/// Allocates a table of all counters. May sleep.
fn alloc<D: Driver>() -> *mut bindings::rdma_hw_stats {
    // The time for which the core may cache a value: its own default.
    const LIFESPAN_MS: ffi::c_ulong = 10;

    // SAFETY: The descriptions are static, and `CounterDesc` is a `rdma_stat_desc`.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            D::COUNTERS.as_ptr().cast(),
            // CAST: A handful.
            D::COUNTERS.len() as ffi::c_int,
            LIFESPAN_MS,
        )
    }
}

/// Implements `ib_device_ops.get_hw_stats`. May sleep.
///
/// # Safety
///
/// Only for the core, with statistics of [`alloc_hw_port_stats`].
pub(super) unsafe extern "C" fn get_hw_stats<D: Driver>(
    raw: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: ffi::c_int,
) -> ffi::c_int {
    if port == 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: The device is alive.
    let dev = unsafe { Device::<D>::from_raw(raw) };
    // SAFETY: The statistics are valid, and the core holds their lock.
    unsafe { fill::<D>(stats, |i| D::read_counter(dev, i)) };
    // CAST: A handful.
    D::COUNTERS.len() as ffi::c_int
}

/// Fills in a table.
///
/// # Safety
///
/// `stats` must come from [`alloc`] for the same driver, and no one else may write to it meanwhile.
unsafe fn fill<D: Driver>(stats: *mut bindings::rdma_hw_stats, read: impl Fn(usize) -> u64) {
    for i in 0..D::COUNTERS.len() {
        // SAFETY: There are as many values as there are descriptions.
        unsafe { *(*stats).value.as_mut_ptr().add(i) = read(i) };
    }
}

/// The core's allocation of a counter of queue pairs. The core calls the functions that take one,
/// but for [`init()`] and [`alloc_stats`], under the counter's lock, or when the counter has no
/// other user.
#[repr(C)]
pub(super) struct QpCounter<D: Driver> {
    raw: Opaque<bindings::rdma_counter>,
    /// [`None`] until the first queue pair is bound: if that fails, the core frees the counter
    /// without a call of [`dealloc`].
    data: Option<D::Counter>,
}

/// Implements `ib_device_ops.counter_init`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_rdma_counter` bytes.
pub(super) unsafe extern "C" fn init<D: Driver>(raw: *mut bindings::rdma_counter) {
    // SAFETY: The allocation has room for a `QpCounter<D>`.
    unsafe { (&raw mut (*raw.cast::<QpCounter<D>>()).data).write(None) };
}

/// Implements `ib_device_ops.counter_alloc_stats`. May sleep.
///
/// # Safety
///
/// Only for the core.
pub(super) unsafe extern "C" fn alloc_stats<D: Driver>(
    _raw: *mut bindings::rdma_counter,
) -> *mut bindings::rdma_hw_stats {
    alloc::<D>()
}

/// Implements `ib_device_ops.counter_bind_qp`. May sleep. The mutex of the counter is held.
///
/// # Safety
///
/// Only for the core, with a counter after [`init()`] and a constructed queue pair of its device
/// that is not bound.
pub(super) unsafe extern "C" fn bind_qp<D: Driver>(
    raw: *mut bindings::rdma_counter,
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> ffi::c_int {
    // SAFETY: The core sets the device, which outlives the counter.
    let dev = unsafe { Device::<D>::from_raw((*raw).device) };
    // SAFETY: `init` has initialised it, and the core holds the lock.
    let data = unsafe { &mut (*raw.cast::<QpCounter<D>>()).data };
    let is_first = data.is_none();
    let counter = match data {
        Some(counter) => counter,
        None => match D::new_counter(dev) {
            Ok(counter) => data.insert(counter),
            Err(e) => return e.to_errno(),
        },
    };
    // SAFETY: The core keeps the queue pair for the call.
    let bound = unsafe { bound_to(qp) };
    // The core has checked this before, but under the lock of only one of the counters.
    if bound.cmpxchg(core::ptr::null_mut(), raw, Full).is_err() {
        if is_first {
            *data = None;
        }
        return EINVAL.to_errno();
    }
    // SAFETY: The queue pair was constructed, and the core keeps it for the call.
    D::bind_counter(counter, unsafe { Qp::<D>::owned(qp) });
    if is_first {
        // SAFETY: The core holds the lock, and reads it once this returns.
        unsafe { (*raw).id = new_id() };
    }
    0
}

/// Returns the counter that a queue pair is bound to.
///
/// # Safety
///
/// The queue pair must exist as long as the result is used.
unsafe fn bound_to<'a>(qp: *mut bindings::ib_qp) -> &'a Atomic<*mut bindings::rdma_counter> {
    // SAFETY: The field lives as long as the queue pair, and only these callbacks write it; the
    // core reads whole words.
    unsafe { Atomic::from_ptr(&raw mut (*qp).counter) }
}

/// Returns the number of a new counter, which is not zero. Numbers repeat after 2^32. The core does
/// not show a counter whose number another one has.
fn new_id() -> u32 {
    static NEXT: Atomic<u32> = Atomic::new(1);

    loop {
        let id = NEXT.fetch_add(1, Relaxed);
        if id != 0 {
            return id;
        }
    }
}

/// Implements `ib_device_ops.counter_unbind_qp`. May sleep. The mutex of the counter is held.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair that [`bind_qp`] has bound.
pub(super) unsafe extern "C" fn unbind_qp<D: Driver>(
    qp: *mut bindings::ib_qp,
    _port: u32,
) -> ffi::c_int {
    // SAFETY: The core keeps the queue pair for the call.
    let bound = unsafe { bound_to(qp) };
    // Only one of two concurrent calls may free the counter.
    if bound.load(Relaxed).is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: The queue pair was constructed, and the core keeps it for the call.
    D::unbind_counter(unsafe { Qp::<D>::owned(qp) });
    bound.store(core::ptr::null_mut(), Release);
    0
}

/// Implements `ib_device_ops.counter_update_stats`. May sleep. The mutex of the counter is held.
///
/// # Safety
///
/// Only for the core, with a counter after [`init()`], whose table is that of [`alloc_stats`].
pub(super) unsafe extern "C" fn update_stats<D: Driver>(
    raw: *mut bindings::rdma_counter,
) -> ffi::c_int {
    // SAFETY: `init` has initialised it, and the core holds the lock.
    let data = unsafe { &(*raw.cast::<QpCounter<D>>()).data };
    let Some(counter) = data else {
        return EINVAL.to_errno();
    };
    // SAFETY: The table is valid, and is written under the lock of the counter only.
    unsafe { fill::<D>((*raw).stats, |i| D::read_bound_counter(counter, i)) };
    0
}

/// Implements `ib_device_ops.counter_dealloc`. May sleep.
///
/// # Safety
///
/// Only for the core, with a counter after [`init()`] that no queue pair is bound to. This is the
/// last call with it.
pub(super) unsafe extern "C" fn dealloc<D: Driver>(raw: *mut bindings::rdma_counter) -> ffi::c_int {
    // SAFETY: `init` has initialised it, and the counter has no other user any more.
    drop(unsafe { (*raw.cast::<QpCounter<D>>()).data.take() });
    0
}
