// SPDX-License-Identifier: GPL-2.0

//! Objects that one owner destroys and that others look up and use for a short while.
//!
//! The RDMA core destroys an object at a time of its choice, from a context that may sleep, and
//! frees its own structure right afterwards. The data path finds the same object by its number at
//! any time. So an object has one [`Owned`] handle, which the core's object holds, and any number
//! of short-lived [`Ref`]s, which lookups hand out. Dropping the [`Owned`] handle *waits* until the
//! last [`Ref`] is gone and destroys the object in the context of the caller: its destructor may
//! sleep, and never runs in a softirq.
//!
//! The memory is freed after an RCU grace period, so that a lookup under RCU may try to take a
//! reference on an object that is just being destroyed (it fails).

use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ops::Deref,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Completion,
    types::Opaque, //
};

/// The allocation of [`Owned`] and [`Ref`].
///
/// # Invariants
///
/// `refs` counts the [`Owned`] handle and every [`Ref`]. While `refs` is zero, only the [`Owned`]
/// handle accesses the other fields, and only the handle sets `refs` to one again.
#[pin_data]
#[repr(C)]
pub(super) struct Inner<T> {
    // First, because `kvfree_call_rcu` requires it within the first page.
    rcu: Opaque<bindings::callback_head>,
    refs: Opaque<bindings::refcount_t>,
    #[pin]
    released: Completion,
    #[pin]
    value: T,
}

impl<T> Inner<T> {
    /// Takes a reference unless the object is being destroyed.
    ///
    /// # Safety
    ///
    /// `this` must point to an `Inner<T>` whose memory is not freed during the call.
    pub(super) unsafe fn try_get(this: NonNull<Self>) -> Option<Ref<T>> {
        // SAFETY: The memory is valid by the requirement of this function, and `refs` is only
        // accessed with atomic operations.
        let refs = unsafe { (*this.as_ptr()).refs.get() };
        // Acquire: a late lookup must see the changes that `exclusive` made before its release.
        // SAFETY: `refs` is an initialised `refcount_t`.
        if unsafe { bindings::refcount_inc_not_zero_acquire(refs) } {
            // INVARIANT: The reference was just taken.
            Some(Ref {
                inner: this,
                _p: PhantomData,
            })
        } else {
            None
        }
    }
}

/// The owner's handle of an object that others may hold [`Ref`]s to.
///
/// Dropping it may sleep: it waits until every [`Ref`] is gone. Remove the object from every
/// [`Table`](super::Table) before, or this waits forever.
///
/// # Invariants
///
/// `inner` is valid, and this handle owns one of its references.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::sync::Owned;
///
/// struct Flow {
///     port: u16,
/// }
///
/// let flow = Owned::new(Ok(Flow { port: 4791 }))?;
/// let user = flow.get();
/// assert_eq!(user.port, 4791);
/// drop(user);
/// // This waits until no `Ref` is left, and destroys the flow.
/// drop(flow);
/// # Ok::<(), Error>(())
/// ```
pub struct Owned<T> {
    inner: NonNull<Inner<T>>,
    _p: PhantomData<Inner<T>>,
}

// SAFETY: An `Owned<T>` gives `&T` to this thread, may give `Ref<T>`s away, and drops `T` in the
// thread that drops it.
unsafe impl<T: Send + Sync> Send for Owned<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send + Sync> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Allocates an object and constructs it in place. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or the error of `init`.
    pub fn new(init: impl PinInit<T, Error>) -> Result<Self> {
        let inner = KBox::pin_init(
            try_pin_init!(Inner {
                rcu: Opaque::zeroed(),
                refs: Opaque::new(
                    // SAFETY: `REFCOUNT_INIT` has no requirement.
                    unsafe { bindings::REFCOUNT_INIT(1) }
                ),
                released <- Completion::new(),
                value <- init,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The object is not moved out of the allocation: it is dropped in place.
        let inner = KBox::into_raw(unsafe { Pin::into_inner_unchecked(inner) });

        // INVARIANT: The count was initialised with this handle's reference.
        Ok(Self {
            // SAFETY: A box is never null.
            inner: unsafe { NonNull::new_unchecked(inner) },
            _p: PhantomData,
        })
    }

    /// Returns a new reference.
    pub fn get(&self) -> Ref<T> {
        // SAFETY: `self` keeps the object alive and its count above zero.
        unsafe { bindings::refcount_inc((*self.inner.as_ptr()).refs.get()) };
        // INVARIANT: The reference was just taken.
        Ref {
            inner: self.inner,
            _p: PhantomData,
        }
    }

    /// Drops this handle's reference and waits until there is none. May sleep.
    fn wait(&mut self) {
        let inner = self.inner.as_ptr();

        // SAFETY: This handle owns a reference, which it gives up here.
        if !unsafe { bindings::refcount_dec_and_test((*inner).refs.get()) } {
            // SAFETY: Only this handle frees the object.
            unsafe { &(*inner).released }.wait_for_completion();
        }
    }
}

impl<T: Unpin> Owned<T> {
    /// Waits until the object is otherwise unused, and lets `f` change it. May sleep.
    ///
    /// Waits until every [`Ref`] is gone. Remove the object from every
    /// [`Table`](super::Table) before, or this waits forever.
    pub fn exclusive<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let inner = self.inner.as_ptr();

        self.wait();
        // SAFETY: The count is zero, so by the invariant of `Inner` only this handle accesses
        // `value`, and it is borrowed.
        let result = f(unsafe { &mut (*inner).value });
        // SAFETY: The completion is neither waited for nor completed while the count is zero: the
        // last `Ref` completed it under a lock that the wait has taken since.
        // INVARIANT: This handle has a reference again. The changes of `f` are visible to
        // each taker of another one.
        unsafe {
            pin_init::raw_init(&raw mut (*inner).released, Completion::new());
            bindings::refcount_set_release((*inner).refs.get(), 1);
        }
        result
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The handle owns a reference, so `value` is alive.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let inner = self.inner.as_ptr();

        self.wait();
        // SAFETY: The count is zero, so by the invariant of `Inner` no one else accesses `value`,
        // now or later.
        unsafe { core::ptr::drop_in_place(&raw mut (*inner).value) };
        // SAFETY: `inner` was allocated by a `KBox`, that is by kmalloc; `rcu` lies within it and
        // is used by nothing else. A concurrent `try_get` runs under RCU.
        unsafe { bindings::kvfree_call_rcu((*inner).rcu.get().cast(), inner.cast()) };
    }
}

/// A short-lived reference to an object.
///
/// The owner waits for it, so it must not be kept across anything that depends on the owner, on a
/// peer or on a user process.
///
/// # Invariants
///
/// `inner` is valid, and this reference is counted.
///
/// # Examples
///
/// ```
/// # use rdma::sync::{Ref, Table};
/// struct Flow {
///     port: u16,
/// }
///
/// fn port_of(flows: &Table<Flow>, id: u32) -> Option<u16> {
///     let flow: Ref<Flow> = flows.get(id)?;
///     Some(flow.port)
/// }
/// ```
pub struct Ref<T> {
    inner: NonNull<Inner<T>>,
    _p: PhantomData<Inner<T>>,
}

// SAFETY: A `Ref<T>` gives `&T`; `T` is never dropped by it.
unsafe impl<T: Send + Sync> Send for Ref<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send + Sync> Sync for Ref<T> {}

impl<T> Ref<T> {
    /// Converts the reference to a pointer, for [`Ref::from_raw`].
    pub(super) fn into_raw(self) -> NonNull<Inner<T>> {
        ManuallyDrop::new(self).inner
    }

    /// Takes back a reference.
    ///
    /// # Safety
    ///
    /// `inner` must come from [`Ref::into_raw`], once for each call.
    pub(super) unsafe fn from_raw(inner: NonNull<Inner<T>>) -> Self {
        // INVARIANT: The reference is the one that `into_raw` gave away.
        Self {
            inner,
            _p: PhantomData,
        }
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps the object alive and its count above zero.
        unsafe { bindings::refcount_inc((*self.inner.as_ptr()).refs.get()) };
        // INVARIANT: The reference was just taken.
        Self {
            inner: self.inner,
            _p: PhantomData,
        }
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: A reference is held, so `value` is alive.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Drop for Ref<T> {
    #[inline]
    fn drop(&mut self) {
        let inner = self.inner.as_ptr();

        // SAFETY: This reference is given up here.
        if unsafe { bindings::refcount_dec_and_test((*inner).refs.get()) } {
            // The owner has dropped its handle and waits. It frees the object after this call has
            // released the lock of the completion.
            // SAFETY: The owner does not free the object before the completion is complete.
            unsafe { &(*inner).released }.complete_all();
        }
    }
}
