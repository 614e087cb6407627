// SPDX-License-Identifier: GPL-2.0

//! The smallest RDMA device that registers.
//!
//! A sample of crate `rdma`: a module that adds the link type `ib_minimal`, and a device whose only
//! objects are user contexts and protection domains. Every other verb is refused with `EOPNOTSUPP`.
//!
//! ```text
//! insmod rust_ib_minimal.ko
//! rdma link add min0 type ib_minimal netdev eth0
//! rdma dev
//! rdma statistic show link min0/1
//! rdma link delete min0
//! rmmod rust_ib_minimal
//! ```
//!
//! A driver consists of four parts, which come in this order:
//!
//! - what it keeps for a device: [`Minimal`], and for each object, here only [`CountedPd`];
//! - what the device can do: `impl Driver`;
//! - how devices come and go: [`Link`];
//! - what the module holds, in the order in which it must go: [`Module`].
//!
//! The core takes a driver whose table of operations has every verb for one that serves the
//! kernel's own consumers too. So the MAD layer wants a protection domain, which for the kernel
//! comes with a region of all memory, is refused that, and says so in the log at each `rdma link
//! add`.

#![forbid(unsafe_code)]

use kernel::{
    alloc::Flags,
    mm::virt::VmaNew,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::{
    ib::{
        self,
        cq::{
            CqInit,
            WcArray, //
        },
        device::{
            cap,
            unregister_all,
            DeviceAttr,
            DeviceInit,
            PortAttr,
            PortState, //
        },
        gid::{
            GidChange,
            Path, //
        },
        link::{
            LinkRegistration,
            LinkType, //
        },
        mr::{
            Advice,
            Change,
            End,
            Keys,
            UserRange, //
        },
        object::{
            Pd,
            Ucontext, //
        },
        qp::{
            PathAttr,
            QpAttr,
            QpAttrOut,
            QpCap,
            QpInit, //
        },
        stats::CounterDesc,
        udata::Udata,
        umem::DmaMemory,
        wr::{
            RecvList,
            SendList,
            Sges, //
        },
        Access,
        Device,
        Driver, //
    },
    net::{
        netdevice::NetDevice,
        notifier::{
            NetdevEvent,
            NetdevHandler,
            NetdevNotifier, //
        }, //
    },
    sync::Owned, //
};

module! {
    type: Module,
    name: "rust_ib_minimal",
    authors: ["The ferroce developers"],
    description: "The smallest RDMA device",
    license: "GPL",
    alias: ["rdma-link-ib_minimal"],
}

/// How many protection domains there may be.
const MAX_PD: u32 = 16;

/// `enum ib_mtu` of 1024 bytes.
const MTU_1024: u32 = 3;

/// The protection domains that exist, of all devices.
static PDS: Atomic<u32> = Atomic::new(0);

/// What is kept for a device: nothing. That of a real driver has its counters, limits and so on.
struct Minimal;

/// What is kept for a protection domain.
///
/// The core allocates it, calls [`Driver::alloc_pd`] to construct it in place, and drops it when
/// the consumer is done with it. So both ends of its life are ordinary Rust.
struct CountedPd;

impl CountedPd {
    fn new() -> Result<Self> {
        // Built first, so that a failure takes the count back.
        let pd = Self;
        if PDS.fetch_add(1, Relaxed) >= MAX_PD {
            return Err(ENOSPC);
        }
        Ok(pd)
    }
}

impl Drop for CountedPd {
    fn drop(&mut self) {
        PDS.fetch_sub(1, Relaxed);
    }
}

/// An object that cannot be made: a value of this type does not exist.
enum Never {}

#[vtable]
impl Driver for Minimal {
    // `RDMA_DRIVER_UNKNOWN`: no provider library looks for it, so `rdma dev` shows the device and
    // `ibv_devices` does not.
    const DRIVER_ID: u32 = 0;
    const UVERBS_ABI_VERSION: u32 = 1;
    const UVERBS_CMDS: &'static [u32] = &[];

    // The core wants at least one.
    const COUNTERS: &'static [CounterDesc] = &[CounterDesc::new(c"protection_domains")];

    type Ucontext = ();
    type Pd = CountedPd;
    type Ah = Never;
    type Mr = Never;
    type Mw = Never;
    type Cq = Never;
    type Qp = Never;
    type Srq = Never;
    type Counter = Never;

    fn query_device(_dev: &Device<Self>, attr: &mut DeviceAttr) {
        // Everything that is not set is zero: there is none of it.
        attr.set_max_pd(MAX_PD)
            .set_max_pkeys(1)
            .set_kernel_cap_flags(cap::ALLOW_USER_UNREG);
    }

    fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result {
        let netdev = dev.netdev().ok_or(ENODEV)?;
        let state = if netdev.port_active() {
            PortState::Active
        } else {
            PortState::Disabled
        };
        attr.set_state(state)
            .set_mtu(MTU_1024, MTU_1024)
            .set_tables(16, 1)
            .set_speed_of(dev);
        Ok(())
    }

    fn read_counter(_dev: &Device<Self>, _index: usize) -> u64 {
        u64::from(PDS.load(Relaxed))
    }

    // The core keeps the table. A driver that must know addresses on its data path notes them here.
    fn add_gid(_dev: &Device<Self>, _gid: &GidChange<'_>) -> Result {
        Ok(())
    }

    fn del_gid(_dev: &Device<Self>, _gid: &GidChange<'_>) {}

    fn alloc_ucontext(_dev: &Device<Self>) -> impl PinInit<(), Error> {
        Ok(())
    }

    fn mmap(_ucontext: &Ucontext<Self>, _vma: &VmaNew, _offset: u64) -> Result {
        Err(EOPNOTSUPP)
    }

    fn alloc_pd(
        _dev: &Device<Self>,
        _ucontext: Option<&Ucontext<Self>>,
    ) -> impl PinInit<CountedPd, Error> {
        CountedPd::new()
    }

    // From here on: what there is not. Where no object can exist, its verbs cannot be called, and
    // the compiler knows it.

    fn create_ah(
        _dev: &Device<Self>,
        _pd: &Pd<Self>,
        _path: Path,
        _flags: Flags,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<Never> {
        Err(EOPNOTSUPP)
    }

    fn modify_ah(ah: &Never, _path: Path) -> Result {
        match *ah {}
    }

    fn query_ah(ah: &Never) -> Option<Path> {
        match *ah {}
    }

    fn reg_user_mr(_pd: &Pd<Self>, _range: UserRange, _access: Access) -> Result<Never> {
        Err(EOPNOTSUPP)
    }

    fn get_dma_mr(_pd: &Pd<Self>, _memory: DmaMemory, _access: Access) -> Result<Never> {
        Err(EOPNOTSUPP)
    }

    fn mr_keys(mr: &Never) -> Keys {
        match *mr {}
    }

    fn dereg_mr(mr: &Never, _end: End) -> Result {
        match *mr {}
    }

    fn rereg_user_mr(mr: &mut Never, _change: Change<'_, Self>) -> Result {
        match *mr {}
    }

    fn advise_mr(_pd: &Pd<Self>, _advice: Advice, _flush: bool, _sges: Sges<'_>) -> Result {
        Err(EOPNOTSUPP)
    }

    fn create_cq(
        _dev: &Device<Self>,
        _init: &mut CqInit<'_, Self>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<impl PinInit<Never, Error>> {
        Err::<Result<Never>, _>(EOPNOTSUPP)
    }

    fn publish_cq(cq: &Owned<ib::cq::Cq<Self>>) {
        match ***cq {}
    }

    fn destroy_cq(cq: &Owned<ib::cq::Cq<Self>>) {
        match ***cq {}
    }

    fn poll_cq(cq: &Owned<ib::cq::Cq<Self>>, _out: &mut WcArray<'_>) {
        match ***cq {}
    }

    fn arm_cq(cq: &Owned<ib::cq::Cq<Self>>, _solicited_only: bool) -> bool {
        match ***cq {}
    }

    fn create_qp(
        _dev: &Device<Self>,
        _init: &mut QpInit<'_, Self>,
        _udata: Option<&mut Udata<'_>>,
    ) -> Result<impl PinInit<Never, Error>> {
        Err::<Result<Never>, _>(EOPNOTSUPP)
    }

    fn publish_qp(qp: &Owned<ib::qp::Qp<Self>>) -> u32 {
        match ***qp {}
    }

    fn destroy_qp(qp: &Owned<ib::qp::Qp<Self>>) {
        match ***qp {}
    }

    fn modify_qp(
        qp: &Owned<ib::qp::Qp<Self>>,
        _attr: &QpAttr<'_>,
        _mask: u32,
        _path: Option<PathAttr>,
    ) -> Result {
        match ***qp {}
    }

    fn query_qp(
        qp: &Owned<ib::qp::Qp<Self>>,
        _mask: u32,
        _attr: &mut QpAttrOut<'_>,
        _cap: &mut QpCap,
        _signal_all: &mut bool,
    ) -> Option<Path> {
        match ***qp {}
    }

    fn post_send(qp: &Owned<ib::qp::Qp<Self>>, _list: &mut SendList<'_, Self>) -> Result {
        match ***qp {}
    }

    fn post_recv(qp: &Owned<ib::qp::Qp<Self>>, _list: &mut RecvList<'_>) -> Result {
        match ***qp {}
    }
}

/// `rdma link add NAME type ib_minimal netdev NETDEV`, and the end of net devices.
struct Link;

impl LinkType for Link {
    const TYPE: &'static CStr = c"ib_minimal";

    fn newlink(name: &CStr, netdev: &NetDevice) -> Result {
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
        Device::register(&init, Ok(Minimal))?;
        // The net device may have gone meanwhile, and its notice came before there was a device.
        if !netdev.is_registered() {
            if let Some(device) = Device::<Minimal>::by_netdev(netdev) {
                device.unregister_queued();
            }
            return Err(ENODEV);
        }
        Ok(())
    }
}

impl NetdevHandler for Link {
    fn event(netdev: &NetDevice, event: NetdevEvent) {
        // RTNL is held, which unregistering takes too: hence later.
        if let NetdevEvent::Unregister = event {
            if let Some(device) = Device::<Minimal>::by_netdev(netdev) {
                device.unregister_queued();
            }
        }
    }
}

/// All devices. Dropping it unregisters them and waits.
struct Devices;

impl Drop for Devices {
    fn drop(&mut self) {
        unregister_all::<Minimal>();
    }
}

/// What the module holds. Fields are dropped in declaration order: first nothing creates devices
/// any more, then the devices go, then what they use.
#[pin_data]
struct Module {
    #[pin]
    _link: LinkRegistration<Link>,
    _devices: Devices,
    #[pin]
    _notifier: NetdevNotifier<Link>,
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _notifier <- NetdevNotifier::register(),
            _devices: Devices,
            _link <- LinkRegistration::new(),
        })
    }
}
