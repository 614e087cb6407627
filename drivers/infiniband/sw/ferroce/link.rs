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
        }, //
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
pub(crate) struct FerroceLink;

impl LinkType for FerroceLink {
    const TYPE: &'static CStr = c"ferroce";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        guard::check()?;
        // The core may call this concurrently for the same net device.
        let _one = ADDING.get().ok_or(ENODEV)?.lock();
        if netdev.vlan_id().is_some() {
            // The addresses of a VLAN device are in the GID table of the device below it.
            pr_info!("cannot add an RDMA device to a VLAN device: add it to the one below\n");
            return Err(EPERM);
        }
        if Device::<Ferroce>::by_netdev(netdev).is_some() {
            return Err(EEXIST);
        }
        add(name, netdev).inspect_err(|e| {
            pr_err!("failed to add a device: {e:?}\n");
        })
    }
}

/// Creates a device on a net device.
fn add(name: &CStr, netdev: &NetDevice) -> Result {
    let device = Ferroce::new(netdev)?;
    let init = DeviceInit {
        name,
        netdev,
        node_guid: device.guid,
        node_desc: c"ferroce",
        // A vector selects no CPU. Consumers derive the number of their CQs and connections from
        // the number of vectors.
        comp_vectors: nr_cpu_ids(),
    };
    Device::register(&init, Ok(device))
}

/// The link type of C rxe, for scripts that were written for it.
pub(crate) struct CompatLink;

impl LinkType for CompatLink {
    const TYPE: &'static CStr = c"rxe";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        FerroceLink::newlink(name, netdev)
    }
}

impl NetdevHandler for FerroceLink {
    fn event(dev: &NetDevice, event: NetdevEvent) {
        // Other changes need no handling: queries read the speed, and routes are checked at each
        // use.
        match event {
            // The core calls `report_port_event` for most net devices, but not for those of a bond
            // or team.
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
