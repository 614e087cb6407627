// SPDX-License-Identifier: GPL-2.0

//! Routes that are kept from one packet to the next.
//!
//! A reference to a `struct dst_entry` does not hold the network namespace of the route. But for
//! IPv6, and for IPv4 with an IPsec policy, `dst->ops` points into `struct net`. `dst_check()`,
//! `dst_release()` and `dst_destroy()`, its RCU callback, read it and write to its per-CPU counter,
//! which `ip6_route_net_exit()` frees. When a net device goes, the FIB takes the device out of the
//! route (`dst_dev_put()`); `ops` stays. The route cannot hold the namespace either: an RDMA device
//! in it would then keep its own namespace from ever ending.
//!
//! So each cached route is on a list of its namespace, and the exit handler of the namespace
//! releases all routes on the list.
//!
//! ```text
//!   CachedRoute                         struct net
//!   +-----------+    +-----------+      +---------------+
//!   | cookie    | -> | Slot: dst | <--> | list of slots |  net_generic(net, ID)
//!   +-----------+    +-----------+      +---------------+
//! ```
//!
//! - No route is added after the exit handler has run: a route is looked up and stored in one RCU
//!   read-side critical section, in which the namespace still has references (`check_net()`).
//!   `cleanup_net()` runs when there are none left, and waits for a grace period before it calls
//!   the exit handlers.
//! - The routes are released before `ip6_route_net_exit()` runs: exit handlers run in the reverse
//!   order of their registration, and IPv6 registers before this module can be loaded.
//! - `dst_destroy()` runs before `struct net` is freed: `cleanup_net()` calls `rcu_barrier()`
//!   between the exit handlers and that.
//! - A reader that found a route in a slot still has `ops` until the end of its RCU section:
//!   `cleanup_net()` frees `struct net` in its next run, after one more grace period.
//!
//! C headers: [`include/net/dst.h`](srctree/include/net/dst.h),
//! [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::{
    Dst,
    Found,
    RouteKey, //
};
use crate::{
    bindings,
    net::{
        namespace::{
            NetId,
            REGISTERED, //
        },
        NetDevice, //
    },
    new_spinlock_bh,
    sync::{
        cond_resched,
        Global,
        SpinLockBh, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    alloc::Flags,
    container_of,
    ffi,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        rcu, //
    },
    types::Opaque, //
};

/// Protects the lists. Also held while a route is released whose namespace may have no references
/// left: the exit handler of that namespace waits for the lock.
static LISTS: Global<SpinLockBh<()>> = Global::new();

/// The index of the lists for `net_generic()`. The core writes it before [`REGISTERED`] is set.
pub(in crate::net) static ID: Atomic<u32> = Atomic::new(0);

/// The part of a [`CachedRoute`] that the exit handler of a namespace accesses.
///
/// # Invariants
///
/// - `net` is null, and `links` an empty list; or `links` is on the list of the namespace `net`,
///   which has not been dismantled. `net` and `links` are written under [`LISTS`].
/// - `dst` is null, or a route of the namespace `net` with a reference that this value owns. It is
///   replaced and released either under [`LISTS`], or by the owner of the [`CachedRoute`] in an RCU
///   read-side critical section in which `net` had references.
#[pin_data(PinnedDrop)]
struct Slot {
    #[pin]
    links: Opaque<bindings::list_head>,
    net: Atomic<*mut bindings::net>,
    dst: Atomic<*mut bindings::dst_entry>,
}

// SAFETY: `net` and `dst` are atomic, `links` is protected by a lock, and a route may be released
// by any thread.
unsafe impl Send for Slot {}
// SAFETY: As for `Send`.
unsafe impl Sync for Slot {}

impl Slot {
    fn new() -> impl PinInit<Self> {
        // INVARIANT: No namespace, and no route.
        pin_init!(Self {
            links <- Opaque::ffi_init(|links: *mut bindings::list_head| {
                // SAFETY: `links` is valid for write, and pinned.
                unsafe { bindings::INIT_LIST_HEAD(links) }
            }),
            net: Atomic::new(null_mut()),
            dst: Atomic::new(null_mut()),
        })
    }

    /// Releases the route, if there is one.
    ///
    /// # Safety
    ///
    /// The caller must hold [`LISTS`].
    unsafe fn release(&self) {
        let dst = self.dst.xchg(null_mut(), Relaxed);

        // SAFETY: By the type invariant the reference is owned. The namespace is not dismantled
        // before the lock is dropped: its exit handler would wait for that. A null is ignored.
        unsafe { bindings::dst_release(dst) };
    }

    /// Releases the route, and takes the slot off its list.
    ///
    /// # Safety
    ///
    /// The caller must hold [`LISTS`].
    unsafe fn leave(&self) {
        // SAFETY: By the requirement of this function. `links` was initialised, and is on a list or
        // empty.
        unsafe {
            self.release();
            bindings::list_del_init(self.links.get());
        }
        // INVARIANT: On no list, and without a route.
        self.net.store(null_mut(), Relaxed);
    }
}

#[pinned_drop]
impl PinnedDrop for Slot {
    fn drop(self: Pin<&mut Self>) {
        // Before there is a lock there are no routes.
        if let Some(lists) = LISTS.get() {
            let _lists = lists.lock();
            // SAFETY: The lock is held.
            unsafe { self.leave() };
        }
    }
}

/// A cache for one route.
///
/// It keeps the route until that is replaced or cleared, or until the network namespace of the
/// route is dismantled, which empties the cache at any time. It does not keep the namespace.
///
/// All functions, and the drop, are callable in softirq context, but not with interrupts disabled.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use kernel::sync::rcu;
/// # use rdma::net::{CachedRoute, NetDevice, RouteKey, SkBuff};
///
/// fn send(route: &mut CachedRoute, netdev: &NetDevice, key: &RouteKey, packet: SkBuff) -> Result {
///     let rcu = rcu::read_lock();
///     if route.get(&rcu).is_none() {
///         route.look_up(netdev, netdev.net_id(), key)?;
///     }
///     packet.transmit(route.get(&rcu).ok_or(EHOSTUNREACH)?)
/// }
///
/// let route = CachedRoute::new(GFP_KERNEL)?;
/// # Ok::<(), Error>(())
/// ```
pub struct CachedRoute {
    slot: Pin<KBox<Slot>>,
    // That of the route in the slot.
    cookie: u32,
}

impl CachedRoute {
    /// Creates an empty cache.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(flags: Flags) -> Result<Self> {
        Ok(Self {
            slot: KBox::pin_init(Slot::new(), flags)?,
            cookie: 0,
        })
    }

    /// Returns the route, or [`None`] if there is none, or the routing tables have changed since.
    #[inline]
    pub fn get<'rcu>(&self, _rcu: &'rcu rcu::Guard) -> Option<Dst<'rcu>> {
        let dst = NonNull::new(self.slot.dst.load(Relaxed))?;

        // SAFETY: By the type invariant of `Slot` the route was alive in this RCU section, so it
        // and its namespace are freed only after the section, as the module documentation explains.
        let valid = unsafe { bindings::dst_check(dst.as_ptr(), self.cookie) };
        // INVARIANT: As above.
        (!valid.is_null()).then_some(Dst {
            dst,
            _rcu: PhantomData,
        })
    }

    /// Looks up a route out of `dev`, or to this host, in the namespace `home` of `dev`, and caches
    /// it in place of the old one.
    ///
    /// # Errors
    ///
    /// - `ENETUNREACH` if `dev` was moved to another namespace, the namespace ends, or there is no
    ///   [`NetRegistration`](crate::net::NetRegistration).
    /// - `EAFNOSUPPORT` if the kernel was built or booted without IPv6.
    /// - `ENETUNREACH` or `EHOSTUNREACH` without a route, `EACCES` for a broadcast address, or the
    ///   error of the lookup.
    ///
    /// The old route stays on an error.
    pub fn look_up(&mut self, dev: &NetDevice, home: NetId, key: &RouteKey) -> Result {
        let _rcu = rcu::read_lock();
        // SAFETY: The device is alive, and its namespace is under RCU.
        let net = unsafe { bindings::dev_net_rcu(dev.as_raw()) };

        // Unregistering clears this, and waits for a grace period before it empties the lists.
        if !REGISTERED.load(Acquire) {
            return Err(ENETUNREACH);
        }
        // SAFETY: The namespace is under RCU.
        if unsafe { NetId::from_raw(net) != home || bindings::check_net(net) == 0 } {
            return Err(ENETUNREACH);
        }
        // SAFETY: As above.
        let found = unsafe { key.look_up(net, dev.ifindex()) }?;
        // SAFETY: The route is of that namespace, which had references in this section.
        unsafe { self.replace(net, found) }
    }

    /// Replaces the route.
    ///
    /// # Safety
    ///
    /// `found` must be a route of `net`, which had references, and a list, in the RCU read-side
    /// critical section of the caller. The lists must be registered in it.
    unsafe fn replace(&mut self, net: *mut bindings::net, found: Found) -> Result {
        let slot = &self.slot;

        if slot.net.load(Relaxed) != net {
            let moved = LISTS.get().ok_or(ENETUNREACH).and_then(|lists| {
                let _lists = lists.lock();
                // SAFETY: The lock is held.
                unsafe { slot.leave() };
                // SAFETY: The namespace is alive, and has a list by the requirement above.
                let list = unsafe { list_of(net) }.ok_or(ENETUNREACH)?;
                // SAFETY: `list` was initialised when the namespace was made, `links` is empty, and
                // the slot leaves the list before either is freed.
                unsafe { bindings::list_add_tail(slot.links.get(), list.as_ptr()) };
                // INVARIANT: The slot is on that list.
                slot.net.store(net, Relaxed);
                Ok(())
            });
            if let Err(e) = moved {
                // SAFETY: The reference is owned.
                unsafe { bindings::dst_release(found.dst.as_ptr()) };
                return Err(e);
            }
        }
        // The exit handler of `net` runs after this section. So the route is not released twice,
        // and the handler finds the new one.
        // INVARIANT: The reference of the route is given to the slot.
        let old = slot.dst.xchg(found.dst.as_ptr(), Relaxed);
        // SAFETY: The reference to the old route was owned by the slot, and its namespace is `net`.
        // A null is ignored.
        unsafe { bindings::dst_release(old) };
        self.cookie = found.cookie;
        Ok(())
    }

    /// Returns whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.slot.dst.load(Relaxed).is_null()
    }

    /// Releases the route, if there is one.
    pub fn clear(&mut self) {
        if self.is_empty() {
            return;
        }
        if let Some(lists) = LISTS.get() {
            let _lists = lists.lock();
            // SAFETY: The lock is held.
            unsafe { self.slot.release() };
        }
    }
}

/// Returns the list of a namespace, or [`None`] before [`init_list`] has run for it.
///
/// # Safety
///
/// `net` must not be freed during the call, and the lists must be registered.
unsafe fn list_of(net: *mut bindings::net) -> Option<NonNull<bindings::list_head>> {
    // SAFETY: By the requirement of this function.
    NonNull::new(unsafe { bindings::net_generic(net, ID.load(Relaxed)) }.cast())
}

/// Initialises the lock of the lists. Called once.
///
/// # Errors
///
/// `EBUSY` if this was called before.
pub(in crate::net) fn init() -> Result {
    LISTS.init(new_spinlock_bh!((), "rdma::route::LISTS"))
}

/// Makes the list of a namespace.
///
/// # Safety
///
/// Only for the core.
pub(in crate::net) unsafe extern "C" fn init_list(net: *mut bindings::net) -> ffi::c_int {
    // SAFETY: The core has just allocated room for the list.
    if let Some(list) = unsafe { list_of(net) } {
        // SAFETY: As above.
        unsafe { bindings::INIT_LIST_HEAD(list.as_ptr()) };
    }
    0
}

/// Releases all routes of a namespace.
///
/// # Safety
///
/// Must be called only by the exit handler of the namespace `net`.
pub(in crate::net) unsafe fn release_all(net: *mut bindings::net) {
    let Some(lists) = LISTS.get() else {
        return;
    };
    // SAFETY: The list is freed after the exit handler.
    let Some(list) = (unsafe { list_of(net) }) else {
        return;
    };

    loop {
        // Drop the lock after each slot: there may be many slots, and bottom halves are off.
        let guard = lists.lock();
        // SAFETY: The list is initialised, and the lock is held.
        let first = unsafe { (*list.as_ptr()).next };
        if first == list.as_ptr() {
            return;
        }
        // SAFETY: Each entry is the `links` of a slot, which leaves the list under the lock before
        // it is freed.
        unsafe {
            let links = Opaque::cast_from(first);
            (*container_of!(links, Slot, links)).leave();
        }
        drop(guard);
        cond_resched();
    }
}
