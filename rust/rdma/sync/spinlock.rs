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
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// A [`SpinLockBh`] that is held.
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// A `spinlock_t` taken with `spin_lock_irqsave()`: for data that a caller may touch in any
/// context, with interrupts off too.
pub type SpinLockIrqSave<T> = Lock<T, SpinLockIrqSaveBackend>;

/// Creates a [`SpinLockBh`] initialiser with the given name and a lock class of its own.
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
        // SAFETY: `ptr` is valid for write, `name` and `key` live for ever, by the contract of
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

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: `ptr` was initialised, by the contract of `try_lock`.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(())
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` was initialised, by the contract of `assert_is_held`.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}

/// The [`Backend`] of [`SpinLockIrqSave`].
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
        // SAFETY: `ptr` is valid for write, `name` and `key` live for ever, by the contract of
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
        // Not needed. An attempt may always fail.
        None
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` was initialised, by the contract of `assert_is_held`.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
