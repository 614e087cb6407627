// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C header: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h)

use super::NetDevice;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    ffi,
    sync::{
        atomic::Atomic,
        rcu, //
    }, //
};

/// Set while each namespace has the handlers of [`NetRegistration`](super::NetRegistration).
pub(super) static REGISTERED: Atomic<bool> = Atomic::new(false);

/// The identity of a network namespace, for comparison.
///
/// It does not keep the namespace alive. It is never reused, because it is the namespace's cookie,
/// not its address.
///
/// # Examples
///
/// ```
/// # use rdma::net::{NetDevice, NetId};
/// fn has_moved(netdev: &NetDevice, before: NetId) -> bool {
///     netdev.net_id() != before
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NetId(u64);

impl NetId {
    /// Returns the identity of a namespace.
    ///
    /// # Safety
    ///
    /// `net` must point to a `struct net` that is not freed during the call.
    pub(super) unsafe fn from_raw(net: *const bindings::net) -> Self {
        // SAFETY: `net` is valid by the requirement of this function. The cookie is written once,
        // before the namespace can be found.
        Self(unsafe { (*net).net_cookie })
    }

    /// Returns the identity as a number, to be hashed.
    #[inline]
    pub fn cookie(self) -> u64 {
        self.0
    }
}

/// A counted reference to a network namespace that is in use.
///
/// While it exists the namespace is not dismantled, so it must not be kept for long: only over the
/// creation of something that is removed when the namespace ends.
///
/// # Invariants
///
/// The pointer is to a `struct net`, and this value owns a reference to it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::net::{Family, Namespace, NetDevice, UdpReceive, UdpTunnel};
/// fn open<T: UdpReceive>(netdev: &NetDevice) -> Result<UdpTunnel> {
///     let namespace = Namespace::of(netdev).ok_or(ENODEV)?;
///     // The namespace is not dismantled before this returns.
///     UdpTunnel::open::<T>(&namespace, Family::V4, 4791)
/// }
/// ```
pub struct Namespace(NonNull<bindings::net>);

// SAFETY: The reference count is atomic, and the last reference may go in any thread.
unsafe impl Send for Namespace {}
// SAFETY: The identity is constant, the count is atomic, and sockets are created by functions that
// take the locks they need.
unsafe impl Sync for Namespace {}

impl Namespace {
    /// Takes a reference to the namespace that a device is in now, unless that is being dismantled.
    ///
    /// Callable in softirq context.
    pub fn of(dev: &NetDevice) -> Option<Self> {
        let _rcu = rcu::read_lock();

        // SAFETY: `dev` is valid. Under RCU its namespace is not freed, so that taking a reference
        // may be tried; INVARIANT: where that succeeds the reference is owned by the new value.
        NonNull::new(unsafe { bindings::maybe_get_net(bindings::dev_net_rcu(dev.as_raw())) })
            .map(Self)
    }

    /// Returns the `struct net`.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }

    /// Returns the identity of the namespace.
    pub fn id(&self) -> NetId {
        // SAFETY: The namespace is alive by the type invariant.
        unsafe { NetId::from_raw(self.as_raw()) }
    }

    /// Returns whether the current task may send packets of any content: whether it has
    /// `CAP_NET_RAW` in the user namespace that owns this one. Process context.
    pub fn allows_raw_packets(&self) -> bool {
        // CAST: A small constant.
        const CAPABILITY: ffi::c_int = bindings::CAP_NET_RAW as ffi::c_int;

        // SAFETY: The namespace is alive by the type invariant, and keeps its owner.
        unsafe { bindings::ns_capable((*self.as_raw()).user_ns, CAPABILITY) }
    }
}

impl Clone for Namespace {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant this value owns a reference, so there is one to add to.
        // INVARIANT: The reference was just taken.
        unsafe { bindings::get_net(self.as_raw()) };
        Self(self.0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value owns a reference.
        unsafe { bindings::put_net(self.as_raw()) };
    }
}
