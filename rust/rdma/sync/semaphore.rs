// SPDX-License-Identifier: GPL-2.0

//! A counting semaphore whose waiters are called back, for code that must not sleep.
//!
//! ```text
//!                 acquire()                       a permit is dropped
//!   idle waiter ------------> permit  waiting <-----------+
//!        |                               ^                |    Wake::wake()
//!        +--- none is left, or others ---+                v
//!             wait: None                 |             called
//!                                        |                |
//!            acquire() fails: goes first +----------------+--> acquire(): permit
//!                                                         +--> leave(): the next one is called
//! ```
//!
//! Each permit that is dropped calls one waiter, the first, which then tries again. Other callers
//! of [`Semaphore::acquire`] queue behind the waiters that were not called yet. If there are none,
//! they may get ahead of one that was called, which then goes first again. A waiter that was called
//! and no longer needs a permit must call [`Waiter::leave`], or the others would wait for it. The
//! time of a step does not depend on the number of waiters.

use super::{
    SpinLockBh,
    Wake, //
};
use kernel::{
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        List,
        ListArc,
        ListLinks,
        TryNewListArc, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A number of permits, and a queue of waiters.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::sync::{semaphore::Waiter, Semaphore, Wake};
/// /// Gives the only permit to `first`, and then to `second`.
/// fn take_turns<W: Wake>(first: W, second: W) -> Result {
///     let fetches = Semaphore::new(1)?;
///     let mut first = Waiter::new(first)?;
///     let permit = fetches.acquire(&mut first).ok_or(EBUSY)?;
///
///     let mut second = Waiter::new(second)?;
///     assert!(fetches.acquire(&mut second).is_none());
///     // This wakes `second`.
///     drop(permit);
///     Ok(())
/// }
/// ```
#[pin_data]
pub struct Semaphore<W: Wake> {
    #[pin]
    inner: SpinLockBh<Inner<W>>,
}

struct Inner<W: Wake> {
    /// The free permits.
    free: u32,
    waiting: List<Entry<W>>,
}

/// A permit of a semaphore, given back when it is dropped: with bottom halves on or off, but not
/// with interrupts off.
///
/// # Examples
///
/// ```
/// # use kernel::sync::Arc;
/// # use rdma::sync::{semaphore::Permit, Semaphore, Wake};
/// /// A fetch that is in progress.
/// struct Fetch<W: Wake>(Permit<W>);
///
/// fn start<W: Wake>(fetches: &Arc<Semaphore<W>>) -> Option<Fetch<W>> {
///     fetches.try_acquire().map(Fetch)
/// }
/// ```
pub struct Permit<W: Wake>(Arc<Semaphore<W>>);

/// A waiter for a permit. Belongs to one caller at a time.
///
/// # Invariants
///
/// The entry is in no list if `at` is `None`, and else in none or in that of `at`.
///
/// # Examples
///
/// ```
/// # use rdma::sync::{semaphore::Waiter, Wake};
/// /// Stops waiting when there is nothing to fetch any more.
/// fn cancel(waiter: &mut Waiter<impl Wake>) {
///     if waiter.is_waiting() {
///         waiter.leave();
///     }
/// }
/// ```
pub struct Waiter<W: Wake> {
    entry: Arc<Entry<W>>,
    at: Option<Arc<Semaphore<W>>>,
}

const IDLE: u32 = 0;
const WAITING: u32 = 1;
const CALLED: u32 = 2;

/// The part of a waiter that the semaphore refers to.
#[pin_data]
struct Entry<W: Wake> {
    #[pin]
    tracker: AtomicTracker,
    #[pin]
    links: ListLinks,
    /// Written under the lock of the semaphore: `WAITING` means that it is in the list.
    state: Atomic<u32>,
    waker: W,
}

impl_list_arc_safe! {
    impl{W: Wake} ListArcSafe<0> for Entry<W> { tracked_by tracker: AtomicTracker; }
}

impl_list_item! {
    impl{W: Wake} ListItem<0> for Entry<W> { using ListLinks { self.links }; }
}

impl<W: Wake> Semaphore<W> {
    /// Creates a semaphore with a number of permits. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(permits: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                inner <- crate::new_spinlock_bh!(
                    Inner {
                        free: permits,
                        waiting: List::new(),
                    },
                    "rdma::Semaphore"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes a permit if one is free, ahead of waiters. Callable with bottom halves on or off.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit<W>> {
        let mut inner = self.inner.lock();
        inner.free = inner.free.checked_sub(1)?;
        Some(Permit(self.clone()))
    }

    /// Takes a permit, or has the waiter wait for one: then its waker is going to be called,
    /// once, unless it leaves before. Callable with bottom halves on or off.
    pub fn acquire(self: &Arc<Self>, waiter: &mut Waiter<W>) -> Option<Permit<W>> {
        if waiter.at.as_ref().is_some_and(|at| !Arc::ptr_eq(at, self)) {
            waiter.leave();
        }
        let mut inner = self.inner.lock();
        let entry = &waiter.entry;
        let called = entry.state.load(Relaxed) == CALLED;

        if called || inner.waiting.is_empty() {
            if let Some(free) = inner.free.checked_sub(1) {
                inner.free = free;
                entry.state.store(IDLE, Relaxed);
                waiter.at = None;
                return Some(Permit(self.clone()));
            }
        }
        // INVARIANT: The entry is in the list of `at` already, or is put into it below.
        waiter.at = Some(self.clone());
        if let Ok(item) = ListArc::try_from_arc(entry.clone()) {
            entry.state.store(WAITING, Relaxed);
            if called {
                inner.waiting.push_front(item);
            } else {
                inner.waiting.push_back(item);
            }
        }
        None
    }
}

impl<W: Wake> Inner<W> {
    /// Takes the first waiter out of the list, whose waker is to be called without the lock.
    fn next(&mut self) -> Option<Arc<Entry<W>>> {
        let item = self.waiting.pop_front()?;
        item.state.store(CALLED, Relaxed);
        Some(item.into_arc())
    }
}

impl<W: Wake> Drop for Permit<W> {
    fn drop(&mut self) {
        let next = {
            let mut inner = self.0.inner.lock();
            inner.free = inner.free.saturating_add(1);
            inner.next()
        };
        if let Some(next) = next {
            next.waker.wake();
        }
    }
}

impl<W: Wake> Waiter<W> {
    /// Creates one that does not wait. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(waker: W) -> Result<Self> {
        let entry = Arc::pin_init(
            pin_init!(Entry {
                tracker <- AtomicTracker::new(),
                links <- ListLinks::new(),
                state: Atomic::new(IDLE),
                waker,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // INVARIANT: No list has the entry yet.
        Ok(Self { entry, at: None })
    }

    /// Returns whether it waits and was not called yet.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.at.is_some() && self.entry.state.load(Relaxed) == WAITING
    }

    /// Ends the wait. If this waiter was called already, the next one is called. Callable with
    /// bottom halves on or off.
    pub fn leave(&mut self) {
        let Some(semaphore) = self.at.take() else {
            return;
        };
        let mut inner = semaphore.inner.lock();
        let next = match self.entry.state.load(Relaxed) {
            WAITING => {
                // SAFETY: By the type invariant the entry is in no list but that of `semaphore`,
                // whose lock is held.
                unsafe { inner.waiting.remove(&self.entry) };
                None
            }
            CALLED => inner.next(),
            _ => None,
        };
        self.entry.state.store(IDLE, Relaxed);
        drop(inner);
        if let Some(next) = next {
            next.waker.wake();
        }
    }
}

impl<W: Wake> Drop for Waiter<W> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_semaphore)]
mod tests {
    use super::*;

    /// The digits of the called waiters.
    static CALLS: Atomic<u32> = Atomic::new(0);

    #[derive(Clone, Copy)]
    struct Digit(u32);

    impl Wake for Digit {
        fn wake(&self) {
            CALLS.store(CALLS.load(Relaxed) * 10 + self.0, Relaxed);
        }
    }

    /// Creates a semaphore with two permits, and three waiters. The suites of a module run one by
    /// one.
    fn set_up() -> Result<(Arc<Semaphore<Digit>>, [Waiter<Digit>; 3])> {
        CALLS.store(0, Relaxed);
        Ok((
            Semaphore::new(2)?,
            [
                Waiter::new(Digit(1))?,
                Waiter::new(Digit(2))?,
                Waiter::new(Digit(3))?,
            ],
        ))
    }

    #[test]
    fn released_permit_calls_first_waiter() -> Result {
        let (two, [mut a, mut b, mut c]) = set_up()?;
        let first = two.acquire(&mut a).ok_or(EINVAL)?;
        let second = two.acquire(&mut a).ok_or(EINVAL)?;

        assert!(two.try_acquire().is_none());
        for waiter in [&mut a, &mut b, &mut c] {
            assert!(two.acquire(waiter).is_none());
            assert!(two.acquire(waiter).is_none());
            assert!(waiter.is_waiting());
        }
        drop(first);
        assert_eq!(CALLS.load(Relaxed), 1);
        // Not ahead of earlier waiters.
        assert!(two.acquire(&mut b).is_none());
        let first = two.acquire(&mut a).ok_or(EINVAL)?;
        drop((first, second));
        assert_eq!(CALLS.load(Relaxed), 123);
        assert!(!a.is_waiting() && !b.is_waiting() && !c.is_waiting());
        Ok(())
    }

    #[test]
    fn leaving_called_waiter_calls_next() -> Result {
        let (two, [mut a, mut b, mut c]) = set_up()?;
        let permits = (two.try_acquire(), two.try_acquire());

        for waiter in [&mut a, &mut b, &mut c] {
            assert!(two.acquire(waiter).is_none());
        }
        // It was not called yet, so no other waiter has to be called instead.
        b.leave();
        assert_eq!(CALLS.load(Relaxed), 0);
        drop(permits.0);
        assert_eq!(CALLS.load(Relaxed), 1);
        drop(a);
        assert_eq!(CALLS.load(Relaxed), 13);
        assert!(two.acquire(&mut b).is_some());
        drop(c);
        assert!(two.acquire(&mut b).is_some());
        assert_eq!(CALLS.load(Relaxed), 13);
        Ok(())
    }

    #[test]
    fn waiter_that_lost_permit_stays_first() -> Result {
        let (two, [mut a, mut b, _]) = set_up()?;
        let permits = (two.try_acquire(), two.try_acquire());

        assert!(two.acquire(&mut a).is_none());
        assert!(two.acquire(&mut b).is_none());
        drop(permits.0);
        let thief = two.try_acquire();
        assert!(thief.is_some());
        assert!(two.acquire(&mut a).is_none());
        drop(thief);
        assert_eq!(CALLS.load(Relaxed), 11);
        assert!(two.acquire(&mut a).is_some());
        Ok(())
    }
}
