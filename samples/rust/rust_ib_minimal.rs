// SPDX-License-Identifier: GPL-2.0

//! The smallest RDMA device that registers: a sample of crate `rdma`.
//!
//! The module adds the link type `ib_minimal`. Its devices have user contexts and protection
//! domains. The core refuses all other verbs with `EOPNOTSUPP`.
//!
//! ```text
//! modprobe -a ib_uverbs udp_tunnel ip6_udp_tunnel
//! insmod rust_ib_minimal.ko
//! rdma link add min0 type ib_minimal netdev eth0
//! ```

#![forbid(unsafe_code)]

use core::convert::Infallible;
use kernel::prelude::*;
use rdma::{
    ib::{
        cap,
        device::{
            DeviceAttr,
            DeviceInit,
            Devices,
            PortAttr, //
        },
        driver::DriverId,
        link::{
            LinkRegistration,
            LinkType, //
        },
        udata::Udata,
        Device,
        Driver, //
    },
    net::{
        NetDevice,
        NetdevEvent,
        NetdevHandler,
        NetdevNotifier, //
    },
    sync::Global, //
};

module! {
    type: Module,
    name: "rust_ib_minimal",
    authors: ["The ferroce developers"],
    description: "The smallest RDMA device",
    license: "GPL",
    alias: ["rdma-link-ib_minimal"],
}

/// The driver's data of a device: none.
struct Minimal;

#[vtable]
impl Driver for Minimal {
    const DRIVER_ID: DriverId = DriverId::Private(0);
    const UVERBS_ABI_VERSION: u32 = 1;
    const PORT: cap::PortProtocol = cap::PortProtocol::RawPacket;

    type Ucontext = ();
    type Pd = ();
    type Ah = Infallible;
    type Mr = Infallible;
    type Mw = Infallible;
    type Cq = Infallible;
    type Qp = Infallible;
    type Srq = Infallible;
    type Counter = Infallible;

    fn query_device(_dev: &Device<Self>, attr: &mut DeviceAttr) {
        attr.set_max_pd(16)
            .set_kernel_caps(cap::KernelCap::AllowUserUnreg.into());
    }

    fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result {
        let netdev = dev.netdev().ok_or(ENODEV)?;
        attr.set_state_of(&netdev)
            .set_mtu(1024, 1024)
            .set_speed_of(dev);
        Ok(())
    }

    fn alloc_ucontext(_dev: &Device<Self>) -> impl PinInit<(), Error> {
        Ok(())
    }

    fn alloc_pd(_dev: &Device<Self>, _: Option<&Udata<'_, Self>>) -> impl PinInit<(), Error> {
        Ok(())
    }
}

/// Held while a device is added, because a net device can have only one.
static ADDING: Global<kernel::sync::Mutex<()>> = Global::new();

/// `rdma link add NAME type ib_minimal netdev NETDEV`, and the end of net devices.
struct Link;

impl LinkType for Link {
    const TYPE: &'static CStr = c"ib_minimal";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
        let _one = ADDING.get().ok_or(ENODEV)?.lock();
        if Device::<Minimal>::by_netdev(netdev).is_some() {
            return Err(EEXIST);
        }
        let init = DeviceInit {
            name,
            netdev,
            node_guid: [0x02, 0, 0, 0xff, 0xfe, 0, 0, 1],
            node_desc: c"ib_minimal",
            comp_vectors: 1,
        };
        Device::register(&init, Ok(Minimal))
    }
}

impl NetdevHandler for Link {
    fn event(netdev: &NetDevice, event: NetdevEvent) {
        // RTNL is held. Unregistering takes it too, so it is queued.
        if let NetdevEvent::Unregister = event {
            Device::<Minimal>::unregister_queued_on(netdev);
        }
    }
}

/// Fields are dropped in declaration order: first the link type, so that no device is added, then
/// the devices, then the notifier.
#[pin_data]
struct Module {
    #[pin]
    _link: LinkRegistration<Link>,
    _devices: Devices<Minimal>,
    #[pin]
    _notifier: NetdevNotifier<Link>,
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _: { ADDING.init(kernel::new_mutex!((), "rust_ib_minimal::ADDING"))? },
            _notifier <- NetdevNotifier::register(),
            _devices: Devices::new(),
            _link <- LinkRegistration::register(),
        })
    }
}
