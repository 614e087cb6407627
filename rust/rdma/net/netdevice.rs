// SPDX-License-Identifier: GPL-2.0

//! Network devices.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    NetId,
    Rtnl, //
};
use crate::{
    bindings,
    copy_name, //
};
use core::ptr::NonNull;
use kernel::{
    sync::{
        aref::AlwaysRefCounted,
        rcu, //
    },
    types::Opaque, //
};

/// The length of the array with the name.
// CAST: The value is 16.
const NAME_LEN: usize = bindings::IFNAMSIZ as usize;

/// A `struct net_device`.
///
/// Unless noted, the functions are callable in any context and take no lock: the result may be
/// stale at once, unless the caller holds RTNL.
///
/// A counted reference (`ARef<NetDevice>`) delays the end of `ip link del`. Drop it on
/// [`NetdevEvent::Unregister`](super::NetdevEvent::Unregister).
///
/// # Invariants
///
/// Points to a `struct net_device` that is counted, or otherwise alive, for the lifetime of the
/// reference.
///
/// # Examples
///
/// ```
/// use kernel::sync::aref::ARef;
/// use rdma::net::NetDevice;
///
/// /// A port, which drops its net device when that is unregistered.
/// struct Port {
///     netdev: ARef<NetDevice>,
///     mtu: u32,
/// }
///
/// impl Port {
///     fn new(netdev: &NetDevice) -> Option<Self> {
///         netdev.port_active().then(|| Self {
///             netdev: netdev.into(),
///             mtu: netdev.mtu(),
///         })
///     }
/// }
/// ```
#[repr(transparent)]
pub struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: The reference count is atomic, and the last reference may go in any thread.
unsafe impl Send for NetDevice {}
// SAFETY: The functions of this type read fields that may be read concurrently, or hold RTNL.
unsafe impl Sync for NetDevice {}

// SAFETY: `dev_hold()` and `dev_put()` count the references that keep a device from being freed.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: The device is alive by the type invariant.
        unsafe { bindings::dev_hold(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference.
        unsafe { bindings::dev_put(obj.cast().as_ptr()) };
    }
}

impl NetDevice {
    /// Borrows a device.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a `struct net_device` that is not freed during `'a`.
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut bindings::net_device) -> &'a Self {
        // SAFETY: `ptr` is valid by the requirement of this function, and `Self` is transparent.
        // INVARIANT: As required the device outlives `'a`.
        unsafe { &*ptr.cast() }
    }

    /// Returns the `struct net_device`.
    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Returns the index of the device, unique within its namespace.
    pub fn ifindex(&self) -> i32 {
        // SAFETY: The device is alive by the type invariant.
        unsafe { bindings::net_device_ifindex(self.as_raw()) }
    }

    /// Returns the largest IP packet that the device carries, in bytes.
    pub fn mtu(&self) -> u32 {
        // SAFETY: The device is alive by the type invariant.
        unsafe { bindings::net_device_mtu(self.as_raw()) }
    }

    /// Returns whether the device is up (`ip link set up`).
    pub fn is_up(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        unsafe { bindings::netif_running(self.as_raw()) }
    }

    /// Returns whether an RDMA port on this device is active: the device is up and has a carrier.
    pub fn port_active(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        let state = unsafe { bindings::ib_get_curr_port_state(self.as_raw()) };

        state == bindings::ib_port_state_IB_PORT_ACTIVE
    }

    /// Returns the link-layer address, or [`None`] if it is not a MAC address.
    ///
    /// Without RTNL, a concurrent change of the address may be seen partially.
    pub fn mac(&self) -> Option<[u8; 6]> {
        // SAFETY: The device is alive by the type invariant.
        if usize::from(unsafe { bindings::net_device_addr_len(self.as_raw()) }) != 6 {
            return None;
        }
        // SAFETY: The device is alive by the type invariant. `dev_addr` points to at least
        // `addr_len` bytes as long as the device is; they are copied as the C side does.
        Some(unsafe {
            bindings::net_device_dev_addr(self.as_raw())
                .cast::<[u8; 6]>()
                .read_volatile()
        })
    }

    /// Returns the identity of the namespace that the device is in now.
    pub fn net_id(&self) -> NetId {
        let _rcu = rcu::read_lock();

        // SAFETY: The device is alive by the type invariant, and its namespace is under RCU.
        unsafe { NetId::from_raw(bindings::dev_net_rcu(self.as_raw())) }
    }

    /// Returns the speed in Mb/s, or [`None`] if the device does not know it. Sleeps.
    pub fn speed(&self, _rtnl: &Rtnl) -> Option<u32> {
        let mut settings = pin_init::zeroed();

        // An unregistered stacked device no longer holds the lower device that it would query.
        if !self.is_registered() {
            return None;
        }
        // SAFETY: The device is alive by the type invariant, RTNL is held, under which it stays
        // registered, and `settings` is valid for write.
        let ret = unsafe { bindings::__ethtool_get_link_ksettings(self.as_raw(), &mut settings) };
        // `SPEED_UNKNOWN` is -1.
        (ret == 0 && settings.base.speed != u32::MAX).then_some(settings.base.speed)
    }

    /// Returns the VLAN of a VLAN device, or [`None`] for any other.
    pub fn vlan_id(&self) -> Option<u16> {
        // SAFETY: The device is alive by the type invariant.
        if !unsafe { bindings::is_vlan_dev(self.as_raw()) } {
            return None;
        }
        // SAFETY: The device is alive by the type invariant, and it is a VLAN device.
        Some(unsafe { bindings::vlan_dev_vlan_id(self.as_raw()) })
    }

    /// Returns a copy of the name, which zeros follow. Callable in any context.
    pub(crate) fn name(&self) -> [u8; NAME_LEN] {
        // SAFETY: The device is alive by the type invariant, and its name has that length.
        unsafe { copy_name(bindings::net_device_name(self.as_raw()).cast()) }
    }

    /// Returns the length of the header of a frame, in bytes.
    pub(super) fn hard_header_len(&self) -> usize {
        // SAFETY: The device is alive by the type invariant.
        usize::from(unsafe { bindings::net_device_hard_header_len(self.as_raw()) })
    }

    /// Returns whether the device is registered.
    ///
    /// It becomes `false` before [`NetdevEvent::Unregister`](super::NetdevEvent::Unregister) is
    /// sent for a removal. Therefore a caller that records the device under a lock that the handler
    /// of this event also takes, and then finds the device registered, will see its removal. A
    /// device that moves to another namespace stays registered; compare [`NetDevice::net_id`], too.
    pub fn is_registered(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        unsafe { bindings::net_device_is_registered(self.as_raw()) }
    }
}
