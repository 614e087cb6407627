// SPDX-License-Identifier: GPL-2.0

//! Counters of a port, as `rdma statistic` shows them.

use super::{
    Device,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

/// The name of a counter.
///
/// # Examples
///
/// ```
/// use rdma::ib::stats::CounterDesc;
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
pub(super) fn alloc<D: Driver>() -> *mut bindings::rdma_hw_stats {
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
pub(super) unsafe fn fill<D: Driver>(
    stats: *mut bindings::rdma_hw_stats,
    read: impl Fn(usize) -> u64,
) {
    for i in 0..D::COUNTERS.len() {
        // SAFETY: There are as many values as there are descriptions.
        unsafe { *(*stats).value.as_mut_ptr().add(i) = read(i) };
    }
}
