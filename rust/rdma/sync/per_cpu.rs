// SPDX-License-Identifier: GPL-2.0

//! Per-CPU counters.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    cpu::nr_cpu_ids,
    ffi,
    prelude::*, //
};

/// `N` per-CPU counters.
///
/// Counting writes only to memory of the local CPU, and needs neither an atomic operation nor a
/// lock. Reading adds up the values of all CPUs.
///
/// # Invariants
///
/// The pointer was returned by `__alloc_percpu_gfp()` for `N` values, and this value owns it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::sync::PerCpuCounters;
///
/// const SENT: usize = 0;
/// const RECEIVED: usize = 1;
///
/// let counters = PerCpuCounters::<2>::new()?;
/// counters.add(SENT, 3);
/// assert_eq!(counters.sum(SENT), 3);
/// assert_eq!(counters.sum(RECEIVED), 0);
/// # Ok::<(), Error>(())
/// ```
pub struct PerCpuCounters<const N: usize>(NonNull<ffi::c_void>);

// SAFETY: Memory for each CPU may be freed by any thread.
unsafe impl<const N: usize> Send for PerCpuCounters<N> {}
// SAFETY: Values are changed by an instruction that neither an interrupt nor a move to another CPU
// can split, and only by their own CPU; others read whole words.
unsafe impl<const N: usize> Sync for PerCpuCounters<N> {}

impl<const N: usize> PerCpuCounters<N> {
    /// Makes counters, all of them zero. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        const_assert!(N > 0, "there must be something to count");

        // SAFETY: Size and alignment are those of the values, and the size is not zero.
        let values = unsafe {
            bindings::__alloc_percpu_gfp(
                size_of::<[u64; N]>(),
                align_of::<u64>(),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        };
        // INVARIANT: The memory was just allocated, zeroed, for `N` values.
        NonNull::new(values).map(Self).ok_or(ENOMEM)
    }

    /// Adds `n` to a counter; does nothing if there is no such counter. Callable in any context.
    #[inline]
    pub fn add(&self, index: usize, n: u64) {
        if index < N {
            let values = self.0.as_ptr().cast::<u64>();
            // SAFETY: By the type invariant there are `N` values for each CPU. Those of one CPU
            // are contiguous, so the offset of a value is the same for all.
            unsafe { bindings::this_cpu_add(values.wrapping_add(index), n) };
        }
    }

    /// Returns the sum of a counter over all CPUs, 0 if there is no such counter. Callable in any
    /// context.
    pub fn sum(&self, index: usize) -> u64 {
        let mut sum: u64 = 0;
        for cpu in 0..nr_cpu_ids() {
            // SAFETY: The number is less than the number of bits of the mask.
            if index >= N || !unsafe { bindings::cpu_possible(cpu) } {
                continue;
            }
            // SAFETY: By the type invariant there are `N` values for each possible CPU, and this is
            // one. Another CPU may be changing the value, so a volatile access reads it as a whole.
            sum = sum.wrapping_add(unsafe {
                // CAST: The number of a CPU.
                bindings::per_cpu_ptr(self.0.as_ptr(), cpu as ffi::c_int)
                    .cast::<u64>()
                    .wrapping_add(index)
                    .read_volatile()
            });
        }
        sum
    }
}

impl<const N: usize> Drop for PerCpuCounters<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the memory is this value's own.
        unsafe { bindings::free_percpu(self.0.as_ptr()) };
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_per_cpu)]
mod tests {
    use super::*;

    #[test]
    fn counters_start_at_zero_and_are_independent() -> Result {
        let counters = PerCpuCounters::<3>::new()?;

        assert_eq!(counters.sum(0), 0);
        counters.add(0, 1);
        counters.add(2, 5);
        counters.add(2, 7);
        assert_eq!(counters.sum(0), 1);
        assert_eq!(counters.sum(1), 0);
        assert_eq!(counters.sum(2), 12);
        Ok(())
    }

    #[test]
    fn out_of_range_index_is_ignored() -> Result {
        let counters = PerCpuCounters::<1>::new()?;

        counters.add(1, 1);
        assert_eq!(counters.sum(1), 0);
        assert_eq!(counters.sum(0), 0);
        Ok(())
    }
}
