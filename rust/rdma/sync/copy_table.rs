// SPDX-License-Identifier: GPL-2.0

//! Lookup of plain values by number under RCU.

use crate::bindings;
use core::{
    marker::PhantomData,
    ops::RangeInclusive,
    ptr::NonNull, //
};
use kernel::{
    alloc::Flags,
    error::to_result,
    ffi,
    prelude::*,
    sync::rcu,
    types::Opaque, //
};

/// A value, and the head for its deferred free.
#[repr(C)]
struct Entry<T> {
    // First, because `kvfree_call_rcu()` requires it within the first page.
    rcu: Opaque<bindings::callback_head>,
    value: T,
}

/// A table of values by number, for values that are copied out at each lookup.
///
/// There are no references to an entry, so removing one neither waits nor sleeps.
///
/// # Invariants
///
/// Every entry of `xa` came from `KBox::<Entry<T>>::into_raw` and is only read.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::sync::CopyTable;
///
/// let mtus = KBox::pin_init(CopyTable::<u32>::new(1..=0xffff), GFP_KERNEL)?;
/// let id = mtus.insert(1024, GFP_KERNEL)?;
/// mtus.replace(id, 4096)?;
/// assert_eq!(mtus.get(id), Some(4096));
/// mtus.remove(id);
/// assert_eq!(mtus.get(id), None);
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct CopyTable<T: Copy> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    /// The number after the last one that was handed out. Used under the lock of the array.
    next: Opaque<u32>,
    first: u32,
    last: u32,
    _p: PhantomData<KBox<Entry<T>>>,
}

// SAFETY: The array has its own lock, readers use RCU, and `T` is plain data.
unsafe impl<T: Copy + Send> Send for CopyTable<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Copy + Send + Sync> Sync for CopyTable<T> {}

impl<T: Copy> CopyTable<T> {
    /// Creates an empty table that hands out the numbers of `range`.
    pub fn new(range: RangeInclusive<u32>) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `xa` is valid for write and pinned.
            xa <- unsafe {
                Opaque::ffi_init(|xa| {
                    bindings::xa_init_flags(
                        xa,
                        bindings::XA_FLAGS_ALLOC
                            | bindings::RUST_CONST_HELPER_XA_FLAGS_LOCK_IRQ
                            | bindings::RUST_CONST_HELPER_XA_FLAGS_ACCOUNT,
                    )
                })
            },
            next: Opaque::new(*range.start()),
            first: *range.start(),
            last: *range.end(),
            _p: PhantomData,
        })
    }

    /// Stores a value under a free number and returns the number.
    ///
    /// Sleeps only if `flags` allow it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if every number is taken, `ENOMEM`.
    pub fn insert(&self, value: T, flags: Flags) -> Result<u32> {
        let entry = Self::new_entry(value, flags)?;
        let mut id = 0;
        let limit = bindings::xa_limit {
            max: self.last,
            min: self.first,
        };

        // SAFETY: The array is initialised, and the pointers are to locals and to `next`, which is
        // used only under the lock. INVARIANT: `entry` is from `KBox::into_raw`.
        let ret = unsafe {
            let irq = bindings::xa_lock_irqsave(self.xa.get());
            let ret = bindings::__xa_alloc_cyclic(
                self.xa.get(),
                &mut id,
                entry.as_ptr().cast(),
                limit,
                self.next.get(),
                bindings::GFP_ATOMIC,
            );
            bindings::xa_unlock_irqrestore(self.xa.get(), irq);
            ret
        };
        if let Err(e) = to_result(ret.min(0)) {
            // SAFETY: The array did not take the entry.
            drop(unsafe { KBox::from_raw(entry.as_ptr()) });
            return Err(e);
        }
        Ok(id)
    }

    /// Replaces the value under a number from [`CopyTable::insert`]. Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the old value stays; `ENOENT` if the number is not in use.
    pub fn replace(&self, id: u32, value: T) -> Result {
        let entry = Self::new_entry(value, GFP_ATOMIC)?;
        // SAFETY: The array is initialised. The store is of a number that is in use, so nothing is
        // allocated, and it cannot fail.
        // INVARIANT: `entry` is from `KBox::into_raw`.
        // CAST: Widening.
        let old = unsafe {
            let irq = bindings::xa_lock_irqsave(self.xa.get());
            let mut old = bindings::xa_load(self.xa.get(), id as usize);
            if !old.is_null() {
                old = bindings::__xa_store(
                    self.xa.get(),
                    id as usize,
                    entry.as_ptr().cast(),
                    bindings::GFP_ATOMIC,
                );
            }
            bindings::xa_unlock_irqrestore(self.xa.get(), irq);
            old
        };
        if old.is_null() {
            // SAFETY: The array did not take the entry.
            drop(unsafe { KBox::from_raw(entry.as_ptr()) });
            return Err(ENOENT);
        }
        self.free_entry(old);
        Ok(())
    }

    /// Removes a number. Callable in any context.
    pub fn remove(&self, id: u32) {
        // SAFETY: The array is initialised.
        // CAST: Widening.
        let old = unsafe {
            let irq = bindings::xa_lock_irqsave(self.xa.get());
            let old = bindings::__xa_erase(self.xa.get(), id as usize);
            bindings::xa_unlock_irqrestore(self.xa.get(), irq);
            old
        };
        self.free_entry(old);
    }

    /// Returns a copy of the value under a number. Callable in any context.
    pub fn get(&self, id: u32) -> Option<T> {
        let _rcu = rcu::read_lock();
        // SAFETY: The array is initialised.
        // CAST: Widening.
        let entry = unsafe { bindings::xa_load(self.xa.get(), id as usize) };
        let entry = NonNull::new(entry.cast::<Entry<T>>())?;
        // SAFETY: An entry that was found under RCU is freed after a grace period, and is never
        // written.
        Some(unsafe { (*entry.as_ptr()).value })
    }

    /// Allocates an entry.
    fn new_entry(value: T, flags: Flags) -> Result<NonNull<Entry<T>>> {
        let entry = KBox::new(
            Entry {
                rcu: Opaque::zeroed(),
                value,
            },
            flags,
        )?;
        // SAFETY: A box is never null.
        Ok(unsafe { NonNull::new_unchecked(KBox::into_raw(entry)) })
    }

    /// Frees an entry that was taken out of the array.
    fn free_entry(&self, entry: *mut ffi::c_void) {
        let Some(entry) = NonNull::new(entry.cast::<Entry<T>>()) else {
            return;
        };
        // SAFETY: The entry came from a `KBox`, that is from kmalloc; `rcu` is used by nothing
        // else.
        unsafe {
            bindings::kvfree_call_rcu((*entry.as_ptr()).rcu.get().cast(), entry.as_ptr().cast())
        };
    }
}

#[pinned_drop]
impl<T: Copy> PinnedDrop for CopyTable<T> {
    fn drop(self: Pin<&mut Self>) {
        // Every user of a number removes it before.
        // SAFETY: The array is initialised, and no one else uses it.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_copy_table)]
mod tests {
    use super::*;

    #[test]
    fn replace_fails_for_unused_id() -> Result {
        let table = KBox::pin_init(CopyTable::<u32>::new(1..=5), GFP_KERNEL)?;

        assert_eq!(table.replace(1, 7).err(), Some(ENOENT));
        assert_eq!(table.get(1), None);
        let id = table.insert(7, GFP_KERNEL)?;
        table.replace(id, 8)?;
        assert_eq!(table.get(id), Some(8));
        table.remove(id);
        assert_eq!(table.replace(id, 9).err(), Some(ENOENT));
        Ok(())
    }
}
