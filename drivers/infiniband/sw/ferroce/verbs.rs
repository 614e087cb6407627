// SPDX-License-Identifier: GPL-2.0

//! Verbs: the callbacks of the RDMA core, each forwarded to the module of its object.

use crate::{
    ah::Ah,
    counters::{
        self,
        Counters, //
    },
    cq::Cq,
    device::{
        Ferroce,
        IbCq,
        IbQp,
        IbSrq, //
    },
    gids::{
        self,
        Address,
        Link, //
    },
    limits,
    mcast,
    mr::{
        self,
        window::Window,
        Region, //
    },
    pd::Domain,
    port,
    qp::{
        self,
        Qp, //
    },
    sockets,
    srq::Srq,
    ucontext::Ucontext, //
};
use kernel::{
    alloc::Flags,
    mm::virt::VmaNew,
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::{
        self,
        cap::PortProtocol,
        counter::CounterDesc,
        cq::WcArray,
        device::{
            DeviceAttr,
            PortAttr, //
        },
        driver::{
            DriverId,
            UverbsCmd, //
        },
        enums::QpAttrMask,
        gid::{
            GidAttr,
            GidChange,
            Path, //
        },
        mad::Mad,
        mr::{
            Change,
            SgList,
            UserRange, //
        },
        mw::MwType,
        object::Pd,
        qp::{
            QpAttr,
            QpCap,
            QpInit, //
        },
        resource::ResourceEntry,
        srq::{
            SrqAttr,
            SrqChange,
            SrqInit, //
        },
        udata::Udata,
        umem::{
            DmaMemory,
            Fetch, //
        },
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
        Namespace,
        NetDevice, //
    },
    sync::Owned, //
};
use roce::{
    qp::AttrMask,
    uapi::ABI_VERSION, //
};

#[vtable]
impl Driver for Ferroce {
    const DRIVER_ID: DriverId = DriverId::Rxe;
    const UVERBS_ABI_VERSION: u32 = ABI_VERSION;
    const UVERBS_CMDS: &'static [UverbsCmd] = &[UverbsCmd::PostSend, UverbsCmd::ReqNotifyCq];
    const PORT: PortProtocol = PortProtocol::RoceV2;

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

    fn enable_driver(dev: &Device<Self>) {
        port::enable(dev);
    }

    fn query_device(dev: &Device<Self>, attr: &mut DeviceAttr) {
        limits::fill_attr(dev.guid, attr);
    }

    fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result {
        port::query(dev, attr)
    }

    fn report_port_event(dev: &Device<Self>, netdev: &NetDevice) {
        port::report(dev, netdev);
    }

    fn read_counter(dev: &Device<Self>, index: usize) -> u64 {
        counters::of_port(&dev.counters, index)
    }

    fn new_counter(dev: &Device<Self>) -> Result<Arc<Counters>> {
        Counters::new(Some(dev.bound_counters.clone()))
    }

    fn bind_counter(counter: &Arc<Counters>, qp: &Owned<IbQp>) {
        qp.count_in(counter);
    }

    fn unbind_counter(qp: &Owned<IbQp>) {
        qp.count_in(&qp.device().counters);
    }

    fn read_bound_counter(counter: &Arc<Counters>, index: usize) -> u64 {
        counter.get(index)
    }

    fn process_mad(dev: &Device<Self>, request: &Mad, response: &mut Mad) -> bool {
        port::process_mad(dev, request, response)
    }

    fn add_gid(dev: &Device<Self>, gid: &GidChange<'_>) -> Result {
        let Some(netdev) = gid.netdev() else {
            return Ok(());
        };
        // `None` if the namespace is being dismantled, which removes the address, too.
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
        // The net device may be in another namespace by now: use the namespace that was counted.
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
        udata: Option<&Udata<'_, Self>>,
    ) -> impl PinInit<Domain, Error> {
        Domain::new(udata)
    }

    fn create_ah(
        pd: &Pd<Self>,
        path: Path,
        gid: &GidAttr,
        flags: Flags,
        udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<Ah> {
        Ah::new(pd, path, gid, flags, udata)
    }

    fn modify_ah(ah: &Ah, path: Path, gid: &GidAttr) -> Result {
        ah.modify(path, gid)
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

    fn mr_key(mr: &Region) -> u32 {
        mr.key()
    }

    fn rereg_user_mr(mr: &mut Region, change: Change<'_, Self>) -> Result {
        mr.change(change)
    }

    fn advise_mr(pd: &Pd<Self>, how: Fetch, flush: bool, sges: Sges<'_>) -> Result {
        mr::prefetch(pd.id(), how, flush, sges)
    }

    fn dereg_mr(mr: &Region) -> Result {
        mr.close()
    }

    fn alloc_mw(pd: &Pd<Self>, ty: MwType) -> Result<Window> {
        Window::new(pd, ty)
    }

    fn mw_rkey(mw: &Window) -> u32 {
        mw.rkey()
    }

    fn create_cq(
        _dev: &Device<Self>,
        cqe: &mut u32,
        udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Cq, Error>> {
        Cq::new(cqe, udata)
    }

    fn publish_cq(cq: &Owned<IbCq>) {
        cq.number.publish(cq);
    }

    fn stop_cq(cq: &Owned<IbCq>) {
        cq.stop();
    }

    fn destroy_cq(cq: &Owned<IbCq>) {
        cq.number.hide();
    }

    fn resize_cq(cq: &Owned<IbCq>, cqe: u32, udata: &mut Udata<'_, Self>) -> Result<u32> {
        cq.resize(cqe, udata)
    }

    fn poll_cq(cq: &Owned<IbCq>, out: &mut WcArray<'_>) {
        cq.poll(out);
    }

    fn arm_cq(cq: &Owned<IbCq>, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    fn create_qp(
        init: &mut QpInit<'_, Self>,
        udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Qp, Error>> {
        Qp::new(init, udata)
    }

    fn publish_qp(qp: &Owned<IbQp>) -> u32 {
        qp::publish(qp)
    }

    fn destroy_qp(qp: &Owned<IbQp>) {
        qp::destroy(qp);
    }

    fn modify_qp(
        qp: &Owned<IbQp>,
        attr: &QpAttr<'_>,
        mask: QpAttrMask,
        path: Option<(Path, GidAttr)>,
    ) -> Result {
        qp::modify::modify(qp, attr, AttrMask::from_bits(mask.raw()), path)
    }

    fn query_qp(
        qp: &Owned<IbQp>,
        mask: QpAttrMask,
        attr: &mut QpAttr<'_>,
        cap: &mut QpCap,
        signal_all: &mut bool,
    ) -> Option<Path> {
        qp::modify::query(qp, AttrMask::from_bits(mask.raw()), attr, cap, signal_all)
    }

    fn attach_mcast(qp: &Owned<IbQp>, gid: [u8; 16]) -> Result {
        mcast::attach(qp, gid)
    }

    fn detach_mcast(qp: &Owned<IbQp>, gid: [u8; 16]) -> Result {
        mcast::detach(qp, gid)
    }

    fn post_send(qp: &Owned<IbQp>, list: &mut SendList<'_, Self>) -> Result {
        qp::post_send(qp, list)
    }

    fn post_recv(qp: &Owned<IbQp>, list: &mut RecvList<'_>) -> Result {
        qp::post_recv(qp, list)
    }

    fn create_srq(
        init: &mut SrqInit<'_, Self>,
        udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Srq, Error>> {
        Srq::new(init, udata)
    }

    fn publish_srq(srq: &Owned<IbSrq>) {
        srq.number.publish(srq);
    }

    fn destroy_srq(srq: &Owned<IbSrq>) {
        srq.number.hide();
    }

    fn modify_srq(
        srq: &Owned<IbSrq>,
        change: &SrqChange,
        udata: Option<&mut Udata<'_, Self>>,
    ) -> Result {
        srq.modify(change, udata)
    }

    fn query_srq(srq: &Owned<IbSrq>) -> SrqAttr {
        srq.query()
    }

    fn post_srq_recv(srq: &Owned<IbSrq>, list: &mut RecvList<'_>) -> Result {
        srq.post(list)
    }

    fn fill_res_qp_entry(qp: &Owned<IbQp>, out: &mut ResourceEntry<'_>) {
        qp::snapshot::fill_res(qp, out);
    }

    fn fill_res_cq_entry(cq: &Owned<IbCq>, out: &mut ResourceEntry<'_>) {
        cq.fill_res(out);
    }

    fn fill_res_srq_entry(srq: &Owned<IbSrq>, out: &mut ResourceEntry<'_>) {
        srq.fill_res(out);
    }

    fn fill_res_mr_entry(lkey: u32, out: &mut ResourceEntry<'_>) {
        mr::fill_res(lkey, out);
    }
}
