// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of net devices.
//!
//! A group is joined for a device, not for a socket: a socket may join only a few
//! (`net.ipv4.igmp_max_memberships`, 20), and a socket that has joined none gets the packets of all
//! groups that its namespace is in.
//!
//! C headers: [`include/linux/igmp.h`](srctree/include/linux/igmp.h),
//! [`include/net/addrconf.h`](srctree/include/net/addrconf.h)

use super::NetDevice;
use crate::bindings;
use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

/// RTNL, the lock of the network configuration, held until this is dropped.
///
/// While it is held, a net device stays in its namespace, and is not unregistered.
///
/// # Examples
///
/// ```
/// # use rdma::net::{NetDevice, Rtnl};
/// fn speed_of(netdev: &NetDevice) -> Option<u32> {
///     let rtnl = Rtnl::lock();
///     netdev.speed(&rtnl)
/// }
/// ```
pub struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// Takes the lock. Sleeps.
    pub fn lock() -> Self {
        // SAFETY: The caller may sleep, and the lock is released in `drop`.
        unsafe { bindings::rtnl_lock() };
        Self(NotThreadSafe)
    }
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: This value holds the lock, in this thread.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// A multicast group, by its address in the order of the wire.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::net::{Group, NetDevice, Rtnl};
/// const MDNS: Group = Group::V4([224, 0, 0, 251]);
///
/// fn join(netdev: &NetDevice) -> Result {
///     let rtnl = Rtnl::lock();
///     netdev.join(&rtnl, MDNS)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// An IPv4 group.
    V4([u8; 4]),
    /// An IPv6 group.
    V6([u8; 16]),
}

impl NetDevice {
    /// Joins a group, once more if the device is in it already. Sleeps.
    ///
    /// [`NetDevice::leave`] undoes this. Removing the device, moving it to another namespace, or an
    /// MTU that is too small for IP also undoes it.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EINVAL` or `EAFNOSUPPORT` if the device does not have that version of IP;
    /// `ENOMEM` for IPv6.
    pub fn join(&self, _rtnl: &Rtnl, group: Group) -> Result {
        match group {
            Group::V4(group) => {
                // SAFETY: The device is alive by the type invariant, and RTNL is held.
                let ip = unsafe { bindings::__in_dev_get_rtnl(self.as_raw()) };
                if ip.is_null() {
                    return Err(ENODEV);
                }
                // `__ip_mc_inc_group()` cannot report failure. If its allocation failed,
                // `NetDevice::leave` would drop another member's reference. Hence `__GFP_NOFAIL`:
                // the allocation is small, and this is process context.
                let gfp = bindings::GFP_KERNEL | bindings::RUST_CONST_HELPER_GFP_NOFAIL;
                // SAFETY: The IPv4 part of the device is alive as long as RTNL is held.
                unsafe { bindings::__ip_mc_inc_group(ip, u32::from_ne_bytes(group), gfp) };
                Ok(())
            }
            #[cfg(CONFIG_IPV6)]
            Group::V6(group) => {
                let group = in6_addr(group);
                // SAFETY: The device is alive by the type invariant, and the address is copied.
                kernel::error::to_result(unsafe {
                    bindings::ipv6_dev_mc_inc(self.as_raw(), &group)
                })
            }
            #[cfg(not(CONFIG_IPV6))]
            Group::V6(_) => Err(EAFNOSUPPORT),
        }
    }

    /// Leaves a group, which undoes one call of [`NetDevice::join`]. Sleeps.
    pub fn leave(&self, _rtnl: &Rtnl, group: Group) {
        match group {
            Group::V4(group) => {
                // SAFETY: The device is alive by the type invariant, and RTNL is held.
                let ip = unsafe { bindings::__in_dev_get_rtnl(self.as_raw()) };
                if !ip.is_null() {
                    // SAFETY: The IPv4 part of the device is alive as long as RTNL is held.
                    unsafe { bindings::ip_mc_dec_group(ip, u32::from_ne_bytes(group)) };
                }
            }
            #[cfg(CONFIG_IPV6)]
            Group::V6(group) => {
                let group = in6_addr(group);
                // SAFETY: The device is alive by the type invariant, and the address is copied.
                // An error means that the device is no longer in the group.
                unsafe { bindings::ipv6_dev_mc_dec(self.as_raw(), &group) };
            }
            #[cfg(not(CONFIG_IPV6))]
            Group::V6(_) => {}
        }
    }
}

/// Returns the C address.
#[cfg(CONFIG_IPV6)]
fn in6_addr(bytes: [u8; 16]) -> bindings::in6_addr {
    let mut addr: bindings::in6_addr = pin_init::zeroed();

    addr.in6_u.u6_addr8 = bytes;
    addr
}
