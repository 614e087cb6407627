// SPDX-License-Identifier: GPL-2.0

//! The trait of a driver.

use super::{
    cap::PortProtocol,
    counter::CounterDesc,
    cq::{
        Cq,
        WcArray, //
    },
    device::{
        DeviceAttr,
        PortAttr, //
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
    object::{
        Pd,
        Ucontext, //
    },
    qp::{
        Qp,
        QpAttr,
        QpCap,
        QpInit, //
    },
    resource::ResourceEntry,
    srq::{
        Srq,
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
    Device, //
};
use crate::{
    bindings,
    net::NetDevice,
    sync::Owned, //
};
use kernel::{
    alloc::Flags,
    build_error,
    error::VTABLE_DEFAULT_ERROR,
    mm::virt::VmaNew,
    prelude::*, //
};

/// An RDMA device driver. The implementing type is the driver's part of each device.
///
/// Unless noted, a method is called in process context and may sleep, and methods for the same
/// object may run at the same time.
///
/// A method with a default is optional: the core's table of operations has the verb only if the
/// driver has the method, and users of a missing verb get `EOPNOTSUPP`. A driver has all methods of
/// a kind of object or none. If it has none, the type of that object is never used. The exception
/// is [`add_gid`](Self::add_gid) and [`del_gid`](Self::del_gid), which do nothing by default: the
/// core keeps a table of GIDs only for a device with both callbacks.
///
/// # Examples
///
/// A device that has protection domains, and nothing else:
///
/// ```
/// # use core::convert::Infallible;
/// # use kernel::prelude::*;
/// use rdma::ib::{
///     cap::PortProtocol,
///     device::{
///         DeviceAttr,
///         PortAttr, //
///     },
///     driver::DriverId,
///     udata::Udata,
///     Device,
///     Driver, //
/// };
///
/// # struct LocalModule;
/// # impl kernel::ModuleMetadata for LocalModule {
/// #     const NAME: &'static CStr = c"my_driver";
/// #     // SAFETY: A null pointer stands for code that is built in.
/// #     const THIS_MODULE: ThisModule = unsafe { ThisModule::from_ptr(core::ptr::null_mut()) };
/// # }
/// struct MyDriver;
///
/// #[vtable]
/// impl Driver for MyDriver {
///     const DRIVER_ID: DriverId = DriverId::Private(1);
///     const UVERBS_ABI_VERSION: u32 = 1;
///     const PORT: PortProtocol = PortProtocol::RawPacket;
///
///     type Ucontext = ();
///     type Pd = ();
///     type Ah = Infallible;
///     type Mr = Infallible;
///     type Mw = Infallible;
///     type Cq = Infallible;
///     type Qp = Infallible;
///     type Srq = Infallible;
///     type Counter = Infallible;
///
///     fn query_device(_dev: &Device<Self>, attr: &mut DeviceAttr) {
///         attr.set_max_pd(16);
///     }
///
///     fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result {
///         let netdev = dev.netdev().ok_or(ENODEV)?;
///         attr.set_state_of(&netdev).set_mtu(1024, 1024);
///         Ok(())
///     }
///
///     fn alloc_ucontext(_dev: &Device<Self>) -> impl PinInit<(), Error> {
///         Ok(())
///     }
///
///     fn alloc_pd(_dev: &Device<Self>, _: Option<&Udata<'_, Self>>) -> impl PinInit<(), Error> {
///         Ok(())
///     }
/// }
/// # fn main() {}
/// ```
#[vtable]
pub trait Driver: Sized + Send + Sync + 'static {
    /// The number by which provider libraries find their devices.
    const DRIVER_ID: DriverId;
    /// The version of the provider's ABI.
    const UVERBS_ABI_VERSION: u32;
    /// Verbs of the write interface that are not in the core's default mask.
    const UVERBS_CMDS: &'static [UverbsCmd] = &[];
    /// The protocol of the port.
    const PORT: PortProtocol;
    /// The counters of the port.
    const COUNTERS: &'static [CounterDesc] = &[];

    /// Kept for each user context.
    type Ucontext: Send + Sync;
    /// Kept for each protection domain.
    type Pd: Send + Sync;
    /// Kept for each address handle. Its drop must not sleep.
    type Ah: Send + Sync;
    /// Kept for each memory region. Dropping it may sleep; afterwards nothing uses the memory any
    /// more.
    type Mr: Send + Sync;
    /// Kept for each memory window. Its drop may sleep.
    type Mw: Send + Sync;
    /// Kept for each completion queue.
    type Cq: Send + Sync;
    /// Kept for each queue pair.
    type Qp: Send + Sync;
    /// Kept for each shared receive queue.
    type Srq: Send + Sync;
    /// Kept for each counter that queue pairs are bound to.
    type Counter: Send + Sync;

    /// Reads the state of the net device. From now on, its events find the device. Optional.
    ///
    /// Called when the core enables the device: when it is registered, and after the core has moved
    /// it to another namespace. While a device is disabled, [`Device::by_netdev`] does not find it,
    /// so a notifier has missed the events of the net device.
    ///
    /// The core holds `devices_rwsem` for reading, and adds the device to its clients afterwards.
    /// The method may take RTNL, and may call [`Device::unregister_queued`].
    fn enable_driver(_dev: &Device<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Fills in the attributes of the device.
    fn query_device(dev: &Device<Self>, attr: &mut DeviceAttr);

    /// Fills in the state of the port.
    ///
    /// # Errors
    ///
    /// `ENODEV` if its net device is gone.
    fn query_port(dev: &Device<Self>, attr: &mut PortAttr<'_>) -> Result;

    /// Looks for a change of the state of the net device, and dispatches the event of the port.
    /// Called with RTNL held, after the net device or its carrier went up or down. Optional.
    ///
    /// If there is no such method, the core dispatches the events. It does so, and calls this, only
    /// for a net device that is neither a bond or team nor a part of one. For the others, a driver
    /// has a notifier (`NetdevHandler`).
    fn report_port_event(_dev: &Device<Self>, _netdev: &NetDevice) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the value of entry `index` of [`COUNTERS`](Self::COUNTERS) for the port.
    fn read_counter(_dev: &Device<Self>, _index: usize) -> u64 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a counter that queue pairs can be bound to. A driver implements
    /// all four methods for such counters, or none.
    fn new_counter(_dev: &Device<Self>) -> Result<Self::Counter> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a queue pair count in a counter instead of the port; the core adds up both.
    fn bind_counter(_counter: &Self::Counter, _qp: &Owned<Qp<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a queue pair count in the port again.
    fn unbind_counter(_qp: &Owned<Qp<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the value of entry `index` of [`COUNTERS`](Self::COUNTERS) in a bound counter.
    fn read_bound_counter(_counter: &Self::Counter, _index: usize) -> u64 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Answers a management datagram that the port received, or one of the core itself; returns
    /// whether there is a response in `response`, which is zero before. Other datagrams go to the
    /// agents that are registered for them. Optional.
    fn process_mad(_dev: &Device<Self>, _request: &Mad, _response: &mut Mad) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds a GID: the core keeps the table, and a driver may copy the part that its data path
    /// needs. The mutex of the GID table is held.
    fn add_gid(_dev: &Device<Self>, _gid: &GidChange<'_>) -> Result {
        Ok(())
    }

    /// Removes a GID. The mutex of the GID table is held.
    fn del_gid(_dev: &Device<Self>, _gid: &GidChange<'_>) {}

    /// Creates the driver's part of a user context.
    fn alloc_ucontext(dev: &Device<Self>) -> impl PinInit<Self::Ucontext, Error>;

    /// Maps the memory that the driver has announced at `offset`, in pages, into a process.
    fn mmap(_ucontext: &Ucontext<Self>, _vma: &VmaNew, _offset: u64) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a protection domain. `udata` is `None` for a kernel consumer,
    /// as for the other objects.
    fn alloc_pd(
        dev: &Device<Self>,
        udata: Option<&Udata<'_, Self>>,
    ) -> impl PinInit<Self::Pd, Error>;

    /// Creates the driver's part of an address handle, whose source GID has the entry `gid`. Sleeps
    /// only if `flags` allow it.
    fn create_ah(
        _pd: &Pd<Self>,
        _path: Path,
        _gid: &GidAttr,
        _flags: Flags,
        _udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<Self::Ah> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes the path of an address handle. Must not sleep.
    fn modify_ah(_ah: &Self::Ah, _path: Path, _gid: &GidAttr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the path of an address handle.
    fn query_ah(_ah: &Self::Ah) -> Option<Path> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a region of a process' memory.
    fn reg_user_mr(_pd: &Pd<Self>, _range: UserRange, _access: Access) -> Result<Self::Mr> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of the region of the kernel's memory.
    fn get_dma_mr(_pd: &Pd<Self>, _memory: DmaMemory, _access: Access) -> Result<Self::Mr> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the key of a new region, which is its L_Key and its R_Key.
    fn mr_key(_mr: &Self::Mr) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a region that a kernel consumer maps memory to, up to
    /// `max_pages` pages.
    fn alloc_mr(_pd: &Pd<Self>, _max_pages: u32) -> Result<Self::Mr> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Maps memory to a region of [`alloc_mr`](Self::alloc_mr), for the request that registers it.
    /// Returns how many entries of the list were mapped. Called in any context.
    fn map_mr_sg(_mr: &Self::Mr, _list: SgList<'_>) -> Result<i32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a region of a process' memory, whose keys stay. All or nothing.
    ///
    /// # Errors
    ///
    /// `EBUSY` if memory windows are bound to it.
    fn rereg_user_mr(_mr: &mut Self::Mr, _change: Change<'_, Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Fetches memory on demand as a process advises; the list names parts of regions. If `flush`,
    /// the advice is followed before this returns.
    fn advise_mr(_pd: &Pd<Self>, _how: Fetch, _flush: bool, _sges: Sges<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Prepares the deregistration of a region, which is dropped if this succeeds.
    ///
    /// If the keys could not be returned to the process, the region is dropped without this call.
    ///
    /// # Errors
    ///
    /// `EBUSY` if memory windows are bound to it.
    fn dereg_mr(_mr: &Self::Mr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a memory window.
    fn alloc_mw(_pd: &Pd<Self>, _ty: MwType) -> Result<Self::Mw> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the key of a memory window that is not bound yet.
    fn mw_rkey(_mw: &Self::Mw) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a completion queue for `cqe` completions; stores the
    /// granted size in `cqe`.
    fn create_cq(
        _dev: &Device<Self>,
        _cqe: &mut u32,
        _udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Self::Cq, Error>> {
        Err::<Result<Self::Cq>, _>(EOPNOTSUPP)
    }

    /// Makes a completion queue visible to lookups by number.
    fn publish_cq(_cq: &Owned<Cq<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Stops the calls of the completion handler: it neither runs nor will run once this returns.
    ///
    /// The core calls this for completion queues that it polls itself, before it cancels its work
    /// item, which the handler queues. [`destroy_cq`](Self::destroy_cq) is called later. A driver
    /// that calls the handler only from a verb of the consumer or from the lock of a queue pair
    /// does not need it. May sleep.
    fn stop_cq(_cq: &Owned<Cq<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Hides a completion queue from lookups by number.
    fn destroy_cq(_cq: &Owned<Cq<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Resizes the completion queue of a user process; returns the size granted.
    fn resize_cq(_cq: &Owned<Cq<Self>>, _cqe: u32, _udata: &mut Udata<'_, Self>) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Takes completions out of the queue of a kernel consumer. Called in any context.
    fn poll_cq(_cq: &Owned<Cq<Self>>, _out: &mut WcArray<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Arms the handler for the next completion, or the next solicited one. Returns `true` if there
    /// are completions already. Called in any context.
    fn arm_cq(_cq: &Owned<Cq<Self>>, _solicited_only: bool) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a queue pair; writes the capacities granted into `init`.
    fn create_qp(
        _init: &mut QpInit<'_, Self>,
        _udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Self::Qp, Error>> {
        Err::<Result<Self::Qp>, _>(EOPNOTSUPP)
    }

    /// Makes a queue pair visible to the data path and returns its number.
    fn publish_qp(_qp: &Owned<Qp<Self>>) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Hides a queue pair from the data path.
    fn destroy_qp(_qp: &Owned<Qp<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes attributes of a queue pair. `path` is set, with the entry of the source GID, if the
    /// mask contains the address vector, and it is one for RoCE.
    fn modify_qp(
        _qp: &Owned<Qp<Self>>,
        _attr: &QpAttr<'_>,
        _mask: QpAttrMask,
        _path: Option<(Path, GidAttr)>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Fills in the attributes of a queue pair and returns its path.
    ///
    /// `mask` selects attributes. It is empty for the core's netlink interface, which shows some of
    /// them to any user.
    fn query_qp(
        _qp: &Owned<Qp<Self>>,
        _mask: QpAttrMask,
        _attr: &mut QpAttr<'_>,
        _cap: &mut QpCap,
        _signal_all: &mut bool,
    ) -> Option<Path> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts send requests of a kernel consumer, or rings the doorbell of a process. A process that
    /// passes requests in the command makes the list not empty: refuse it. Called in any context.
    fn post_send(_qp: &Owned<Qp<Self>>, _list: &mut SendList<'_, Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a datagram queue pair a member of a multicast group. Optional.
    ///
    /// The core has checked the type of the queue pair, and destroys none that is a member.
    fn attach_mcast(_qp: &Owned<Qp<Self>>, _gid: [u8; 16]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends the membership of a queue pair in a multicast group.
    fn detach_mcast(_qp: &Owned<Qp<Self>>, _gid: [u8; 16]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts receive requests of a kernel consumer. Called in any context.
    fn post_recv(_qp: &Owned<Qp<Self>>, _list: &mut RecvList<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Creates the driver's part of a shared receive queue; writes the capacities granted into
    /// `init`. A driver has all methods of shared receive queues or none.
    fn create_srq(
        _init: &mut SrqInit<'_, Self>,
        _udata: Option<&mut Udata<'_, Self>>,
    ) -> Result<impl PinInit<Self::Srq, Error>> {
        Err::<Result<Self::Srq>, _>(EOPNOTSUPP)
    }

    /// Makes a shared receive queue visible to lookups by number.
    fn publish_srq(_srq: &Owned<Srq<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Hides a shared receive queue from lookups by number.
    fn destroy_srq(_srq: &Owned<Srq<Self>>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes attributes of a shared receive queue, all or none.
    fn modify_srq(
        _srq: &Owned<Srq<Self>>,
        _change: &SrqChange,
        _udata: Option<&mut Udata<'_, Self>>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the attributes of a shared receive queue.
    fn query_srq(_srq: &Owned<Srq<Self>>) -> SrqAttr {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts receive requests of a kernel consumer. Called in any context.
    fn post_srq_recv(_srq: &Owned<Srq<Self>>, _list: &mut RecvList<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds the driver's attributes of a queue pair. Any user may trigger this call, so it adds no
    /// keys. Only if [`Device::is_admin`] returns true may it add values that help to forge a
    /// packet.
    ///
    /// [`Device::is_admin`]: super::Device::is_admin
    fn fill_res_qp_entry(_qp: &Owned<Qp<Self>>, _out: &mut ResourceEntry<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds the driver's details of a completion queue, as for a queue pair.
    fn fill_res_cq_entry(_cq: &Owned<Cq<Self>>, _out: &mut ResourceEntry<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds the driver's details of a shared receive queue, as for a queue pair.
    fn fill_res_srq_entry(_srq: &Owned<Srq<Self>>, _out: &mut ResourceEntry<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds the driver's attributes of the region with a local key, as for a queue pair; none if
    /// the region is being changed.
    fn fill_res_mr_entry(_lkey: u32, _out: &mut ResourceEntry<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// `enum rdma_driver_id`: the driver of a device, by which the core and provider libraries find it.
///
/// # Examples
///
/// ```
/// use rdma::ib::driver::DriverId;
///
/// const DRIVER_ID: DriverId = DriverId::Rxe;
/// ```
#[derive(Clone, Copy)]
pub enum DriverId {
    /// librxe.
    Rxe,
    /// A number that the driver chose: it has no provider library, so `ibv_devices` does not show
    /// its devices.
    ///
    /// There is no `RDMA_DRIVER_UNKNOWN`, because `ib_device_get_by_netdev()` takes it as any
    /// driver. No other driver may have the same number: [`Devices`](super::device::Devices) would
    /// unregister its devices, too.
    Private(u16),
}

impl DriverId {
    /// Returns the number that the core compares. Private ones are above all of
    /// `enum rdma_driver_id`.
    pub(super) const fn raw(self) -> u32 {
        match self {
            Self::Rxe => bindings::rdma_driver_id_RDMA_DRIVER_RXE,
            // CAST: Lossless.
            Self::Private(id) => 0x8000_0000 | id as u32,
        }
    }
}

/// `enum ib_uverbs_write_cmds`: the write commands that a driver may add to the default ones.
///
/// # Examples
///
/// ```
/// use rdma::ib::driver::UverbsCmd;
///
/// const UVERBS_CMDS: &[UverbsCmd] = &[UverbsCmd::PostSend, UverbsCmd::ReqNotifyCq];
/// ```
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum UverbsCmd {
    /// Rings a doorbell.
    PostSend = bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND,
    /// Arms a completion queue.
    ReqNotifyCq = bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
}
