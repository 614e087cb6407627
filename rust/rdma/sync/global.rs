// SPDX-License-Identifier: GPL-2.0

//! Pinned statics that are constructed when the module loads.

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    }, //
};

const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;

/// A static of a type that must be constructed in place and never moves.
///
/// The value is never dropped: use it only for values that need no destructor once they are empty.
///
/// # Invariants
///
/// `value` is initialised, and only shared, once `state` is `READY`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use kernel::{new_mutex, sync::Mutex};
/// use rdma::sync::Global;
///
/// static PORTS: Global<Mutex<KVec<u16>>> = Global::new();
///
/// /// Called once, when the module is loaded.
/// fn init() -> Result {
///     PORTS.init(new_mutex!(KVec::new(), "my_driver::PORTS"))
/// }
///
/// fn is_open(port: u16) -> bool {
///     PORTS
///         .get()
///         .is_some_and(|ports| ports.lock().contains(&port))
/// }
/// ```
pub struct Global<T> {
    state: Atomic<u32>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: By the type invariant the value is only shared; it is constructed by one thread.
unsafe impl<T: Send + Sync> Sync for Global<T> {}

impl<T> Global<T> {
    /// Creates the empty static.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            state: Atomic::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Constructs the value. May sleep if `init` does.
    ///
    /// # Errors
    ///
    /// The error of `init`, and `EBUSY` if the value was constructed before.
    pub fn init<E>(&'static self, init: impl PinInit<T, E>) -> Result
    where
        Error: From<E>,
    {
        if self.state.cmpxchg(EMPTY, BUSY, Acquire).is_err() {
            return Err(EBUSY);
        }
        // SAFETY: The state says that this thread alone accesses `value`, which is static and so
        // never moves.
        match unsafe { pin_init::raw_try_init(self.value.get().cast(), init) } {
            Ok(()) => {
                // INVARIANT: `value` was just initialised.
                self.state.store(READY, Release);
                Ok(())
            }
            Err(e) => {
                self.state.store(EMPTY, Release);
                Err(e.into())
            }
        }
    }

    /// Returns the value if it was constructed.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        if self.state.load(Acquire) != READY {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised and only shared.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
