// SPDX-License-Identifier: GPL-2.0

//! The completion of a received message.

use crate::{
    cq::Completion,
    device::IbQp,
    packet::Incoming, //
};
use rdma::net::skbuff::IpHeader;
use roce::{
    ids::Qpn,
    responder::RecvCompletion,
    uapi::cqe::{
        Cqe,
        WcOpcode,
        WC_SL_IPV4,
        WC_SL_IPV6, //
    },
    wire::GRH_LEN,
    wr::Status, //
};

/// Returns the first 40 bytes of a datagram's buffer: the IP header, at the end if it is an IPv4
/// one (C11-30).
// CAST: Widening.
pub(super) fn grh_area(incoming: &Incoming) -> [u8; GRH_LEN as usize] {
    // CAST: As above.
    let mut area = [0; GRH_LEN as usize];
    match incoming.ip() {
        Some(IpHeader::V6(ip)) => area = *ip,
        Some(IpHeader::V4(ip)) => {
            if let Some(tail) = area.last_chunk_mut() {
                *tail = *ip;
            }
        }
        None => {}
    }
    area
}

/// Returns the completion of a receive request, by `incoming` unless the request is flushed.
pub(super) fn completion(
    qp: &IbQp,
    wr_id: u64,
    done: &RecvCompletion,
    incoming: Option<&Incoming>,
) -> Completion {
    // The consumer of a connection knows the IP version and the VLAN.
    let datagram = incoming.filter(|_| !qp.ty.is_connected());
    let grh = !qp.ty.is_connected() && done.status == Status::Success;
    Completion {
        cqe: Cqe {
            wr_id,
            status: done.status,
            opcode: if done.with_rdma {
                WcOpcode::RecvRdmaWithImm
            } else {
                WcOpcode::Recv
            },
            byte_len: done.byte_len,
            imm: done.imm,
            invalidated: done.invalidated,
            qpn: Qpn::new(qp.qpn),
            src_qpn: done.src_qpn,
            grh,
            sl: match datagram.and_then(Incoming::ip) {
                _ if !grh => 0,
                Some(IpHeader::V6(_)) => WC_SL_IPV6,
                _ => WC_SL_IPV4,
            },
        },
        qp: qp.handle,
        solicited: done.solicited,
        vlan: datagram.and_then(Incoming::vlan),
    }
}
