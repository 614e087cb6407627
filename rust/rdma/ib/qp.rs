// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use super::{
    cq::Cq,
    enums::{
        QpAttrMask,
        QpCreateFlags,
        QpState,
        QpType, //
    },
    gid::Path,
    object::{
        errno,
        posted,
        Kind,
        Object,
        Pd, //
    },
    srq::Srq,
    udata::Udata,
    wr::{
        RecvList,
        SendList, //
    },
    Device,
    Driver, //
};
use crate::{
    bindings,
    sync::Ref, //
};
use kernel::{
    ffi,
    prelude::*, //
};

pub use super::qp_attr::QpAttr;

/// Returns whether the RDMA core accepts a modification of these attributes:
/// `ib_modify_qp_is_ok()`.
///
/// A state, type or attribute that the core does not know is not accepted. Callable in any context.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{enums::{QpAttrMask, QpState, QpType}, qp::modify_qp_is_ok};
/// const STATE: QpAttrMask = QpAttrMask::STATE;
///
/// // A queue pair does not skip INIT and RTR.
/// assert!(!modify_qp_is_ok(QpState::RESET, QpState::RTS, QpType::RC, STATE));
/// assert!(modify_qp_is_ok(QpState::RTS, QpState::RESET, QpType::RC, STATE));
/// ```
pub fn modify_qp_is_ok(from: QpState, to: QpState, ty: QpType, mask: QpAttrMask) -> bool {
    let (from, to, ty) = (from.raw(), to.raw(), ty.raw());
    let last = QpState::ERR.raw();
    if from > last || to > last || ty >= bindings::ib_qp_type_IB_QPT_MAX {
        return false;
    }
    // SAFETY: The function only reads a constant table, and the first three arguments are within
    // its bounds. The mask can be anything.
    unsafe { bindings::ib_modify_qp_is_ok(from, to, ty, mask.raw()) }
}

impl<D: Driver> Kind<D> for bindings::ib_qp {
    type Data = D::Qp;
}

/// A queue pair.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{qp::{Qp, QpEvent}, Driver};
/// /// Called in process context without a lock.
/// fn fail<D: Driver>(qp: &Qp<D>) {
///     qp.notify_event(QpEvent::Fatal);
/// }
/// ```
pub type Qp<D> = Object<bindings::ib_qp, D>;

/// The identity of a queue pair in a completion for a kernel consumer. Never dereferenced here.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{cq::Wc, qp::Qp, Driver};
/// fn is_of<D: Driver>(wc: &Wc, qp: &Qp<D>) -> bool {
///     wc.qp == qp.handle()
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QpHandle(*mut bindings::ib_qp);

// SAFETY: The pointer is not dereferenced.
unsafe impl Send for QpHandle {}
// SAFETY: The pointer is not dereferenced.
unsafe impl Sync for QpHandle {}

impl QpHandle {
    /// Returns the pointer for a `struct ib_wc`.
    pub(super) fn as_raw(self) -> *mut bindings::ib_qp {
        self.0
    }
}

/// An asynchronous event of a queue pair.
///
/// # Examples
///
/// ```
/// use rdma::ib::qp::QpEvent;
///
/// /// Returns whether an event says that the queue pair can no longer be used.
/// fn is_fatal(event: QpEvent) -> bool {
///     matches!(
///         event,
///         QpEvent::Fatal | QpEvent::RequestError | QpEvent::AccessError
///     )
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum QpEvent {
    /// The queue pair is in ERR, for a reason that no completion shows.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// A peer sent a request that is not valid.
    RequestError = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// A peer requested memory that it may not access.
    AccessError = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first packet arrived in RTR.
    CommEst = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue has drained.
    SqDrained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// The queue pair is in ERR and takes nothing more from its shared receive queue.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

impl QpEvent {
    /// All events.
    pub const ALL: [Self; 6] = [
        Self::Fatal,
        Self::RequestError,
        Self::AccessError,
        Self::CommEst,
        Self::SqDrained,
        Self::LastWqeReached,
    ];

    /// Returns the bit of the event in a mask of events.
    #[inline]
    pub const fn bit(self) -> u32 {
        // CAST: The number of the event, which is at most 16.
        1 << self as u32
    }
}

impl<D: Driver> Qp<D> {
    /// Returns the device.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The core sets the device, which outlives its objects.
        unsafe { Device::from_raw((*self.as_raw()).device) }
    }

    /// Returns the identity of the queue pair for completions.
    pub fn handle(&self) -> QpHandle {
        QpHandle(self.as_raw())
    }

    /// Raises an event at the consumer. Process context, no lock held.
    pub fn notify_event(&self, event: QpEvent) {
        let raw = self.as_raw();
        // SAFETY: `raw` is valid by the type invariant; the core sets the handler and its context
        // before `create_qp`.
        unsafe {
            let mut ev: bindings::ib_event = pin_init::zeroed();
            ev.device = (*raw).device;
            // CAST: The enum has the numbers of `enum ib_event_type`.
            ev.event = event as u32;
            *ev.element.qp.as_mut() = raw;
            if let Some(handler) = (*raw).event_handler {
                handler(&mut ev, (*raw).qp_context);
            }
        }
    }
}

/// Capacities of a queue pair.
///
/// # Examples
///
/// ```
/// use rdma::ib::qp::QpCap;
///
/// let cap = QpCap {
///     max_send_wr: 128,
///     max_send_sge: 4,
///     ..QpCap::default()
/// };
/// ```
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receive work requests.
    pub max_recv_wr: u32,
    /// Gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl QpCap {
    fn from_raw(cap: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }

    fn to_raw(self, cap: &mut bindings::ib_qp_cap) {
        cap.max_send_wr = self.max_send_wr;
        cap.max_recv_wr = self.max_recv_wr;
        cap.max_send_sge = self.max_send_sge;
        cap.max_recv_sge = self.max_recv_sge;
        cap.max_inline_data = self.max_inline_data;
    }
}

/// The attributes of a queue pair to create.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{enums::{QpCreateFlags, QpType}, qp::QpInit, Driver};
/// /// Refuses unsupported attributes, and grants the others.
/// fn grant<D: Driver>(init: &mut QpInit<'_, D>) -> Result {
///     if init.qp_type != QpType::RC || init.create_flags != QpCreateFlags::NONE {
///         return Err(EOPNOTSUPP);
///     }
///     init.cap.max_inline_data = 0;
///     Ok(())
/// }
/// ```
pub struct QpInit<'a, D: Driver> {
    /// The service type.
    pub qp_type: QpType,
    /// The requested features.
    pub create_flags: QpCreateFlags,
    /// The completion queue of sends.
    pub send_cq: Ref<Cq<D>>,
    /// The completion queue of receives.
    pub recv_cq: Ref<Cq<D>>,
    /// The shared receive queue, unless the queue pair has a receive queue of its own.
    pub srq: Option<Ref<Srq<D>>>,
    /// The requested capacities; the driver writes those granted.
    pub cap: QpCap,
    /// True if every send completes, signalled or not.
    pub signal_all: bool,
    /// The port of a special queue pair.
    pub port_num: u32,
    /// The protection domain.
    pub pd: &'a Pd<D>,
    /// The identity of the queue pair for completions.
    pub handle: QpHandle,
}

/// Implements `ib_device_ops.create_qp`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_qp` bytes.
pub(super) unsafe extern "C" fn create_qp<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let create = || {
        // SAFETY: The core sets the protection domain, if there is one, before the call; `attr` is
        // valid.
        let (pd, attr) = unsafe { ((*raw).pd, &mut *attr) };
        // Each is null for some types, none of which is supported: an XRC target has none of the
        // three; an XRC initiator, or a queue pair with an indirection table, has no CQ for
        // receives. The core refuses targets, too, as long as there is no `alloc_xrcd`, but do not
        // rely on that.
        // SAFETY: The queues are of the same device, and the core keeps them for the call.
        let (send_cq, recv_cq) = unsafe { (Cq::get(attr.send_cq), Cq::get(attr.recv_cq)) };
        let (false, Some(send_cq), Some(recv_cq)) = (pd.is_null(), send_cq, recv_cq) else {
            return Err(EOPNOTSUPP);
        };
        // SAFETY: The domain is not null, and the core keeps it for the call.
        let pd = unsafe { Pd::<D>::from_raw(pd) };
        // SAFETY: The argument of the core's callback.
        let mut udata = unsafe { Udata::from_raw(udata) };
        let mut init = QpInit {
            qp_type: QpType::from_raw(attr.qp_type),
            create_flags: QpCreateFlags::from_raw(attr.create_flags),
            send_cq,
            recv_cq,
            // SAFETY: As for the completion queues.
            srq: unsafe { Srq::get(attr.srq) },
            cap: QpCap::from_raw(&attr.cap),
            signal_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            port_num: attr.port_num,
            pd,
            handle: QpHandle(raw),
        };
        let data = D::create_qp(&mut init, udata.as_mut())?;
        // SAFETY: `raw` is valid until `destroy_qp` returns.
        let owned = unsafe { Qp::<D>::new(raw, data) }?;
        init.cap.to_raw(&mut attr.cap);
        let number = D::publish_qp(&owned);
        // SAFETY: The core's allocation, which has room for it.
        unsafe {
            (*raw).qp_num = number;
            Qp::<D>::store(raw, owned);
        }
        Ok(())
    };
    errno(create())
}

/// Implements `ib_device_ops.destroy_qp`. May sleep.
///
/// # Safety
///
/// Only for the core, with a queue pair that [`create_qp`] constructed.
pub(super) unsafe extern "C" fn destroy_qp<D: Driver>(
    raw: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed; this is the last call with it.
    unsafe { Qp::<D>::destroy(raw, D::destroy_qp) }
}

/// Implements `ib_device_ops.modify_qp`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and valid attributes.
pub(super) unsafe extern "C" fn modify_qp<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: ffi::c_int,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed, and `attr` is valid and the caller's.
    let (qp, attr) = unsafe { (Qp::<D>::owned(raw), &mut *attr) };
    // CAST: A mask of flags.
    let mask = QpAttrMask::from_raw(mask as u32);
    let path = if mask.contains(QpAttrMask::AV) {
        // SAFETY: The core references the GID entry of the address vector for the call.
        unsafe { Path::from_raw(&attr.ah_attr) }
    } else {
        None
    };
    errno(D::modify_qp(qp, &QpAttr(attr), mask, path))
}

/// Implements `ib_device_ops.query_qp`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and attributes valid for write.
pub(super) unsafe extern "C" fn query_qp<D: Driver>(
    raw: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: ffi::c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> ffi::c_int {
    // The core passes memory that is not initialised, so write it before there is a reference to
    // it. Zero all of it, because the core also copies fields that are not set to the process.
    // SAFETY: The queue pair was constructed, and both are valid for write.
    let (qp, attr, init) = unsafe {
        attr.write(pin_init::zeroed());
        init.write(pin_init::zeroed());
        (Qp::<D>::owned(raw), &mut *attr, &mut *init)
    };
    let mut cap = QpCap::default();
    let mut signal_all = false;
    // CAST: A mask of flags.
    let mask = QpAttrMask::from_raw(mask as u32);
    let path = D::query_qp(qp, mask, &mut QpAttr(attr), &mut cap, &mut signal_all);
    if let Some(path) = path {
        path.to_raw(&mut attr.ah_attr);
    }
    cap.to_raw(&mut attr.cap);
    cap.to_raw(&mut init.cap);
    init.sq_sig_type = if signal_all {
        bindings::ib_sig_type_IB_SIGNAL_ALL_WR
    } else {
        bindings::ib_sig_type_IB_SIGNAL_REQ_WR
    };
    // SAFETY: The core's part of a queue pair does not change after creation.
    unsafe {
        init.qp_type = (*raw).qp_type;
        init.send_cq = (*raw).send_cq;
        init.recv_cq = (*raw).recv_cq;
        init.srq = (*raw).srq;
        init.qp_context = (*raw).qp_context;
        // The core has put its own handler into `event_handler`.
        init.event_handler = (*raw).registered_event_handler;
    }
    0
}

/// Implements `ib_device_ops.post_send`. Called in any context.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and a chain of requests.
pub(super) unsafe extern "C" fn post_send<D: Driver>(
    raw: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad_wr: *mut *const bindings::ib_send_wr,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed.
    let qp = unsafe { Qp::<D>::owned(raw) };
    // SAFETY: The core's part of a queue pair does not change after creation.
    let qp_type = unsafe { (*raw).qp_type };
    let datagram =
        qp_type == bindings::ib_qp_type_IB_QPT_UD || qp_type == bindings::ib_qp_type_IB_QPT_GSI;
    // SAFETY: The chain is valid for the call.
    let mut list = unsafe { SendList::<D>::new(wr, datagram) };
    let result = D::post_send(qp, &mut list);
    // SAFETY: `bad_wr` is valid for write.
    unsafe { posted(result, list.current(), bad_wr) }
}

/// Implements `ib_device_ops.post_recv`. Called in any context.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and a chain of requests.
pub(super) unsafe extern "C" fn post_recv<D: Driver>(
    raw: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    bad_wr: *mut *const bindings::ib_recv_wr,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed.
    let qp = unsafe { Qp::<D>::owned(raw) };
    // SAFETY: The chain is valid for the call.
    let mut list = unsafe { RecvList::new(wr) };
    let result = D::post_recv(qp, &mut list);
    // SAFETY: `bad_wr` is valid for write.
    unsafe { posted(result, list.current(), bad_wr) }
}

/// Implements `ib_device_ops.attach_mcast`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair and a valid GID.
pub(super) unsafe extern "C" fn attach_mcast<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed, and a GID is plain bytes.
    let (qp, gid) = unsafe { (Qp::<D>::owned(raw), *(*gid).raw.as_ref()) };
    errno(D::attach_mcast(qp, gid))
}

/// Implements `ib_device_ops.detach_mcast`. May sleep.
///
/// # Safety
///
/// As for [`attach_mcast`].
pub(super) unsafe extern "C" fn detach_mcast<D: Driver>(
    raw: *mut bindings::ib_qp,
    gid: *mut bindings::ib_gid,
    _lid: u16,
) -> ffi::c_int {
    // SAFETY: The queue pair was constructed, and a GID is plain bytes.
    let (qp, gid) = unsafe { (Qp::<D>::owned(raw), *(*gid).raw.as_ref()) };
    errno(D::detach_mcast(qp, gid))
}
