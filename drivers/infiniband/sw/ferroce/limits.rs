// SPDX-License-Identifier: GPL-2.0

//! The attributes of a device.

use crate::{
    cq,
    device::{
        MAX_GROUPS,
        MAX_MEMBERSHIPS,
        MAX_RD_ATOMIC,
        MAX_SGE,
        MAX_WR, //
    },
    mcast,
    mr::{
        self,
        MAX_FAST_PAGES, //
    },
    pool::{
        MAX_AH,
        MAX_OBJECTS,
        MAX_PD, //
    },
    srq, //
};
use rdma::ib::device::{
    cap,
    odp,
    DeviceAttr,
    OdpCaps, //
};

/// The vendor: none.
const VENDOR_ID: u32 = 0xff_ffff;

/// The ACK delay code: 134 ms, as others in software state.
const ACK_DELAY: u8 = 15;

/// The operations on memory on demand that have tests.
const ODP_CAPS: OdpCaps = OdpCaps {
    implicit: true,
    rc: odp::SEND
        | odp::RECV
        | odp::SRQ_RECV
        | odp::WRITE
        | odp::READ
        | odp::ATOMIC
        | odp::ATOMIC_WRITE
        | odp::FLUSH,
    // TODO[ODPU].
    uc: 0,
    ud: odp::SEND | odp::RECV | odp::SRQ_RECV,
};

/// Fills in the limits and the capabilities of a device with a GUID.
pub(crate) fn describe(guid: [u8; 8], attr: &mut DeviceAttr) {
    let objects = MAX_OBJECTS;
    attr.set_vendor_id(VENDOR_ID)
        .set_sys_image_guid(u64::from_ne_bytes(guid))
        .set_max_mr_size(mr::MAX_LEN)
        .set_page_size_cap(!0xfff)
        .set_max_qp(objects)
        .set_max_qp_wr(MAX_WR)
        .set_max_send_sge(MAX_SGE)
        .set_max_recv_sge(MAX_SGE)
        .set_max_sge_rd(MAX_SGE)
        .set_max_cq(objects)
        .set_max_cqe(cq::MAX_CQE)
        .set_max_srq(objects)
        .set_max_srq_wr(srq::MAX_SRQ_WR)
        .set_max_srq_sge(MAX_SGE)
        .set_max_mr(objects)
        .set_max_mw(objects)
        .set_max_fast_reg_page_list_len(MAX_FAST_PAGES)
        .set_max_pd(MAX_PD)
        .set_max_qp_rd_atom(u32::from(MAX_RD_ATOMIC))
        .set_max_res_rd_atom(objects.saturating_mul(u32::from(MAX_RD_ATOMIC)))
        .set_max_qp_init_rd_atom(u32::from(MAX_RD_ATOMIC))
        .set_atomics()
        .set_max_ah(MAX_AH)
        .set_max_mcast_grp(MAX_GROUPS)
        .set_max_mcast_qp_attach(mcast::MAX_MEMBERS)
        .set_max_total_mcast_qp_attach(MAX_MEMBERSHIPS)
        .set_max_pkeys(1)
        .set_local_ca_ack_delay(ACK_DELAY)
        .set_device_cap_flags(
            cap::UD_AV_PORT_ENFORCE
                | cap::PORT_ACTIVE_EVENT
                | cap::SYS_IMAGE_GUID
                | cap::SRQ_RESIZE
                | cap::RC_RNR_NAK_GEN
                | cap::MEM_WINDOW
                | cap::MEM_WINDOW_TYPE_2B
                | cap::MEM_MGT_EXTENSIONS
                | cap::FLUSH_GLOBAL
                | cap::ATOMIC_WRITE,
        )
        .set_kernel_cap_flags(cap::ALLOW_USER_UNREG | cap::ON_DEMAND_PAGING)
        .set_odp_caps(&ODP_CAPS);
}
