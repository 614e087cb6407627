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
use rdma::ib::{
    cap::{
        DeviceCap,
        KernelCap,
        OdpCaps,
        OdpOp,
        OdpOps, //
    },
    device::DeviceAttr, //
};

/// No vendor ID, as in C rxe.
const VENDOR_ID: u32 = 0xff_ffff;

/// The local CA ACK delay: 4.096 us << 15, which is 134 ms, as in C rxe.
const ACK_DELAY: u8 = 15;

/// Returns the operations that may use memory on demand, each of which has tests.
fn odp_caps() -> OdpCaps {
    OdpCaps {
        rc: OdpOp::Send
            | OdpOp::Recv
            | OdpOp::SrqRecv
            | OdpOp::Write
            | OdpOp::Read
            | OdpOp::Atomic
            | OdpOp::AtomicWrite
            | OdpOp::Flush,
        // TODO[ODPU].
        uc: OdpOps::empty(),
        ud: OdpOp::Send | OdpOp::Recv | OdpOp::SrqRecv,
    }
}

/// Fills in the limits and the capabilities of a device with a GUID.
pub(crate) fn fill_attr(guid: [u8; 8], attr: &mut DeviceAttr) {
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
        .set_device_caps(
            DeviceCap::UdAvPortEnforce
                | DeviceCap::PortActiveEvent
                | DeviceCap::SysImageGuid
                | DeviceCap::SrqResize
                | DeviceCap::RcRnrNakGen
                | DeviceCap::MemWindow
                | DeviceCap::MemWindowType2b
                | DeviceCap::MemMgtExtensions
                | DeviceCap::FlushGlobal
                | DeviceCap::AtomicWrite,
        )
        .set_kernel_caps(KernelCap::AllowUserUnreg | KernelCap::OnDemandPaging)
        .set_odp_caps(&odp_caps());
}
