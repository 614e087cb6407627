// SPDX-License-Identifier: GPL-2.0

//! The port of a device.

use crate::{
    device::Ferroce,
    gids::Link,
    module_parameters, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        device::PortAttr,
        mad::Mad,
        Device, //
    },
    net::{
        netdevice::NetDevice,
        Rtnl, //
    }, //
};
use roce::{
    pma,
    qp::Mtu,
    wire::MAX_MESSAGE_LEN, //
};

/// The most bytes of a packet besides its payload: IPv6, UDP, BTH, RETH, immediate data and ICRC,
/// of a WRITE with immediate data.
///
/// C rxe subtracts 80, without the immediate data.
const OVERHEAD: u32 = 84;

/// The default number of entries of the GID table.
///
/// C rxe has 1024. Each entry has three files in sysfs in each network namespace, which take most
/// of the time to create a device or a namespace.
pub(crate) const DEFAULT_GID_TABLE: u32 = 256;

/// The maximum number of entries.
const MAX_GID_TABLE: u32 = 4096;

/// Returns the largest MTU that fits the net device of a device.
pub(crate) fn active_mtu(device: &Device<Ferroce>) -> Mtu {
    device
        .netdev()
        .map_or(Mtu::B256, |netdev| fitting_mtu(&netdev))
}

/// Returns the largest MTU that fits a net device.
pub(crate) fn fitting_mtu(netdev: &NetDevice) -> Mtu {
    Mtu::fitting(netdev.mtu().saturating_sub(OVERHEAD)).unwrap_or(Mtu::B256)
}

/// Checks the module parameter `gid_table`.
///
/// # Errors
///
/// `EINVAL` if it is out of range.
pub(crate) fn check_gid_table() -> Result {
    let entries = *module_parameters::gid_table.value_ref();
    if !(1..=MAX_GID_TABLE).contains(&entries) {
        pr_err!("invalid gid_table={entries}: must be from 1 to {MAX_GID_TABLE}\n");
        return Err(EINVAL);
    }
    Ok(())
}

/// Fills in the state of the port. Takes RTNL.
///
/// # Errors
///
/// `ENODEV` if its net device is gone.
pub(crate) fn query(dev: &Device<Ferroce>, attr: &mut PortAttr<'_>) -> Result {
    let netdev = dev.netdev().ok_or(ENODEV)?;
    let speed_known = dev.note_speed(&netdev);
    attr.set_state_of(&netdev)
        .set_mtu(Mtu::B4096.bytes(), active_mtu(dev).bytes())
        .set_tables(*module_parameters::gid_table.value_ref(), 1)
        .set_max_msg_sz(MAX_MESSAGE_LEN)
        .set_cm_supported();
    if speed_known {
        attr.set_speed_of(dev);
    } else {
        // The core would log an unknown speed at each query.
        attr.set_least_speed();
    }
    Ok(())
}

/// Catches up with the net device, whose events do not find a device that is disabled. Takes RTNL.
///
/// Unregisters the device if the net device has moved to another namespace or is being removed.
pub(crate) fn enable(dev: &Device<Ferroce>) {
    let Some(netdev) = dev.netdev() else {
        return;
    };
    let _rtnl = Rtnl::lock();

    if !netdev.is_registered() || Link::of(&netdev) != dev.link {
        dev.unregister_queued();
        return;
    }
    report(dev, &netdev);
    dev.note_mtu(fitting_mtu(&netdev));
}

/// Dispatches an event if the state of the port has changed since the last call. Called under RTNL.
pub(crate) fn report(dev: &Device<Ferroce>, netdev: &NetDevice) {
    let active = netdev.port_active();

    if dev.note_port(active) {
        dev.dispatch_port_event(active);
    }
}

/// Answers a management datagram for counters. Returns whether `request` is one.
pub(crate) fn process_mad(dev: &Device<Ferroce>, request: &Mad, response: &mut Mad) -> bool {
    /// The number of the port.
    const PORT: u8 = 1;

    let counters = || dev.counters.port(&dev.bound_counters);
    pma::respond(request, PORT, counters, response)
}
