// SPDX-License-Identifier: GPL-2.0

//! Spinlocks that disable bottom halves, or save and disable interrupts.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::bindings;
use kernel::{
    ffi,
    sync::lock::{
        Backend,
        Guard,
        Lock, //
    }, //
};

/// A `spinlock_t` taken with `spin_lock_bh()`: for data shared by processes and softirqs.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{new_spinlock_bh, sync::SpinLockBh};
/// #[pin_data]
/// struct Receiver {
///     #[pin]
///     packets: SpinLockBh<KVec<u32>>,
/// }
///
/// let receiver = KBox::pin_init(
///     pin_init!(Receiver {
///         packets <- new_spinlock_bh!(KVec::new(), "my_driver::Receiver::packets"),
///     }),
///     GFP_KERNEL,
/// )?;
/// receiver.packets.lock().push(1, GFP_ATOMIC)?;
/// # Ok::<(), Error>(())
/// ```
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// A [`SpinLockBh`] that is held.
///
/// # Examples
///
/// ```
/// use rdma::sync::SpinLockBhGuard;
///
/// /// Resets a count whose lock the caller holds.
/// fn reset(count: &mut SpinLockBhGuard<'_, u32>) -> u32 {
///     core::mem::take(&mut **count)
/// }
/// ```
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// A `spinlock_t` taken with `spin_lock_irqsave()`: for data that a caller may touch in any
/// context, with interrupts off too.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{new_spinlock_irqsave, sync::SpinLockIrqSave};
/// #[pin_data]
/// struct Completions {
///     #[pin]
///     pending: SpinLockIrqSave<KVec<u64>>,
/// }
///
/// impl Completions {
///     fn new() -> impl PinInit<Self> {
///         pin_init!(Self {
///             pending <- new_spinlock_irqsave!(KVec::new(), "my_driver::Completions::pending"),
///         })
///     }
///
///     /// Called by consumers that have disabled interrupts, too.
///     fn poll(&self) -> Option<u64> {
///         self.pending.lock().pop()
///     }
/// }
/// ```
pub type SpinLockIrqSave<T> = Lock<T, SpinLockIrqSaveBackend>;

/// Creates a [`SpinLockBh`] initialiser with the given name and a lock class of its own.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::new_spinlock_bh;
///
/// let lock = KBox::pin_init(new_spinlock_bh!(0u32, "my_driver::lock"), GFP_KERNEL)?;
/// *lock.lock() = 1;
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal $(,)?) => {
        $crate::sync::SpinLockBh::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_bh;

/// Creates a [`SpinLockIrqSave`] initialiser with the given name and a lock class of its own.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::new_spinlock_irqsave;
///
/// let lock = KBox::pin_init(new_spinlock_irqsave!(0u32, "my_driver::lock"), GFP_KERNEL)?;
/// *lock.lock() = 1;
/// # Ok::<(), Error>(())
/// ```
#[macro_export]
macro_rules! new_spinlock_irqsave {
    ($inner:expr, $name:literal $(,)?) => {
        $crate::sync::SpinLockIrqSave::new(
            $inner,
            ::kernel::optional_name!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub use new_spinlock_irqsave;

/// The [`Backend`] of [`SpinLockBh`].
///
/// # Examples
///
/// ```
/// use kernel::sync::lock::Lock;
/// use rdma::sync::spinlock::SpinLockBhBackend;
///
/// /// Returns the value of a `SpinLockBh`.
/// fn value(lock: &Lock<u32, SpinLockBhBackend>) -> u32 {
///     *lock.lock()
/// }
/// ```
pub struct SpinLockBhBackend;

// SAFETY: `spinlock_t` provides mutual exclusion.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for write, `name` and `key` live forever, by the contract of
        // `init`.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` was initialised, by the contract of `lock`.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock, by the contract of `unlock`.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    unsafe fn try_lock(_ptr: *mut Self::State) -> Option<Self::GuardState> {
        // Nothing calls this, and a try-lock may fail.
        None
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // Without lockdep, this checks nothing, but is a call.
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: `ptr` was initialised, by the contract of `assert_is_held`.
            unsafe { bindings::spin_assert_is_held(ptr) }
        }
    }
}

/// The [`Backend`] of [`SpinLockIrqSave`].
///
/// # Examples
///
/// ```
/// use kernel::sync::lock::Lock;
/// use rdma::sync::spinlock::SpinLockIrqSaveBackend;
///
/// /// Returns the value of a `SpinLockIrqSave`.
/// fn value(lock: &Lock<u32, SpinLockIrqSaveBackend>) -> u32 {
///     *lock.lock()
/// }
/// ```
pub struct SpinLockIrqSaveBackend;

// SAFETY: `spinlock_t` provides mutual exclusion.
unsafe impl Backend for SpinLockIrqSaveBackend {
    type State = bindings::spinlock_t;
    type GuardState = ffi::c_ulong;

    unsafe fn init(
        ptr: *mut Self::State,
        name: *const ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for write, `name` and `key` live forever, by the contract of
        // `init`.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` was initialised, by the contract of `lock`.
        unsafe { bindings::spin_lock_irqsave(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock and `guard_state` comes from `lock`, by the contract of
        // `unlock`.
        unsafe { bindings::spin_unlock_irqrestore(ptr, *guard_state) }
    }

    unsafe fn try_lock(_ptr: *mut Self::State) -> Option<Self::GuardState> {
        // Nothing calls this, and a try-lock may fail.
        None
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // Without lockdep, this checks nothing, but is a call.
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: `ptr` was initialised, by the contract of `assert_is_held`.
            unsafe { bindings::spin_assert_is_held(ptr) }
        }
    }
}
