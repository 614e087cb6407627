// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{
    enums::{
        NetworkType,
        WcFlags,
        WcOpcode,
        WcStatus, //
    },
    object::{
        errno,
        Kind,
        Object, //
    },
    ops::PORT,
    qp::QpHandle,
    udata::Udata,
    Device,
    Driver, //
};
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    ffi,
    prelude::*, //
};

impl<D: Driver> Kind<D> for bindings::ib_cq {
    type Data = D::Cq;
}

/// A completion queue.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{cq::Cq, Driver};
/// /// Called after completions were added.
/// fn complete<D: Driver>(cq: &Cq<D>, is_armed: bool) {
///     if is_armed {
///         cq.notify();
///     }
/// }
/// ```
pub type Cq<D> = Object<bindings::ib_cq, D>;

impl<D: Driver> Cq<D> {
    /// Calls the consumer's completion handler, which must not sleep if bottom halves are off.
    /// Softirq or process context.
    ///
    /// The caller holds no lock that the consumer may take through poll, arm or post. Calls for the
    /// queue of a kernel consumer must not overlap, and must not be made by a verb of the consumer,
    /// nor after [`stop_cq`](Driver::stop_cq): the core cancels the work that a call may queue, and
    /// frees the queue later.
    pub fn notify(&self) {
        let raw = self.as_raw();
        // SAFETY: `raw` is valid by the type invariant; the core sets the handler and its context
        // before anything can be added to the queue.
        unsafe {
            if let Some(handler) = (*raw).comp_handler {
                handler(raw, (*raw).cq_context);
            }
        }
    }

    /// Raises a CQ error at the consumer. Process context.
    pub fn notify_error(&self) {
        let raw = self.as_raw();
        // SAFETY: `raw` is valid by the type invariant; the core sets the handler and its context
        // before anything can be added to the queue.
        unsafe {
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.device = (*raw).device;
            event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
            *event.element.cq.as_mut() = raw;
            if let Some(handler) = (*raw).event_handler {
                handler(&mut event, (*raw).cq_context);
            }
        }
    }
}

/// A work completion for a kernel consumer.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{cq::Wc, enums::{NetworkType, WcFlags, WcOpcode, WcStatus}, qp::Qp, Driver};
/// /// Returns the completion of a SEND that has succeeded.
/// fn sent<D: Driver>(qp: &Qp<D>, wr_id: u64) -> Wc {
///     Wc {
///         wr_id,
///         status: WcStatus::SUCCESS,
///         opcode: WcOpcode::SEND,
///         byte_len: 0,
///         ex: [0; 4],
///         flags: WcFlags::NONE,
///         src_qp: 0,
///         qp: qp.handle(),
///         network_hdr_type: NetworkType::IPV4,
///         vlan: None,
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Wc {
    /// The consumer's cookie.
    pub wr_id: u64,
    /// The status. On error, only this, `wr_id` and `qp` are defined.
    pub status: WcStatus,
    /// The operation.
    pub opcode: WcOpcode,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data as it was on the wire, or the invalidated key in host order.
    pub ex: [u8; 4],
    /// The flags, except those of a VLAN and of the network header.
    pub flags: WcFlags,
    /// The sender's queue pair, for datagrams.
    pub src_qp: u32,
    /// The queue pair that completes.
    pub qp: QpHandle,
    /// The network header of a received datagram.
    pub network_hdr_type: NetworkType,
    /// The VLAN of a received datagram. For queue pair 1 it must be that of the GID to which the
    /// datagram was sent ([`GidAttr::vlan_id`]), because the connection manager looks that up.
    ///
    /// [`GidAttr::vlan_id`]: crate::ib::gid::GidAttr::vlan_id
    pub vlan: Option<u16>,
}

/// The array that a poll fills.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::cq::{Wc, WcArray};
/// fn poll(pending: &mut KVec<Wc>, out: &mut WcArray<'_>) {
///     while !out.is_full() {
///         let Some(wc) = pending.pop() else {
///             return;
///         };
///         out.push(&wc);
///     }
/// }
/// ```
pub struct WcArray<'a> {
    out: *mut bindings::ib_wc,
    room: usize,
    count: usize,
    _p: PhantomData<&'a mut bindings::ib_wc>,
}

impl WcArray<'_> {
    /// Returns `true` if no further completion fits.
    pub fn is_full(&self) -> bool {
        self.count >= self.room
    }

    /// Adds a completion; does nothing if the array is full.
    pub fn push(&mut self, wc: &Wc) {
        if self.is_full() {
            return;
        }
        // SAFETY: `count` is below `room`, so this is an element of the caller's array, which is
        // initialised before there is a reference to it.
        let out = unsafe {
            let out = self.out.add(self.count);
            out.write(pin_init::zeroed());
            &mut *out
        };
        // SAFETY: Both members of each union are of the same size.
        unsafe {
            *out.__bindgen_anon_1.wr_id.as_mut() = wc.wr_id;
            *out.ex.imm_data.as_mut() = u32::from_ne_bytes(wc.ex);
        }
        out.status = wc.status.raw();
        out.opcode = wc.opcode.raw();
        out.byte_len = wc.byte_len;
        out.src_qp = wc.src_qp;
        out.qp = wc.qp.as_raw();
        // CAST: The numbers fit the field.
        out.network_hdr_type = wc.network_hdr_type.raw() as u8;
        let mut flags = wc.flags;
        // The core and other consumers use the type of the header only with this flag.
        if flags.contains(WcFlags::GRH) {
            flags = flags.or(WcFlags::WITH_NETWORK_HDR_TYPE);
        }
        if let Some(vlan) = wc.vlan {
            flags = flags.or(WcFlags::WITH_VLAN);
            out.vlan_id = vlan;
        }
        // CAST: Flags, which are signed in C.
        out.wc_flags = flags.raw() as ffi::c_int;
        out.port_num = PORT;
        self.count = self.count.saturating_add(1);
    }
}

/// Implements `ib_device_ops.create_cq`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_cq` bytes.
pub(super) unsafe extern "C" fn create_cq<D: Driver>(
    raw: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> ffi::c_int {
    let create = || {
        // SAFETY: The core sets the device before the call; `attr` is valid.
        let (dev, attr) = unsafe { (Device::<D>::from_raw((*raw).device), &*attr) };
        if attr.flags != 0 {
            return Err(EOPNOTSUPP);
        }
        let mut udata = if attrs.is_null() {
            None
        } else {
            // SAFETY: The bundle is valid for the call; `driver_udata` is one of its fields.
            unsafe { Udata::from_raw(&raw mut (*attrs).__bindgen_anon_1.hdr.driver_udata) }
        };
        let mut cqe = attr.cqe;
        let data = D::create_cq(dev, &mut cqe, udata.as_mut())?;
        // SAFETY: `raw` is valid until `destroy_cq` returns.
        let owned = unsafe { Cq::<D>::new(raw, data) }?;
        D::publish_cq(&owned);
        // SAFETY: The core's allocation, which has room for it.
        // CAST: Bounded by the limit of the device.
        unsafe {
            (*raw).cqe = cqe as ffi::c_int;
            Cq::<D>::store(raw, owned);
        }
        Ok(())
    };
    errno(create())
}

/// Implements `ib_device_ops.pre_destroy_cq`. May sleep. No queue pair uses the queue any more.
///
/// # Safety
///
/// Only for the core, with a queue that [`create_cq`] constructed.
pub(super) unsafe extern "C" fn pre_destroy_cq<D: Driver>(raw: *mut bindings::ib_cq) -> ffi::c_int {
    // SAFETY: The queue was constructed.
    D::stop_cq(unsafe { Cq::<D>::owned(raw) });
    0
}

/// Implements `ib_device_ops.destroy_cq`. May sleep. No queue pair uses the queue any more.
///
/// # Safety
///
/// Only for the core, with a queue that [`create_cq`] constructed.
pub(super) unsafe extern "C" fn destroy_cq<D: Driver>(
    raw: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The queue was constructed; this is the last call with it.
    unsafe { Cq::<D>::destroy(raw, D::destroy_cq) }
}

/// Implements `ib_device_ops.resize_user_cq`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue of a user process.
pub(super) unsafe extern "C" fn resize_user_cq<D: Driver>(
    raw: *mut bindings::ib_cq,
    cqe: ffi::c_uint,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let resize = || {
        // SAFETY: The argument of the core's callback.
        let mut udata = unsafe { Udata::from_raw(udata) }.ok_or(EINVAL)?;
        // SAFETY: The queue was constructed.
        let cqe = D::resize_cq(unsafe { Cq::<D>::owned(raw) }, cqe, &mut udata)?;
        // SAFETY: The queue is valid. The core reads the size for the response to the process,
        // which may resize a queue concurrently and then gets either size.
        // CAST: Bounded by the limit of the device.
        unsafe { (&raw mut (*raw).cqe).write_volatile(cqe as ffi::c_int) };
        Ok(())
    };
    errno(resize())
}

/// Implements `ib_device_ops.poll_cq`. Called in any context.
///
/// # Safety
///
/// Only for the core, with a constructed queue and room for `num` completions.
pub(super) unsafe extern "C" fn poll_cq<D: Driver>(
    raw: *mut bindings::ib_cq,
    num: ffi::c_int,
    wc: *mut bindings::ib_wc,
) -> ffi::c_int {
    let mut array = WcArray {
        out: wc,
        room: usize::try_from(num).unwrap_or(0),
        count: 0,
        _p: PhantomData,
    };
    // SAFETY: The queue was constructed.
    D::poll_cq(unsafe { Cq::<D>::owned(raw) }, &mut array);
    // CAST: `count` is at most `num`.
    array.count as ffi::c_int
}

/// Implements `ib_device_ops.req_notify_cq`. Called in any context.
///
/// # Safety
///
/// Only for the core, with a constructed queue.
pub(super) unsafe extern "C" fn req_notify_cq<D: Driver>(
    raw: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> ffi::c_int {
    let solicited_only = flags.0 & bindings::ib_cq_notify_flags::IB_CQ_SOLICITED_MASK.0
        == bindings::ib_cq_notify_flags::IB_CQ_SOLICITED.0;
    // SAFETY: The queue was constructed.
    let missed = D::arm_cq(unsafe { Cq::<D>::owned(raw) }, solicited_only);
    let report = flags.0 & bindings::ib_cq_notify_flags::IB_CQ_REPORT_MISSED_EVENTS.0 != 0;
    ffi::c_int::from(missed && report)
}
