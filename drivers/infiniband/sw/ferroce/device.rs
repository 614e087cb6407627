// SPDX-License-Identifier: GPL-2.0

//! Devices: what one can do, and what the core's callbacks lead to.

use crate::{
    ah::Ah,
    counters::{
        self,
        Counter,
        Counters, //
    },
    cq::Cq,
    gids::{
        self,
        Address,
        Link, //
    },
    limits,
    mcast,
    mr::{
        self,
        Region, //
    },
    mw::Window,
    pd::Domain,
    port,
    qp::{
        self,
        Qp, //
    },
    senders::Senders,
    sockets::{
        self,
        SocketRef, //
    },
    speed::Speed,
    srq::Srq,
    ucontext::Ucontext, //
};
use kernel::{
    alloc::Flags,
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
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
            DeviceAttr,
            DeviceInit,
            PortAttr, //
        },
        driver::{
            CMD_POST_SEND,
            CMD_REQ_NOTIFY_CQ,
            DRIVER_ID_RXE, //
        },
        gid::{
            GidChange,
            Path, //
        },
        mad::Mad,
        mr::{
            Advice,
            Change,
            End,
            Keys,
            SgList,
            UserRange, //
        },
        mw::MwType,
        object::Pd,
        qp::{
            PathAttr,
            QpAttr,
            QpAttrOut,
            QpCap,
            QpInit, //
        },
        resource::ResourceEntry,
        srq::{
            SrqAttr,
            SrqChange,
            SrqInit, //
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
        Namespace,
        Rtnl, //
    },
    sync::Owned, //
};
use roce::{
    qp::attr::{
        AttrMask,
        Mtu, //
    },
    uapi::ABI_VERSION, //
};

/// The most scatter or gather entries of a request.
pub(crate) const MAX_SGE: u32 = 32;
/// The most requests of a queue.
pub(crate) const MAX_WR: u32 = 1 << 14;
/// The most bytes of inline data.
pub(crate) const MAX_INLINE: u32 = 512;
/// The most READs, atomics and their like outstanding of a queue pair, as requester and as
/// responder.
pub(crate) const MAX_RD_ATOMIC: u8 = roce::responder::MAX_RD_ATOMIC as u8;

/// What the driver keeps for a device.
pub(crate) struct Ferroce {
    /// Distinguishes devices; never used again.
    number: u32,
    guid: [u8; 8],
    /// What happens, but for queue pairs that are bound to a counter of their own.
    counters: Arc<Counters>,
    /// What happens to those, and to those that were.
    pub(crate) bound_counters: Arc<Counters>,
    /// Whether the port was active when its net device last said something. Under RTNL.
    active: Atomic<bool>,
    /// The MTU of the port, in bytes, which follows that of its net device. Written under RTNL.
    mtu: Atomic<u32>,
    /// The net device.
    link: Link,
    /// That of the net device, which bounds rates.
    pub(crate) speed: Speed,
    /// The multicast groups in use.
    pub(crate) mcast: mcast::Usage,
    /// Halves of queue pairs that send: they share the queues below.
    pub(crate) senders: Senders,
    /// Keeps the sockets of the namespace open.
    _sockets: SocketRef,
}

impl Ferroce {
    /// Creates a device on a net device.
    pub(crate) fn add(name: &CStr, netdev: &NetDevice) -> Result {
        static NEXT: Atomic<u32> = Atomic::new(1);

        let guid = guid(netdev);
        let sockets = SocketRef::acquire(netdev)?;
        let net = netdev.net_id();
        let this = Self {
            link: Link {
                net,
                ifindex: netdev.ifindex(),
            },
            number: NEXT.fetch_add(1, Relaxed),
            guid,
            counters: Counters::new(None)?,
            bound_counters: Counters::new(None)?,
            active: Atomic::new(netdev.port_active()),
            mtu: Atomic::new(Mtu::B256.bytes()),
            speed: Speed::new(),
            mcast: mcast::Usage::new(),
            senders: Senders::new(),
            _sockets: sockets,
        };
        let init = DeviceInit {
            name,
            netdev,
            node_guid: guid,
            node_desc: c"ferroce",
            comp_vectors: 1,
        };
        Device::register(&init, Ok(this))?;
        if let Some(device) = Device::<Self>::by_netdev(netdev) {
            // From here on the net device tells of changes.
            let _rtnl = Rtnl::lock();
            device.note_mtu(netdev);
        }
        // The net device may have moved meanwhile, and its notice came before there was a device.
        if netdev.net_id() != net {
            Device::<Self>::unregister_queued_on(netdev);
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Returns the counters of what happens but to bound queue pairs.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes note of whether the port is active. Under RTNL.
    pub(crate) fn note_port(&self, active: bool) {
        if self.active.xchg(active, Relaxed) && !active {
            self.counters.count(Counter::LinkDowned);
        }
    }

    /// Takes note of the MTU of the net device. Under RTNL.
    pub(crate) fn note_mtu(&self, netdev: &NetDevice) {
        self.mtu.store(port::fitting_mtu(netdev).bytes(), Relaxed);
    }

    /// Returns the MTU of the port, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Relaxed)
    }

    /// Returns a GID as an address in the namespace of the net device.
    pub(crate) fn address(&self, gid: [u8; 16]) -> Address {
        Address {
            net: self.link.net,
            gid,
        }
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Returns the GUID: the modified EUI-64 of the MAC address, or a random one for a net device that
/// has none.
fn guid(netdev: &NetDevice) -> [u8; 8] {
    let [a, b, c, d, e, f] = netdev.mac().unwrap_or_else(rdma::random::mac);
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[vtable]
impl Driver for Ferroce {
    const DRIVER_ID: u32 = DRIVER_ID_RXE;
    const UVERBS_ABI_VERSION: u32 = ABI_VERSION;
    const UVERBS_CMDS: &'static [u32] = &[CMD_POST_SEND, CMD_REQ_NOTIFY_CQ];

    const COUNTERS: &'static [CounterDesc] = counters::NAMES;

    type Ucontext = Ucontext;
    type Pd = Domain;
    type Ah = Ah;
    type Mr = Region;
    type Mw = Window;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type Counter = Arc<Counters>;

    fn query_device(dev: &Device<Self>, attr: &mut DeviceAttr) {
        limits::describe(dev.guid, attr);
    }

    fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result {
        port::query(dev, attr)
    }

    fn read_counter(dev: &Device<Self>, index: usize) -> u64 {
        dev.counters.get(index)
    }

    fn new_counter(dev: &Device<Self>) -> Result<Arc<Counters>> {
        Counters::new(Some(dev.bound_counters.clone()))
    }

    fn bind_counter(counter: &Arc<Counters>, qp: &Owned<ib::qp::Qp<Self>>) {
        qp.count_in(counter);
    }

    fn unbind_counter(qp: &Owned<ib::qp::Qp<Self>>) {
        qp.count_in(&qp.device().counters);
    }

    fn read_bound_counter(counter: &Arc<Counters>, index: usize) -> u64 {
        counter.get(index)
    }

    fn process_mad(dev: &Device<Self>, request: &Mad, response: &mut Mad) -> bool {
        port::answer(dev, request, response)
    }

    fn add_gid(dev: &Device<Self>, gid: &GidChange<'_>) -> Result {
        let Some(netdev) = gid.netdev() else {
            return Ok(());
        };
        // None if the namespace ends, and the address with it: it reaches nobody any more.
        let Some(namespace) = Namespace::of(netdev) else {
            return Ok(());
        };
        let net = namespace.id();
        let link = Link {
            net,
            ifindex: netdev.ifindex(),
        };
        let address = Address {
            net,
            gid: gid.gid(),
        };
        sockets::address_added(&namespace)?;
        gids::add(dev.number, gid.index(), address, link, link == dev.link)
            .inspect_err(|_| sockets::address_removed(net))
    }

    fn del_gid(dev: &Device<Self>, gid: &GidChange<'_>) {
        // The net device may be in another namespace by now: what was counted counts.
        if let Some(address) = gids::remove(dev.number, gid.index()) {
            sockets::address_removed(address.net);
        }
    }

    fn alloc_ucontext(_dev: &Device<Self>) -> impl PinInit<Ucontext, Error> {
        Ucontext::new()
    }

    fn mmap(ucontext: &ib::object::Ucontext<Self>, vma: &VmaNew, offset: u64) -> Result {
        ucontext.mmap(vma, offset)
    }

    fn alloc_pd(
        _dev: &Device<Self>,
        ucontext: Option<&ib::object::Ucontext<Self>>,
    ) -> impl PinInit<Domain, Error> {
        Domain::new(ucontext.map(|ucontext| ucontext.owner.clone()))
    }

    fn create_ah(
        _dev: &Device<Self>,
        pd: &Pd<Self>,
        path: Path,
        flags: Flags,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Ah> {
        Ah::new(pd, path, flags, udata)
    }

    fn modify_ah(ah: &Ah, path: Path) -> Result {
        ah.modify(path)
    }

    fn query_ah(ah: &Ah) -> Option<Path> {
        ah.query()
    }

    fn reg_user_mr(pd: &Pd<Self>, range: UserRange, access: Access) -> Result<Region> {
        Region::user(pd, range, access)
    }

    fn get_dma_mr(pd: &Pd<Self>, memory: DmaMemory, access: Access) -> Result<Region> {
        Region::dma(pd, memory, access)
    }

    fn alloc_mr(pd: &Pd<Self>, max_pages: u32) -> Result<Region> {
        Region::fast(pd, max_pages)
    }

    fn map_mr_sg(mr: &Region, list: SgList<'_>) -> Result<i32> {
        mr.map(list)
    }

    fn mr_keys(mr: &Region) -> Keys {
        mr.keys()
    }

    fn rereg_user_mr(mr: &mut Region, change: Change<'_, Self>) -> Result {
        mr.change(change)
    }

    fn advise_mr(pd: &Pd<Self>, advice: Advice, flush: bool, sges: Sges<'_>) -> Result {
        mr::prefetch(pd.id(), advice, flush, sges)
    }

    fn dereg_mr(mr: &Region, end: End) -> Result {
        match end {
            End::Wanted => mr.close(),
            End::Aborted => {
                mr.abort();
                Ok(())
            }
        }
    }

    fn alloc_mw(pd: &Pd<Self>, ty: MwType) -> Result<Window> {
        Window::new(pd, ty)
    }

    fn mw_rkey(mw: &Window) -> u32 {
        mw.rkey()
    }

    fn create_cq(
        _dev: &Device<Self>,
        init: &mut CqInit<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<impl PinInit<Cq, Error>> {
        Cq::new(init, udata)
    }

    fn publish_cq(cq: &Owned<ib::cq::Cq<Self>>) {
        Cq::publish(cq);
    }

    fn destroy_cq(cq: &Owned<ib::cq::Cq<Self>>) {
        cq.hide();
    }

    fn resize_cq(
        cq: &Owned<ib::cq::Cq<Self>>,
        cqe: u32,
        ucontext: &ib::object::Ucontext<Self>,
        udata: &mut Udata<'_>,
    ) -> Result<u32> {
        cq.resize(cqe, ucontext, udata)
    }

    fn poll_cq(cq: &Owned<ib::cq::Cq<Self>>, out: &mut WcArray<'_>) {
        cq.poll(out);
    }

    fn arm_cq(cq: &Owned<ib::cq::Cq<Self>>, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    fn create_qp(
        _dev: &Device<Self>,
        init: &mut QpInit<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<impl PinInit<Qp, Error>> {
        Qp::new(init, udata)
    }

    fn publish_qp(qp: &Owned<ib::qp::Qp<Self>>) -> u32 {
        qp::publish(qp)
    }

    fn destroy_qp(qp: &Owned<ib::qp::Qp<Self>>) {
        qp::destroy(qp);
    }

    fn modify_qp(
        qp: &Owned<ib::qp::Qp<Self>>,
        attr: &QpAttr<'_>,
        mask: u32,
        path: Option<PathAttr>,
    ) -> Result {
        qp::modify::modify(qp, attr, mask, path)
    }

    fn query_qp(
        qp: &Owned<ib::qp::Qp<Self>>,
        mask: u32,
        attr: &mut QpAttrOut<'_>,
        cap: &mut QpCap,
        signal_all: &mut bool,
    ) -> Option<Path> {
        qp::modify::query(qp, AttrMask::from_bits(mask), attr, cap, signal_all)
    }

    fn attach_mcast(qp: &Owned<ib::qp::Qp<Self>>, gid: [u8; 16]) -> Result {
        mcast::attach(qp, gid)
    }

    fn detach_mcast(qp: &Owned<ib::qp::Qp<Self>>, gid: [u8; 16]) -> Result {
        mcast::detach(qp, gid)
    }

    fn post_send(qp: &Owned<ib::qp::Qp<Self>>, list: &mut SendList<'_, Self>) -> Result {
        qp::post_send(qp, list)
    }

    fn post_recv(qp: &Owned<ib::qp::Qp<Self>>, list: &mut RecvList<'_>) -> Result {
        qp::post_recv(qp, list)
    }

    fn create_srq(
        _dev: &Device<Self>,
        init: &mut SrqInit<'_, Self>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<impl PinInit<Srq, Error>> {
        Srq::new(init, udata)
    }

    fn publish_srq(srq: &Owned<ib::srq::Srq<Self>>) {
        Srq::publish(srq);
    }

    fn destroy_srq(srq: &Owned<ib::srq::Srq<Self>>) {
        srq.hide();
    }

    fn modify_srq(
        srq: &Owned<ib::srq::Srq<Self>>,
        change: &SrqChange,
        ucontext: Option<&ib::object::Ucontext<Self>>,
        udata: Option<&mut Udata<'_>>,
    ) -> Result {
        srq.modify(change, ucontext.map(|ucontext| &**ucontext), udata)
    }

    fn query_srq(srq: &Owned<ib::srq::Srq<Self>>) -> SrqAttr {
        srq.query()
    }

    fn post_srq_recv(srq: &Owned<ib::srq::Srq<Self>>, list: &mut RecvList<'_>) -> Result {
        srq.post(list)
    }

    fn fill_res_qp_entry(qp: &Owned<ib::qp::Qp<Self>>, out: &mut ResourceEntry<'_>) {
        qp::snapshot::describe(qp, out);
    }

    fn fill_res_cq_entry(cq: &Owned<ib::cq::Cq<Self>>, out: &mut ResourceEntry<'_>) {
        cq.describe(out);
    }

    fn fill_res_srq_entry(srq: &Owned<ib::srq::Srq<Self>>, out: &mut ResourceEntry<'_>) {
        srq.describe(out);
    }

    fn fill_res_mr_entry(lkey: u32, out: &mut ResourceEntry<'_>) {
        mr::describe(lkey, out);
    }
}
