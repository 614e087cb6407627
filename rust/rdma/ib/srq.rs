// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{
    object::{
        errno,
        posted,
        Kind,
        Object,
        Pd, //
    },
    udata::Udata,
    wr::RecvList,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

impl<D: Driver> Kind<D> for bindings::ib_srq {
    type Data = D::Srq;
}

/// A shared receive queue.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{srq::Srq, Driver};
/// /// Called in process context without a lock, after a request was taken.
/// fn taken<D: Driver>(srq: &Srq<D>, left: u32, limit: u32) {
///     if left < limit {
///         srq.notify_limit();
///     }
/// }
/// ```
pub type Srq<D> = Object<bindings::ib_srq, D>;

impl<D: Driver> Srq<D> {
    /// Raises the limit event at the consumer. Process context, no lock held.
    pub fn notify_limit(&self) {
        let raw = self.as_raw();
        // SAFETY: `raw` is valid by the type invariant; the core sets the handler and its context
        // before `create_srq`.
        unsafe {
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.device = (*raw).device;
            event.event = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED;
            *event.element.srq.as_mut() = raw;
            if let Some(handler) = (*raw).event_handler {
                handler(&mut event, (*raw).srq_context);
            }
        }
    }
}

/// Attributes of a shared receive queue.
///
/// # Examples
///
/// ```
/// use rdma::ib::srq::SrqAttr;
///
/// let attr = SrqAttr {
///     max_wr: 1024,
///     max_sge: 4,
///     limit: 0,
/// };
/// ```
#[derive(Clone, Copy, Default)]
pub struct SrqAttr {
    /// Requests that it can hold.
    pub max_wr: u32,
    /// Scatter entries of a request.
    pub max_sge: u32,
    /// The limit event is raised when fewer requests than this are left; zero for none.
    pub limit: u32,
}

impl SrqAttr {
    fn to_raw(self, attr: &mut bindings::ib_srq_attr) {
        attr.max_wr = self.max_wr;
        attr.max_sge = self.max_sge;
        attr.srq_limit = self.limit;
    }
}

/// The attributes of a shared receive queue to create.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{srq::SrqInit, Driver};
/// const MAX_WR: u32 = 16384;
///
/// /// Grants a power of two.
/// fn grant<D: Driver>(init: &mut SrqInit<'_, D>) -> Result {
///     if init.attr.max_wr > MAX_WR {
///         return Err(EINVAL);
///     }
///     init.attr.max_wr = init.attr.max_wr.next_power_of_two();
///     Ok(())
/// }
/// ```
pub struct SrqInit<'a, D: Driver> {
    /// The requested capacities; the driver writes those granted. The limit is not used.
    pub attr: SrqAttr,
    /// The protection domain.
    pub pd: &'a Pd<D>,
}

/// The changes of a modify.
///
/// # Examples
///
/// ```
/// # use rdma::ib::srq::{SrqAttr, SrqChange};
/// fn modify(attr: &mut SrqAttr, change: &SrqChange) {
///     attr.max_wr = change.max_wr.unwrap_or(attr.max_wr);
///     attr.limit = change.limit.unwrap_or(attr.limit);
/// }
/// ```
#[derive(Clone, Copy)]
pub struct SrqChange {
    /// The requests that the queue must hold.
    pub max_wr: Option<u32>,
    /// The limit, zero for none.
    pub limit: Option<u32>,
}

/// Implements `ib_device_ops.create_srq`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_srq` bytes.
pub(super) unsafe extern "C" fn create_srq<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    let create = || {
        // SAFETY: The core sets the protection domain before the call, for queues of every type;
        // `attr` is valid.
        let (pd, attr) = unsafe { (Pd::<D>::from_raw((*raw).pd), &mut *attr) };
        if attr.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: The argument of the core's callback.
        let mut udata = unsafe { Udata::from_raw(udata) };
        let mut init = SrqInit {
            attr: SrqAttr {
                max_wr: attr.attr.max_wr,
                max_sge: attr.attr.max_sge,
                limit: 0,
            },
            pd,
        };
        let data = D::create_srq(&mut init, udata.as_mut())?;
        // SAFETY: `raw` is valid until `destroy_srq` returns.
        let owned = unsafe { Srq::<D>::new(raw, data) }?;
        init.attr.to_raw(&mut attr.attr);
        D::publish_srq(&owned);
        // SAFETY: The core's allocation, which has room for it.
        unsafe { Srq::<D>::store(raw, owned) };
        Ok(())
    };
    errno(create())
}

/// Implements `ib_device_ops.destroy_srq`. May sleep. No queue pair uses the queue any more.
///
/// # Safety
///
/// Only for the core, with a queue that [`create_srq`] constructed.
pub(super) unsafe extern "C" fn destroy_srq<D: Driver>(
    raw: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The queue was constructed; this is the last call with it.
    unsafe { Srq::<D>::destroy(raw, D::destroy_srq) }
}

/// Implements `ib_device_ops.modify_srq`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue and valid attributes.
pub(super) unsafe extern "C" fn modify_srq<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    const MAX_WR: u32 = bindings::ib_srq_attr_mask::IB_SRQ_MAX_WR.0;
    const LIMIT: u32 = bindings::ib_srq_attr_mask::IB_SRQ_LIMIT.0;

    let modify = || {
        // SAFETY: The queue was constructed, and `attr` is valid.
        let (srq, attr) = unsafe { (Srq::<D>::owned(raw), &*attr) };
        if mask.0 & !(MAX_WR | LIMIT) != 0 {
            return Err(EINVAL);
        }
        let change = SrqChange {
            max_wr: (mask.0 & MAX_WR != 0).then_some(attr.max_wr),
            limit: (mask.0 & LIMIT != 0).then_some(attr.srq_limit),
        };
        // SAFETY: The argument of the core's callback.
        let mut udata = unsafe { Udata::from_raw(udata) };
        D::modify_srq(srq, &change, udata.as_mut())
    };
    errno(modify())
}

/// Implements `ib_device_ops.query_srq`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue and attributes valid for write.
pub(super) unsafe extern "C" fn query_srq<D: Driver>(
    raw: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> ffi::c_int {
    // The core passes memory that is not initialised, so write it before there is a reference to
    // it.
    // SAFETY: The queue was constructed, and `attr` is valid for write.
    let (srq, attr) = unsafe {
        attr.write(pin_init::zeroed());
        (Srq::<D>::owned(raw), &mut *attr)
    };
    D::query_srq(srq).to_raw(attr);
    0
}

/// Implements `ib_device_ops.post_srq_recv`. Called in any context.
///
/// # Safety
///
/// Only for the core, with a constructed queue and a chain of requests.
pub(super) unsafe extern "C" fn post_srq_recv<D: Driver>(
    raw: *mut bindings::ib_srq,
    wr: *const bindings::ib_recv_wr,
    bad_wr: *mut *const bindings::ib_recv_wr,
) -> ffi::c_int {
    // SAFETY: The queue was constructed.
    let srq = unsafe { Srq::<D>::owned(raw) };
    // SAFETY: The chain is valid for the call.
    let mut list = unsafe { RecvList::new(wr) };
    let result = D::post_srq_recv(srq, &mut list);
    // SAFETY: `bad_wr` is valid for write.
    unsafe { posted(result, list.current(), bad_wr) }
}
