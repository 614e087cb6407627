// SPDX-License-Identifier: GPL-2.0

//! `rdma link add`, and events of net devices.

use crate::{
    device::Ferroce,
    guard,
    port, //
};
use kernel::{
    cpu::nr_cpu_ids,
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use rdma::{
    ib::{
        device::DeviceInit,
        link::LinkType,
        Device, //
    },
    net::{
        netdevice::NetDevice,
        notifier::{
            NetdevEvent,
            NetdevHandler, //
        },
        Rtnl, //
    },
    sync::Global, //
};

/// Held while a device is added.
static ADDING: Global<Mutex<()>> = Global::new();

/// Initialises the lock. Called once, before link types are registered.
pub(crate) fn init() -> Result {
    ADDING.init(new_mutex!((), "ferroce::link"))
}

/// The link type.
pub(crate) struct Link;

impl LinkType for Link {
    const TYPE: &'static CStr = c"ferroce";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        guard::check()?;
        // The core may call this concurrently for the same net device.
        let _one = ADDING.get().ok_or(ENODEV)?.lock();
        if netdev.is_vlan() {
            // The addresses of a VLAN device are in the GID table of the device below it.
            return Err(EPERM);
        }
        if Device::<Ferroce>::by_netdev(netdev).is_some() {
            return Err(EEXIST);
        }
        add(name, netdev).inspect_err(|e| {
            pr_err!("failed to add a link: {:?}\n", e);
        })
    }
}

/// Creates a device on a net device.
fn add(name: &CStr, netdev: &NetDevice) -> Result {
    let net = netdev.net_id();
    let device = Ferroce::new(netdev, net)?;
    let init = DeviceInit {
        name,
        netdev,
        node_guid: device.guid,
        node_desc: c"ferroce",
        // A vector selects no CPU. Consumers derive the number of their CQs and connections from
        // the number of vectors.
        comp_vectors: nr_cpu_ids(),
    };
    Device::register(&init, Ok(device))?;
    if let Some(device) = Device::<Ferroce>::by_netdev(netdev) {
        // From here on, events of the net device find the device, so no change of its state and its
        // MTU is missed.
        let _rtnl = Rtnl::lock();
        port::report(&device, netdev);
        device.note_mtu(port::fitting_mtu(netdev));
    }
    // The net device may have moved to another namespace before its event could find the device.
    if netdev.net_id() != net {
        Device::<Ferroce>::unregister_queued_on(netdev);
        return Err(ENODEV);
    }
    Ok(())
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
        // Other changes need no handling: queries read the speed, and routes are checked at each
        // use.
        match event {
            // The core calls the verb for most net devices, but not for those of a bond or team.
            NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                if let Some(device) = Device::<Ferroce>::by_netdev(dev) {
                    port::report(&device, dev);
                }
            }
            NetdevEvent::ChangeMtu => {
                if let Some(device) = Device::<Ferroce>::by_netdev(dev) {
                    device.note_mtu(port::fitting_mtu(dev));
                }
            }
            NetdevEvent::Unregister => Device::<Ferroce>::unregister_queued_on(dev),
            _ => {}
        }
    }
}
