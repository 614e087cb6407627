// SPDX-License-Identifier: GPL-2.0

//! Lookup of objects by number under RCU.
//!
//! C header: [`include/linux/xarray.h`](srctree/include/linux/xarray.h)

use super::{
    owned::{
        Inner,
        Ref, //
    },
    Owned, //
};
use crate::{
    bindings,
    random, //
};
use core::{
    marker::PhantomData,
    ops::RangeInclusive,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu, //
    },
    types::Opaque, //
};

/// A table of objects by number.
///
/// # Invariants
///
/// Every entry of `xa` is either reserved or came from `Ref::into_raw`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::sync::{Global, Owned, Table};
/// struct Flow {
///     port: u16,
/// }
///
/// static FLOWS: Global<Table<Flow>> = Global::new();
///
/// FLOWS.init(Table::new(1..=0xffff))?;
/// let flows = FLOWS.get().ok_or(ENODEV)?;
///
/// let number = flows.reserve()?;
/// let flow = Owned::new(Ok(Flow { port: 4791 }))?;
/// number.publish(&flow);
/// assert!(flows.get(number.get()).is_some());
///
/// // The table has a reference, which dropping `flow` would wait for.
/// number.hide();
/// drop(flow);
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct Table<T> {
    #[pin]
    xa: Opaque<bindings::xarray>,
    first: u32,
    last: u32,
    order: Order,
    _p: PhantomData<Ref<T>>,
}

/// The order in which a [`Table`] hands out numbers.
enum Order {
    /// Cyclically, so that a freed number is not reused soon. `next` is used under the lock of the
    /// array.
    Cyclic { next: Opaque<u32> },
    /// At random, of far more numbers than are in use at any time.
    Random { used: Atomic<u32>, max: u32 },
}

// SAFETY: The array has its own lock, readers use RCU, and `Ref<T>` may be used by any thread.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// Creates an empty table that hands out the numbers of `range`.
    pub fn new(range: RangeInclusive<u32>) -> impl PinInit<Self> {
        let order = Order::Cyclic {
            next: Opaque::new(*range.start()),
        };
        Self::with_order(range, order)
    }

    /// Creates an empty table that hands out up to `max` numbers of `range` that cannot be guessed.
    ///
    /// Numbers that are far apart share no node of the array. Objects in use cost up to some
    /// hundred bytes more each, and a lookup visits as many nodes as the largest number demands.
    pub fn new_random(range: RangeInclusive<u32>, max: u32) -> impl PinInit<Self> {
        let order = Order::Random {
            used: Atomic::new(0),
            max,
        };
        Self::with_order(range, order)
    }

    fn with_order(range: RangeInclusive<u32>, order: Order) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `xa` is valid for write and pinned.
            xa <- unsafe {
                Opaque::ffi_init(|xa| {
                    bindings::xa_init_flags(
                        xa,
                        bindings::XA_FLAGS_ALLOC
                            | bindings::RUST_CONST_HELPER_XA_FLAGS_ACCOUNT
                            | bindings::RUST_CONST_HELPER_XA_FLAGS_LOCK_IRQ,
                    )
                })
            },
            first: *range.start(),
            last: *range.end(),
            order,
            _p: PhantomData,
        })
    }

    /// Reserves a number; lookups do not find it yet. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if every number is taken, `ENOMEM`.
    pub fn reserve(&'static self) -> Result<Number<T>> {
        let id = match &self.order {
            Order::Cyclic { next } => self.alloc(next)?,
            Order::Random { used, max } => {
                if used.fetch_add(1, Relaxed) >= *max {
                    used.fetch_sub(1, Relaxed);
                    return Err(EBUSY);
                }
                self.alloc(&Opaque::new(self.any())).inspect_err(|_| {
                    used.fetch_sub(1, Relaxed);
                })?
            }
        };
        // INVARIANT: The number was just reserved.
        Ok(Number { table: self, id })
    }

    /// Returns a random number of the range. All are equally likely, except for a bias of the
    /// range's size in 2^64.
    fn any(&self) -> u32 {
        let count = u64::from(self.last.saturating_sub(self.first)).saturating_add(1);
        // CAST: Less than `count`, which is at most 2^32.
        let offset = random::word().checked_rem(count).unwrap_or(0) as u32;
        self.first.saturating_add(offset)
    }

    /// Reserves the first free number from `next` on, or from the first one on if there is none.
    /// `next` becomes the number behind it.
    ///
    /// If memory is short, the array drops its lock meanwhile, and `next` may go back.
    fn alloc(&self, next: &Opaque<u32>) -> Result<u32> {
        let mut id = 0;
        let limit = bindings::xa_limit {
            max: self.last,
            min: self.first,
        };

        // SAFETY: The array is initialised. The pointers are to locals and to `next`, which is a
        // local of the caller, or is used only under the lock of this array, as here.
        let ret = unsafe {
            bindings::xa_alloc_cyclic_irq(
                self.xa.get(),
                &mut id,
                core::ptr::null_mut(),
                limit,
                next.get(),
                bindings::GFP_KERNEL,
            )
        };
        // A return of 1 means that the numbers have wrapped.
        to_result(ret.min(0))?;
        Ok(id)
    }

    /// Looks up a number. Callable in any context.
    #[inline]
    pub fn get(&self, id: u32) -> Option<Ref<T>> {
        let _rcu = rcu::read_lock();
        // SAFETY: The array is initialised.
        // CAST: Widening.
        let entry = unsafe { bindings::xa_load(self.xa.get(), id as usize) };
        let inner = NonNull::new(entry.cast::<Inner<T>>())?;
        // SAFETY: The memory of an object that was found under RCU is freed after a grace period.
        unsafe { Inner::try_get(inner) }
    }

    /// Stores an entry, or null, under a reserved number, and drops the previous one.
    fn store(&self, id: u32, entry: *mut ffi::c_void) {
        // SAFETY: The array is initialised. The number was reserved, so nothing is allocated, and
        // storing null leaves it reserved.
        // CAST: Widening.
        let old = unsafe {
            let flags = bindings::xa_lock_irqsave(self.xa.get());
            let old = bindings::__xa_store(self.xa.get(), id as usize, entry, bindings::GFP_ATOMIC);
            bindings::xa_unlock_irqrestore(self.xa.get(), flags);
            old
        };
        Self::put_entry(old);
    }

    /// Takes a number out of the array.
    fn erase(&self, id: u32) {
        // SAFETY: The array is initialised.
        // CAST: Widening.
        let old = unsafe {
            let flags = bindings::xa_lock_irqsave(self.xa.get());
            let old = bindings::__xa_erase(self.xa.get(), id as usize);
            bindings::xa_unlock_irqrestore(self.xa.get(), flags);
            old
        };
        Self::put_entry(old);
    }

    /// Drops the reference that an entry of the array stands for.
    fn put_entry(entry: *mut ffi::c_void) {
        let Some(inner) = NonNull::new(entry.cast::<Inner<T>>()) else {
            return;
        };
        // SAFETY: By the type invariant the entry came from `Ref::into_raw`, and it was taken out
        // of the array.
        drop(unsafe { Ref::from_raw(inner) });
    }
}

#[pinned_drop]
impl<T> PinnedDrop for Table<T> {
    fn drop(self: Pin<&mut Self>) {
        // Every object holds its number until it is destroyed, and removes it then.
        // SAFETY: The array is initialised, and no one else uses it.
        unsafe { bindings::xa_destroy(self.xa.get()) };
    }
}

/// A number of a [`Table`], given back when this is dropped.
///
/// # Invariants
///
/// `id` is reserved in `table` for this value.
///
/// # Examples
///
/// ```
/// # use rdma::sync::{Number, Owned};
/// struct Flow {
///     port: u16,
/// }
///
/// /// A flow as its owner has it. Fields are dropped in the order of declaration.
/// struct OwnedFlow {
///     flow: Owned<Flow>,
///     number: Number<Flow>,
/// }
///
/// impl Drop for OwnedFlow {
///     fn drop(&mut self) {
///         self.number.hide();
///     }
/// }
/// ```
pub struct Number<T: 'static> {
    table: &'static Table<T>,
    id: u32,
}

impl<T> Number<T> {
    /// Returns the number.
    #[inline]
    pub fn get(&self) -> u32 {
        self.id
    }

    /// Makes an object visible under the number. Callable in any context.
    pub fn publish(&self, object: &Owned<T>) {
        let entry = object.get().into_raw().as_ptr().cast();
        self.table.store(self.id, entry);
    }

    /// Makes lookups of the number fail. Callable in any context.
    ///
    /// Call this before the [`Owned`] handle is dropped, which waits for the table's reference.
    pub fn hide(&self) {
        self.table.store(self.id, core::ptr::null_mut());
    }
}

impl<T> Drop for Number<T> {
    fn drop(&mut self) {
        self.table.erase(self.id);
        if let Order::Random { used, .. } = &self.table.order {
            used.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_table)]
mod tests {
    use super::{
        super::Global,
        *, //
    };

    #[test]
    fn freed_number_is_used_last() -> Result {
        static TABLE: Global<Table<u32>> = Global::new();

        // The module is loaded afresh for each run.
        TABLE.init(Table::new(1..=3))?;
        let table = TABLE.get().ok_or(ENODEV)?;
        let (first, second) = (table.reserve()?, table.reserve()?);
        assert_eq!((first.get(), second.get()), (1, 2));
        drop(first);
        let (third, again) = (table.reserve()?, table.reserve()?);
        assert_eq!((third.get(), again.get()), (3, 1));
        assert_eq!(table.reserve().err(), Some(EBUSY));
        Ok(())
    }

    #[test]
    fn random_numbers_are_limited_by_count() -> Result {
        static TABLE: Global<Table<u32>> = Global::new();

        TABLE.init(Table::new_random(16..=4111, 3))?;
        let table = TABLE.get().ok_or(ENODEV)?;
        let taken = [table.reserve()?, table.reserve()?, table.reserve()?];
        assert_eq!(table.reserve().err(), Some(EBUSY));
        // They are consecutive by chance in at most one run in 2^24.
        let [a, b, c] = taken.each_ref().map(Number::get);
        assert!(a + 1 != b || b + 1 != c);
        for number in &taken {
            assert!((16..=4111).contains(&number.get()));
        }
        drop(taken);
        table.reserve()?;
        Ok(())
    }

    #[test]
    fn all_numbers_are_used_before_ebusy() -> Result {
        static TABLE: Global<Table<u32>> = Global::new();

        TABLE.init(Table::new_random(2..=4, 9))?;
        let table = TABLE.get().ok_or(ENODEV)?;
        let taken = [table.reserve()?, table.reserve()?, table.reserve()?];
        assert_eq!(taken.iter().map(Number::get).sum::<u32>(), 2 + 3 + 4);
        assert_eq!(table.reserve().err(), Some(EBUSY));
        Ok(())
    }
}
