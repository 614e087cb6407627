// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`, and what happens to net devices.

use crate::{
    device::Ferroce,
    guard, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use rdma::{
    ib::{
        link::LinkType,
        Device, //
    },
    net::{
        netdevice::NetDevice,
        notifier::{
            NetdevEvent,
            NetdevHandler, //
        }, //
    },
    sync::Global, //
};

/// Held while a device is added.
static ADDING: Global<Mutex<()>> = Global::new();

/// Prepares the lock. Once, before link types are registered.
pub(crate) fn init() -> Result {
    ADDING.init(new_mutex!((), "ferroce::link"))
}

/// The link type.
pub(crate) struct Link;

impl LinkType for Link {
    const TYPE: &'static CStr = c"ferroce";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        guard::check()?;
        // Two of these may run at the same time, for the same net device.
        let _one = ADDING.get().ok_or(ENODEV)?.lock();
        if netdev.is_vlan() {
            // The addresses of a VLAN device are in the GID table of the device below it.
            return Err(EPERM);
        }
        if Device::<Ferroce>::by_netdev(netdev).is_some() {
            return Err(EEXIST);
        }
        Ferroce::add(name, netdev).inspect_err(|e| {
            pr_err!("cannot add a link: {:?}\n", e);
        })
    }
}

/// The link type of C rxe, for scripts that were written for it.
pub(crate) struct CompatLink;

impl LinkType for CompatLink {
    const TYPE: &'static CStr = c"rxe";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        Link::newlink(name, netdev)
    }
}

impl NetdevHandler for Link {
    fn event(dev: &NetDevice, event: NetdevEvent) {
        // State and speed are read when they are asked for, and the core tells of changes; a route
        // is checked at each use.
        match event {
            NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                if let Some(device) = Device::<Ferroce>::by_netdev(dev) {
                    device.note_port(dev.port_active());
                }
            }
            NetdevEvent::ChangeMtu => {
                if let Some(device) = Device::<Ferroce>::by_netdev(dev) {
                    device.note_mtu(dev);
                }
            }
            NetdevEvent::Unregister => Device::<Ferroce>::unregister_queued_on(dev),
            _ => {}
        }
    }
}
