// SPDX-License-Identifier: GPL-2.0

//! Routes.
//!
//! C headers: [`include/net/dst.h`](srctree/include/net/dst.h),
//! [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h)

use super::NetDevice;
use crate::bindings;
use core::ptr::{
    null,
    NonNull, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::rcu, //
};

/// Where a packet to one destination goes: a counted reference to a `struct dst_entry`.
///
/// May be kept as long as it [is valid](Self::is_valid). One that is no longer may still be used
/// once more, but it keeps memory of the routing tables, so it should be dropped soon.
///
/// # Invariants
///
/// `dst` points to a `struct dst_entry`, and this value owns a reference to it.
pub struct Dst {
    dst: NonNull<bindings::dst_entry>,
    // What `dst_check()` compares with the state of the IPv6 routing tables. Unused for IPv4.
    cookie: u32,
}

// SAFETY: The reference count is atomic, and a route may be used by any thread.
unsafe impl Send for Dst {}
// SAFETY: As for `Send`.
unsafe impl Sync for Dst {}

impl Dst {
    /// Takes over a route.
    ///
    /// # Safety
    ///
    /// `dst` must point to a `struct dst_entry` with a reference that the caller gives away.
    unsafe fn from_raw(dst: *mut bindings::dst_entry, cookie: u32) -> Result<Self> {
        // INVARIANT: The reference is the one that the caller gives away.
        Ok(Self {
            dst: NonNull::new(dst).ok_or(EHOSTUNREACH)?,
            cookie,
        })
    }

    /// Returns the `struct dst_entry`.
    pub(super) fn as_raw(&self) -> *mut bindings::dst_entry {
        self.dst.as_ptr()
    }

    /// Returns whether the routing tables still say the same. Callable in softirq context.
    ///
    /// Look the route up again if not.
    pub fn is_valid(&self) -> bool {
        let _rcu = rcu::read_lock();

        // SAFETY: The route is alive by the type invariant.
        !unsafe { bindings::dst_check(self.as_raw(), self.cookie) }.is_null()
    }
}

impl Clone for Dst {
    fn clone(&self) -> Self {
        // SAFETY: The route is alive by the type invariant, so its count is not zero.
        unsafe { bindings::dst_hold(self.as_raw()) };
        // INVARIANT: The reference was just taken.
        Self {
            dst: self.dst,
            cookie: self.cookie,
        }
    }
}

impl Drop for Dst {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value owns a reference.
        unsafe { bindings::dst_release(self.as_raw()) };
    }
}

/// What an IPv4 route depends on. Addresses are in the order of the wire.
pub struct RouteV4 {
    /// The source, an address of this host.
    pub saddr: [u8; 4],
    /// The destination.
    pub daddr: [u8; 4],
    /// The type of service; the ECN bits do not matter.
    pub tos: u8,
}

/// What an IPv6 route depends on. Addresses are in the order of the wire.
pub struct RouteV6 {
    /// The source, an address of this host.
    pub saddr: [u8; 16],
    /// The destination. If it is link-local, it is one of the link of the device.
    pub daddr: [u8; 16],
    /// The traffic class; the ECN bits do not matter.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
}

/// Looks up an IPv4 route out of `dev`, or to this host, in the namespace of `dev`.
///
/// Callable in softirq context.
///
/// # Errors
///
/// `ENETUNREACH` or `EHOSTUNREACH` without a route, `EACCES` for a broadcast address, or what the
/// routing tables say.
pub fn route4(dev: &NetDevice, route: &RouteV4) -> Result<Dst> {
    let mut flow: bindings::flowi4 = pin_init::zeroed();

    flow.__fl_common.flowic_oif = dev.ifindex();
    // As `inet_dsfield_to_dscp()`.
    flow.__fl_common.flowic_dscp = route.tos & 0xfc;
    flow.__fl_common.flowic_proto = IPPROTO_UDP;
    flow.saddr = u32::from_ne_bytes(route.saddr);
    flow.daddr = u32::from_ne_bytes(route.daddr);

    let _rcu = rcu::read_lock();
    // SAFETY: The device is alive, and its namespace is under RCU. `flow` is initialised; no socket
    // is needed.
    let rt = from_err_ptr(unsafe {
        bindings::ip_route_output_flow(bindings::dev_net_rcu(dev.as_raw()), &raw mut flow, null())
    })?;
    // SAFETY: The lookup gave a route with a reference.
    let dst = unsafe { Dst::from_raw(bindings::rtable_dst(rt), 0) }?;

    // A socket needs SO_BROADCAST for that, which says that somebody meant it.
    // SAFETY: `dst` keeps the route alive.
    if unsafe { bindings::rtable_flags(rt) } & bindings::RTCF_BROADCAST != 0 {
        return Err(EACCES);
    }
    Ok(dst)
}

/// Looks up an IPv6 route out of `dev`, or to this host, in the namespace of `dev`.
///
/// Callable in softirq context.
///
/// # Errors
///
/// `EAFNOSUPPORT` if the kernel was built or booted without IPv6, `ENETUNREACH` or `EHOSTUNREACH`
/// without a route, or what the routing tables say.
pub fn route6(dev: &NetDevice, route: &RouteV6) -> Result<Dst> {
    let mut flow: bindings::flowi6 = pin_init::zeroed();

    // This gives link-local addresses their scope, too.
    flow.__fl_common.flowic_oif = dev.ifindex();
    flow.__fl_common.flowic_proto = IPPROTO_UDP;
    flow.saddr.in6_u.u6_addr8 = route.saddr;
    flow.daddr.in6_u.u6_addr8 = route.daddr;
    // As `ip6_make_flowinfo()`.
    flow.flowlabel =
        (u32::from(route.traffic_class) << 20 | route.flow_label & 0x000f_ffff).to_be();

    let _rcu = rcu::read_lock();
    // SAFETY: The device is alive, and its namespace is under RCU. `flow` is initialised; neither a
    // socket nor a final destination is needed.
    let dst = from_err_ptr(unsafe {
        bindings::ip6_dst_lookup_flow(
            bindings::dev_net_rcu(dev.as_raw()),
            null(),
            &raw mut flow,
            null(),
        )
    })?;
    // SAFETY: The lookup gave an IPv6 route with a reference.
    unsafe { Dst::from_raw(dst, bindings::rt6_get_cookie(dst)) }
}

// CAST: The value is 17.
const IPPROTO_UDP: u8 = bindings::IPPROTO_UDP as u8;
