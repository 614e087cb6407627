// SPDX-License-Identifier: GPL-2.0

//! Routes.
//!
//! C headers: [`include/net/dst.h`](srctree/include/net/dst.h),
//! [`include/net/route.h`](srctree/include/net/route.h),
//! [`include/net/ip6_route.h`](srctree/include/net/ip6_route.h)

mod cached;

use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::{
        null,
        NonNull, //
    }, //
};
use kernel::{
    error::from_err_ptr,
    ffi,
    prelude::*,
    sync::rcu, //
};

pub use cached::CachedRoute;
pub(super) use cached::{
    init,
    init_list,
    release_all,
    ID, //
};

/// A valid route: a borrowed `struct dst_entry`, for the RCU read-side critical section `'rcu`.
///
/// It has no reference and cannot leave the section. [`CachedRoute`] keeps a route for longer.
///
/// # Invariants
///
/// `dst` points to a `struct dst_entry`. Neither this structure nor its `ops`, which for IPv6 lies
/// in `struct net`, is freed during `'rcu`. The RCU read lock is held during `'rcu`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use kernel::sync::rcu;
/// # use rdma::net::{CachedRoute, Dst, SkBuff};
///
/// fn send(route: &CachedRoute, packet: SkBuff) -> Result {
///     let rcu = rcu::read_lock();
///     let dst: Dst<'_> = route.get(&rcu).ok_or(EHOSTUNREACH)?;
///     packet.transmit(dst)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Dst<'rcu> {
    dst: NonNull<bindings::dst_entry>,
    _rcu: PhantomData<&'rcu rcu::Guard>,
}

impl Dst<'_> {
    /// Returns the `struct dst_entry`.
    pub(super) fn as_raw(&self) -> *mut bindings::dst_entry {
        self.dst.as_ptr()
    }

    /// Returns whether the route is of IPv4, rather than of IPv6.
    #[inline]
    pub(super) fn is_ipv4(&self) -> bool {
        // SAFETY: The RCU read lock is held and the route is alive by the type invariant.
        unsafe { bindings::dst_is_ipv4(self.as_raw()) }
    }

    /// Returns whether the stack adds headers to packets of the route: IPsec, perhaps once its keys
    /// are negotiated, or a lightweight tunnel.
    #[inline]
    pub(super) fn encapsulates(&self) -> bool {
        // SAFETY: The RCU read lock is held and the route is alive by the type invariant.
        unsafe { bindings::dst_encapsulates(self.as_raw()) }
    }

    /// Returns whether the device of the route is lo, with nothing attached that can delay, change,
    /// drop or redirect packets: a queueing discipline, tc or netfilter hooks, an XDP program.
    #[inline]
    pub(super) fn is_bare_loopback(&self) -> bool {
        // SAFETY: The RCU read lock is held and the route is alive by the type invariant. Its
        // device is under RCU.
        unsafe {
            let dev = bindings::dst_dev_rcu(self.as_raw());
            bindings::net_device_is_loopback(dev) && bindings::net_device_is_bare(dev)
        }
    }

    /// Returns the space that the device of the route needs in front of an IP header, in bytes.
    #[inline]
    pub(super) fn reserved_space(&self) -> u32 {
        // SAFETY: The RCU read lock is held and the route is alive by the type invariant.
        unsafe { bindings::dst_reserved_space(self.as_raw()) }
    }

    /// Returns the largest number of packets that the device of the route takes as one.
    #[inline]
    pub(super) fn gso_max_segs(&self) -> u32 {
        // SAFETY: As above.
        unsafe { bindings::net_device_gso_max_segs(bindings::dst_dev_rcu(self.as_raw())) }
    }

    /// Returns the length of the longest IP packet that can be sent without fragments, in bytes.
    #[inline]
    pub(super) fn mtu(&self) -> usize {
        // SAFETY: The RCU read lock is held and the route is alive by the type invariant.
        // CAST: Widening.
        unsafe { bindings::dst_mtu(self.as_raw()) as usize }
    }
}

/// The addresses of a route, of one IP version, in network byte order.
///
/// # Examples
///
/// ```
/// # use rdma::{ib::gid::Path, net::RouteAddresses};
/// /// Returns the addresses of a path whose GIDs are IPv6 addresses.
/// fn addresses_of(path: &Path) -> RouteAddresses {
///     RouteAddresses::V6 {
///         saddr: path.sgid,
///         daddr: path.dgid,
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub enum RouteAddresses {
    /// Of IPv4.
    V4 {
        /// The source, an address of this host.
        saddr: [u8; 4],
        /// The destination.
        daddr: [u8; 4],
    },
    /// Of IPv6.
    V6 {
        /// The source, an address of this host.
        saddr: [u8; 16],
        /// The destination. A link-local address belongs to the link of the device.
        daddr: [u8; 16],
    },
}

/// The key of a route lookup.
///
/// # Examples
///
/// ```
/// # use rdma::net::{RouteAddresses, RouteKey};
/// let key = RouteKey {
///     addresses: RouteAddresses::V4 {
///         saddr: [10, 77, 0, 1],
///         daddr: [10, 77, 0, 2],
///     },
///     sport: 49152,
///     dport: 4791,
///     traffic_class: 0,
///     flow_label: 0,
/// };
/// ```
pub struct RouteKey {
    /// The addresses.
    pub addresses: RouteAddresses,
    /// The UDP source port.
    pub sport: u16,
    /// The UDP destination port.
    pub dport: u16,
    /// The traffic class, or the type of service; the ECN bits do not matter.
    pub traffic_class: u8,
    /// The flow label, 20 bits. Unused for IPv4.
    pub flow_label: u32,
}

/// A route that was looked up, with a reference.
struct Found {
    dst: NonNull<bindings::dst_entry>,
    // The cookie of `dst_check()`, the state of the IPv6 routing tables. Unused for IPv4.
    cookie: u32,
}

impl RouteKey {
    /// Looks up a route out of a device, or to this host. The caller gets a reference to it.
    ///
    /// # Safety
    ///
    /// `net` must not be freed during the call.
    unsafe fn look_up(&self, net: *mut bindings::net, oif: ffi::c_int) -> Result<Found> {
        let (dst, cookie) = match self.addresses {
            RouteAddresses::V4 { saddr, daddr } => {
                // SAFETY: By the requirement of this function.
                (unsafe { route4(net, oif, self, saddr, daddr) }?, 0)
            }
            RouteAddresses::V6 { saddr, daddr } => {
                // SAFETY: By the requirement of this function.
                let dst = unsafe { route6(net, oif, self, saddr, daddr) }?;
                // SAFETY: The lookup gave an IPv6 route with a reference.
                (dst, unsafe { bindings::rt6_get_cookie(dst) })
            }
        };

        Ok(Found {
            dst: NonNull::new(dst).ok_or(EHOSTUNREACH)?,
            cookie,
        })
    }
}

/// Returns an IPv4 route with a reference.
///
/// # Safety
///
/// `net` must not be freed during the call.
unsafe fn route4(
    net: *mut bindings::net,
    oif: ffi::c_int,
    key: &RouteKey,
    saddr: [u8; 4],
    daddr: [u8; 4],
) -> Result<*mut bindings::dst_entry> {
    let mut flow: bindings::flowi4 = pin_init::zeroed();

    flow.__fl_common.flowic_oif = oif;
    // As `inet_dsfield_to_dscp()`.
    flow.__fl_common.flowic_dscp = key.traffic_class & 0xfc;
    flow.__fl_common.flowic_proto = IPPROTO_UDP;
    flow.saddr = u32::from_ne_bytes(saddr);
    flow.daddr = u32::from_ne_bytes(daddr);
    // Routing rules, multipath routes and IPsec policies may select by port.
    flow.uli.ports = ports(key);

    // SAFETY: The namespace is alive by the requirement of this function, `flow` is initialised,
    // and no socket is needed.
    let rt = from_err_ptr(unsafe { bindings::ip_route_output_flow(net, &raw mut flow, null()) })?;

    // A socket must set SO_BROADCAST to send to a broadcast address, and there is no socket here.
    // SAFETY: The lookup gave a route with a reference, which is given back here or to the caller.
    unsafe {
        let dst = bindings::rtable_dst(rt);
        if bindings::rtable_flags(rt) & bindings::RTCF_BROADCAST != 0 {
            bindings::dst_release(dst);
            return Err(EACCES);
        }
        Ok(dst)
    }
}

/// Returns an IPv6 route with a reference.
///
/// # Safety
///
/// `net` must not be freed during the call.
unsafe fn route6(
    net: *mut bindings::net,
    oif: ffi::c_int,
    key: &RouteKey,
    saddr: [u8; 16],
    daddr: [u8; 16],
) -> Result<*mut bindings::dst_entry> {
    let mut flow: bindings::flowi6 = pin_init::zeroed();

    // This gives link-local addresses their scope, too.
    flow.__fl_common.flowic_oif = oif;
    flow.__fl_common.flowic_proto = IPPROTO_UDP;
    flow.saddr.in6_u.u6_addr8 = saddr;
    flow.daddr.in6_u.u6_addr8 = daddr;
    flow.uli.ports = ports(key);
    // As `ip6_make_flowinfo()`.
    flow.flowlabel = (u32::from(key.traffic_class) << 20 | key.flow_label & 0x000f_ffff).to_be();

    // SAFETY: The namespace is alive by the requirement of this function, `flow` is initialised,
    // and neither a socket nor a final destination is needed.
    from_err_ptr(unsafe { bindings::ip6_dst_lookup_flow(net, null(), &raw mut flow, null()) })
}

/// Returns the ports of a flow.
fn ports(key: &RouteKey) -> bindings::flowi_uli__bindgen_ty_1 {
    bindings::flowi_uli__bindgen_ty_1 {
        dport: key.dport.to_be(),
        sport: key.sport.to_be(),
    }
}

// CAST: The value is 17.
const IPPROTO_UDP: u8 = bindings::IPPROTO_UDP as u8;
