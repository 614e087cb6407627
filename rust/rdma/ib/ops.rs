// SPDX-License-Identifier: GPL-2.0

//! The table of operations of a driver, and the callbacks of devices and ports.

use super::{
    ah,
    counter,
    cq,
    details,
    device::{
        Device,
        DeviceAttr,
        PortAttr, //
    },
    gid,
    mad,
    mcast,
    mr,
    mw,
    object::{
        self,
        alloc_size,
        errno, //
    },
    qp,
    srq,
    stats,
    udata::Udata,
    Driver, //
};
use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    ffi,
    module::this_module,
    prelude::*, //
};

/// Adapter from [`Driver`] to the C table.
pub(super) struct VTable<D: Driver>(PhantomData<D>);

impl<D: Driver> VTable<D> {
    /// The table.
    pub(super) const VTABLE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: this_module::<D::OwnerModule>().as_ptr(),
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::UVERBS_ABI_VERSION,

        query_device: Some(query_device::<D>),
        query_port: Some(query_port::<D>),
        query_pkey: Some(query_pkey),
        get_port_immutable: Some(get_port_immutable),
        get_link_layer: Some(get_link_layer),
        dealloc_driver: Some(dealloc_driver::<D>),
        alloc_hw_port_stats: Some(stats::alloc_hw_port_stats::<D>),
        get_hw_stats: Some(stats::get_hw_stats::<D>),
        process_mad: if D::HAS_PROCESS_MAD {
            Some(mad::process_mad::<D>)
        } else {
            None
        },
        add_gid: Some(gid::add_gid::<D>),
        del_gid: Some(gid::del_gid::<D>),

        alloc_ucontext: Some(object::alloc_ucontext::<D>),
        dealloc_ucontext: Some(object::dealloc_ucontext::<D>),
        disassociate_ucontext: Some(object::disassociate_ucontext),
        mmap: Some(object::mmap::<D>),
        alloc_pd: Some(object::alloc_pd::<D>),
        dealloc_pd: Some(object::dealloc_pd::<D>),

        create_ah: Some(ah::create_ah::<D>),
        create_user_ah: Some(ah::create_ah::<D>),
        modify_ah: Some(ah::modify_ah::<D>),
        query_ah: Some(ah::query_ah::<D>),
        destroy_ah: Some(ah::destroy_ah::<D>),

        reg_user_mr: Some(mr::reg_user_mr::<D>),
        get_dma_mr: Some(mr::get_dma_mr::<D>),
        rereg_user_mr: Some(mr::rereg_user_mr::<D>),
        dereg_mr: Some(mr::dereg_mr::<D>),
        advise_mr: Some(mr::advise_mr::<D>),

        alloc_mr: if D::HAS_ALLOC_MR {
            Some(mr::alloc_mr::<D>)
        } else {
            None
        },
        map_mr_sg: if D::HAS_MAP_MR_SG {
            Some(mr::map_mr_sg::<D>)
        } else {
            None
        },

        alloc_mw: if D::HAS_ALLOC_MW {
            Some(mw::alloc_mw::<D>)
        } else {
            None
        },
        dealloc_mw: if D::HAS_ALLOC_MW {
            Some(mw::dealloc_mw::<D>)
        } else {
            None
        },

        counter_init: if D::HAS_NEW_COUNTER {
            Some(counter::init::<D>)
        } else {
            None
        },
        counter_alloc_stats: if D::HAS_NEW_COUNTER {
            Some(counter::alloc_stats::<D>)
        } else {
            None
        },
        counter_bind_qp: if D::HAS_BIND_COUNTER {
            Some(counter::bind_qp::<D>)
        } else {
            None
        },
        counter_unbind_qp: if D::HAS_UNBIND_COUNTER {
            Some(counter::unbind_qp::<D>)
        } else {
            None
        },
        counter_update_stats: if D::HAS_READ_BOUND_COUNTER {
            Some(counter::update_stats::<D>)
        } else {
            None
        },
        counter_dealloc: if D::HAS_NEW_COUNTER {
            Some(counter::dealloc::<D>)
        } else {
            None
        },

        create_cq: Some(cq::create_cq::<D>),
        destroy_cq: Some(cq::destroy_cq::<D>),
        poll_cq: Some(cq::poll_cq::<D>),
        req_notify_cq: Some(cq::req_notify_cq::<D>),
        resize_user_cq: if D::HAS_RESIZE_CQ {
            Some(cq::resize_user_cq::<D>)
        } else {
            None
        },

        create_srq: if D::HAS_CREATE_SRQ {
            Some(srq::create_srq::<D>)
        } else {
            None
        },
        destroy_srq: if D::HAS_DESTROY_SRQ {
            Some(srq::destroy_srq::<D>)
        } else {
            None
        },
        modify_srq: if D::HAS_MODIFY_SRQ {
            Some(srq::modify_srq::<D>)
        } else {
            None
        },
        query_srq: if D::HAS_QUERY_SRQ {
            Some(srq::query_srq::<D>)
        } else {
            None
        },
        post_srq_recv: if D::HAS_POST_SRQ_RECV {
            Some(srq::post_srq_recv::<D>)
        } else {
            None
        },

        create_qp: Some(qp::create_qp::<D>),
        modify_qp: Some(qp::modify_qp::<D>),
        query_qp: Some(qp::query_qp::<D>),
        destroy_qp: Some(qp::destroy_qp::<D>),
        post_send: Some(qp::post_send::<D>),
        post_recv: Some(qp::post_recv::<D>),
        attach_mcast: if D::HAS_ATTACH_MCAST {
            Some(mcast::attach_mcast::<D>)
        } else {
            None
        },
        detach_mcast: if D::HAS_DETACH_MCAST {
            Some(mcast::detach_mcast::<D>)
        } else {
            None
        },

        fill_res_qp_entry: if D::HAS_DESCRIBE_QP {
            Some(details::fill_res_qp::<D>)
        } else {
            None
        },
        fill_res_cq_entry: if D::HAS_DESCRIBE_CQ {
            Some(details::fill_res_cq::<D>)
        } else {
            None
        },
        fill_res_srq_entry: if D::HAS_DESCRIBE_SRQ {
            Some(details::fill_res_srq::<D>)
        } else {
            None
        },
        fill_res_mr_entry: if D::HAS_DESCRIBE_MR {
            Some(details::fill_res_mr::<D>)
        } else {
            None
        },

        size_ib_ah: alloc_size::<ah::Ah<D>>(),
        size_ib_cq: cq::Cq::<D>::SIZE,
        size_ib_mw: alloc_size::<mw::MwObject<D>>(),
        size_ib_pd: alloc_size::<object::Pd<D>>(),
        size_ib_qp: qp::Qp::<D>::SIZE,
        size_ib_srq: srq::Srq::<D>::SIZE,
        size_ib_ucontext: alloc_size::<object::Ucontext<D>>(),
        size_rdma_counter: alloc_size::<counter::QpCounter<D>>(),
        ..pin_init::zeroed()
    };
}

/// The only port.
pub(super) const PORT: u32 = 1;

/// The default P_Key, of a full member.
const DEFAULT_PKEY: u16 = 0xffff;

/// `ib_device_ops.query_device`: may sleep.
///
/// # Safety
///
/// Only for the core, with a live device and attributes valid for write.
unsafe extern "C" fn query_device<D: Driver>(
    raw: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The argument of the core's callback.
    if let Err(e) = object::no_udata(unsafe { Udata::from_raw(udata) }) {
        return e.to_errno();
    }
    let mut out = DeviceAttr(pin_init::zeroed());
    // SAFETY: The device is alive, and `attr` is valid for write.
    unsafe {
        D::query_device(Device::from_raw(raw), &mut out);
        *attr = out.0;
    }
    0
}

/// `ib_device_ops.query_port`: may sleep.
///
/// # Safety
///
/// Only for the core, with a live device and zeroed attributes.
unsafe extern "C" fn query_port<D: Driver>(
    raw: *mut bindings::ib_device,
    port: u32,
    attr: *mut bindings::ib_port_attr,
) -> ffi::c_int {
    if port != PORT {
        return EINVAL.to_errno();
    }
    // SAFETY: The device is alive, and `attr` is valid.
    let (dev, attr) = unsafe { (Device::<D>::from_raw(raw), &mut *attr) };
    errno(D::query_port(dev, &mut PortAttr(attr)))
}

/// `ib_device_ops.query_pkey`.
///
/// # Safety
///
/// Only for the core, with `pkey` valid for write.
unsafe extern "C" fn query_pkey(
    _raw: *mut bindings::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> ffi::c_int {
    if index != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: `pkey` is valid for write.
    unsafe { *pkey = DEFAULT_PKEY };
    0
}

/// `ib_device_ops.get_port_immutable`: while the device is being registered; may sleep.
///
/// # Safety
///
/// Only for the core.
unsafe extern "C" fn get_port_immutable(
    raw: *mut bindings::ib_device,
    port: u32,
    immutable: *mut bindings::ib_port_immutable,
) -> ffi::c_int {
    let mut attr: bindings::ib_port_attr = pin_init::zeroed();
    // SAFETY: The device is alive, and `attr` is valid for write.
    let ret = unsafe { bindings::ib_query_port(raw, port, &mut attr) };
    if ret != 0 {
        return ret;
    }
    // SAFETY: `immutable` is valid for write.
    unsafe {
        (*immutable).core_cap_flags = bindings::RUST_CONST_HELPER_CORE_PORT_ROCE_UDP_ENCAP;
        (*immutable).pkey_tbl_len = i32::from(attr.pkey_tbl_len);
        (*immutable).gid_tbl_len = attr.gid_tbl_len;
        (*immutable).max_mad_size = bindings::RUST_CONST_HELPER_IB_MGMT_MAD_SIZE;
    }
    0
}

/// `ib_device_ops.get_link_layer`.
///
/// # Safety
///
/// None.
unsafe extern "C" fn get_link_layer(
    _raw: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer::IB_LINK_LAYER_ETHERNET
}

/// `ib_device_ops.dealloc_driver`: the last call for a device; may sleep.
///
/// # Safety
///
/// Only for the core, with a device whose driver's part was constructed.
pub(super) unsafe extern "C" fn dealloc_driver<D: Driver>(raw: *mut bindings::ib_device) {
    // SAFETY: The part was constructed, and nothing uses it any more.
    unsafe { core::ptr::drop_in_place(Device::<D>::data_ptr(raw)) };
}
