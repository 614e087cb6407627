// SPDX-License-Identifier: GPL-2.0

//! The table of operations of a driver, and the callbacks of devices and ports.

use super::{
    ah,
    counter,
    cq,
    device::{
        Device,
        DeviceAttr,
        PortAttr, //
    },
    gid,
    mad,
    mr,
    mw,
    object::{
        self,
        alloc_size,
        errno, //
    },
    qp,
    resource,
    srq,
    sysfs,
    udata::Udata,
    Driver, //
};
use crate::{
    bindings,
    net::NetDevice, //
};
use core::marker::PhantomData;
use kernel::{
    ffi,
    module::this_module,
    prelude::*, //
};

/// The callback if the driver has the verb. The core refuses a verb without one.
macro_rules! optional {
    ($has:ident, $callback:expr) => {
        if D::$has {
            Some($callback)
        } else {
            None
        }
    };
}

/// Adapter from [`Driver`] to the C table.
pub(super) struct VTable<D: Driver>(PhantomData<D>);

impl<D: Driver> VTable<D> {
    /// The table.
    pub(super) const VTABLE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: this_module::<D::OwnerModule>().as_ptr(),
        driver_id: D::DRIVER_ID.raw(),
        uverbs_abi_ver: D::UVERBS_ABI_VERSION,
        device_group: sysfs::DEVICE_GROUP,

        query_device: Some(query_device::<D>),
        modify_device: Some(modify_device),
        query_port: Some(query_port::<D>),
        query_pkey: Some(query_pkey),
        get_port_immutable: Some(get_port_immutable::<D>),
        get_link_layer: Some(get_link_layer),
        enable_driver: optional!(HAS_ENABLE_DRIVER, enable_driver::<D>),
        dealloc_driver: Some(dealloc_driver::<D>),
        alloc_hw_port_stats: optional!(HAS_READ_COUNTER, counter::alloc_hw_port_stats::<D>),
        get_hw_stats: optional!(HAS_READ_COUNTER, counter::get_hw_stats::<D>),
        process_mad: optional!(HAS_PROCESS_MAD, mad::process_mad::<D>),
        report_port_event: optional!(HAS_REPORT_PORT_EVENT, report_port_event::<D>),
        add_gid: Some(gid::add_gid::<D>),
        del_gid: Some(gid::del_gid::<D>),

        alloc_ucontext: Some(object::alloc_ucontext::<D>),
        dealloc_ucontext: Some(object::dealloc_ucontext::<D>),
        disassociate_ucontext: Some(object::disassociate_ucontext),
        mmap: optional!(HAS_MMAP, object::mmap::<D>),
        alloc_pd: Some(object::alloc_pd::<D>),
        dealloc_pd: Some(object::dealloc_pd::<D>),

        create_ah: optional!(HAS_CREATE_AH, ah::create_ah::<D>),
        create_user_ah: optional!(HAS_CREATE_AH, ah::create_ah::<D>),
        modify_ah: optional!(HAS_MODIFY_AH, ah::modify_ah::<D>),
        query_ah: optional!(HAS_QUERY_AH, ah::query_ah::<D>),
        destroy_ah: optional!(HAS_CREATE_AH, ah::destroy_ah::<D>),

        reg_user_mr: optional!(HAS_REG_USER_MR, mr::reg_user_mr::<D>),
        get_dma_mr: optional!(HAS_GET_DMA_MR, mr::get_dma_mr::<D>),
        rereg_user_mr: optional!(HAS_REREG_USER_MR, mr::rereg_user_mr::<D>),
        dereg_mr: optional!(HAS_DEREG_MR, mr::dereg_mr::<D>),
        advise_mr: optional!(HAS_ADVISE_MR, mr::advise_mr::<D>),

        alloc_mr: optional!(HAS_ALLOC_MR, mr::alloc_mr::<D>),
        map_mr_sg: optional!(HAS_MAP_MR_SG, mr::map_mr_sg::<D>),

        alloc_mw: optional!(HAS_ALLOC_MW, mw::alloc_mw::<D>),
        dealloc_mw: optional!(HAS_ALLOC_MW, mw::dealloc_mw::<D>),

        counter_init: optional!(HAS_NEW_COUNTER, counter::init::<D>),
        counter_alloc_stats: optional!(HAS_NEW_COUNTER, counter::alloc_stats::<D>),
        counter_bind_qp: optional!(HAS_BIND_COUNTER, counter::bind_qp::<D>),
        counter_unbind_qp: optional!(HAS_UNBIND_COUNTER, counter::unbind_qp::<D>),
        counter_update_stats: optional!(HAS_READ_BOUND_COUNTER, counter::update_stats::<D>),
        counter_dealloc: optional!(HAS_NEW_COUNTER, counter::dealloc::<D>),

        create_cq: optional!(HAS_CREATE_CQ, cq::create_cq::<D>),
        pre_destroy_cq: optional!(HAS_STOP_CQ, cq::pre_destroy_cq::<D>),
        destroy_cq: optional!(HAS_DESTROY_CQ, cq::destroy_cq::<D>),
        poll_cq: optional!(HAS_POLL_CQ, cq::poll_cq::<D>),
        req_notify_cq: optional!(HAS_ARM_CQ, cq::req_notify_cq::<D>),
        resize_user_cq: optional!(HAS_RESIZE_CQ, cq::resize_user_cq::<D>),

        create_srq: optional!(HAS_CREATE_SRQ, srq::create_srq::<D>),
        destroy_srq: optional!(HAS_CREATE_SRQ, srq::destroy_srq::<D>),
        modify_srq: optional!(HAS_MODIFY_SRQ, srq::modify_srq::<D>),
        query_srq: optional!(HAS_QUERY_SRQ, srq::query_srq::<D>),
        post_srq_recv: optional!(HAS_CREATE_SRQ, srq::post_srq_recv::<D>),

        create_qp: optional!(HAS_CREATE_QP, qp::create_qp::<D>),
        modify_qp: optional!(HAS_MODIFY_QP, qp::modify_qp::<D>),
        query_qp: optional!(HAS_QUERY_QP, qp::query_qp::<D>),
        destroy_qp: optional!(HAS_DESTROY_QP, qp::destroy_qp::<D>),
        post_send: optional!(HAS_POST_SEND, qp::post_send::<D>),
        post_recv: optional!(HAS_POST_RECV, qp::post_recv::<D>),
        attach_mcast: optional!(HAS_ATTACH_MCAST, qp::attach_mcast::<D>),
        detach_mcast: optional!(HAS_DETACH_MCAST, qp::detach_mcast::<D>),

        fill_res_qp_entry: optional!(HAS_FILL_RES_QP_ENTRY, resource::fill_res_qp::<D>),
        fill_res_cq_entry: optional!(HAS_FILL_RES_CQ_ENTRY, resource::fill_res_cq::<D>),
        fill_res_srq_entry: optional!(HAS_FILL_RES_SRQ_ENTRY, resource::fill_res_srq::<D>),
        fill_res_mr_entry: optional!(HAS_FILL_RES_MR_ENTRY, resource::fill_res_mr::<D>),

        size_ib_ah: alloc_size::<ah::Ah<D>>(),
        size_ib_cq: cq::Cq::<D>::SIZE,
        size_ib_mw: alloc_size::<mw::Mw<D>>(),
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

/// Implements `ib_device_ops.query_device`. May sleep.
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
    let udata = unsafe { Udata::<D>::from_raw(udata) };
    // The response has no data of the driver.
    if udata.is_some_and(|udata| udata.in_len() != 0 || udata.out_len() != 0) {
        return EINVAL.to_errno();
    }
    let mut out = DeviceAttr(pin_init::zeroed());
    // SAFETY: The device is alive, and `attr` is valid for write.
    unsafe {
        D::query_device(Device::from_raw(raw), &mut out);
        *attr = out.0;
    }
    0
}

/// Implements `ib_device_ops.modify_device`, for the description only (`node_desc` in sysfs). May
/// sleep.
///
/// It does not call the driver: without a subnet manager, no peer needs to know.
///
/// # Safety
///
/// Only for the core, with a live device and attributes valid for read.
unsafe extern "C" fn modify_device(
    raw: *mut bindings::ib_device,
    mask: ffi::c_int,
    attr: *mut bindings::ib_device_modify,
) -> ffi::c_int {
    // CAST: A small constant.
    const NODE_DESC: ffi::c_int =
        bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC as ffi::c_int;

    if mask & !NODE_DESC != 0 {
        return EOPNOTSUPP.to_errno();
    }
    if mask == 0 {
        return 0;
    }
    // SAFETY: The device is alive, and only the address of its field is computed; `attr` is valid.
    let (to, desc) = unsafe { (&raw mut (*raw).node_desc, &(*attr).node_desc) };
    for (i, byte) in desc.iter().enumerate() {
        // SAFETY: `i` is an index of the array, which is valid as long as the device. The core
        // reads it, and calls this, under no lock, so each byte is written once, by a volatile
        // access like `WRITE_ONCE()`.
        unsafe { to.cast::<u8>().add(i).write_volatile(*byte) };
    }
    0
}

/// Implements `ib_device_ops.query_port`. May sleep.
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

/// Implements `ib_device_ops.query_pkey`.
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

/// Implements `ib_device_ops.get_port_immutable`. Called during registration. May sleep.
///
/// # Safety
///
/// Only for the core.
unsafe extern "C" fn get_port_immutable<D: Driver>(
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
        (*immutable).core_cap_flags = D::PORT.core_cap_flags();
        (*immutable).pkey_tbl_len = i32::from(attr.pkey_tbl_len);
        (*immutable).gid_tbl_len = attr.gid_tbl_len;
        (*immutable).max_mad_size = D::PORT.max_mad_size();
    }
    0
}

/// Implements `ib_device_ops.get_link_layer`.
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

impl<D: Driver> Device<D> {
    /// Tells the consumers that the port has become active (`IB_EVENT_PORT_ACTIVE`) or has gone
    /// down (`IB_EVENT_PORT_ERR`), later, from a work item of the core. Does nothing if the
    /// device is not registered. Callable in any context.
    pub fn dispatch_port_event(&self, active: bool) {
        let Some(device) = self.registered() else {
            return;
        };
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.device = device.as_raw();
        event.event = if active {
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE
        } else {
            bindings::ib_event_type_IB_EVENT_PORT_ERR
        };
        // SAFETY: The element is a number. The device is registered. The core copies the event, and
        // delivers it before it frees the device.
        unsafe {
            *event.element.port_num.as_mut() = PORT;
            bindings::ib_dispatch_event(&event);
        }
    }
}

/// Implements `ib_device_ops.report_port_event`. RTNL is held.
///
/// # Safety
///
/// Only for the core, with a live device and a live net device.
unsafe extern "C" fn report_port_event<D: Driver>(
    raw: *mut bindings::ib_device,
    netdev: *mut bindings::net_device,
    _event: ffi::c_ulong,
) {
    // SAFETY: Both are alive.
    let (dev, netdev) = unsafe { (Device::<D>::from_raw(raw), NetDevice::from_raw(netdev)) };
    D::report_port_event(dev, netdev);
}

/// Implements `ib_device_ops.enable_driver`. May sleep.
///
/// # Safety
///
/// Only for the core, with a device that has just been enabled.
unsafe extern "C" fn enable_driver<D: Driver>(raw: *mut bindings::ib_device) -> ffi::c_int {
    // SAFETY: The device is alive.
    D::enable_driver(unsafe { Device::from_raw(raw) });
    0
}

/// Implements `ib_device_ops.dealloc_driver`, the last call for a device. May sleep.
///
/// # Safety
///
/// Only for the core, with a device whose driver's part was constructed.
pub(super) unsafe extern "C" fn dealloc_driver<D: Driver>(raw: *mut bindings::ib_device) {
    // SAFETY: The part was constructed, and nothing uses it any more.
    unsafe { core::ptr::drop_in_place(&raw mut (*raw.cast::<Device<D>>()).data) };
}
