// SPDX-License-Identifier: GPL-2.0

//! The sizes of the queues of a queue pair.

use crate::device::{
    MAX_INLINE,
    MAX_SGE,
    MAX_WR, //
};
use kernel::prelude::*;
use rdma::ib::qp::QpCap;
use roce::qp::caps::{
    self,
    Caps,
    Queues, //
};

/// Lays out the requested queues, and writes their capacities to `cap`. A kernel consumer gets no
/// inline data, which [`sq::push`](super::sq::push) refuses.
pub(super) fn lay_out(cap: &mut QpCap, has_srq: bool, kernel: bool) -> Result<Queues> {
    const LIMITS: Caps = Caps {
        max_send_wr: MAX_WR,
        max_recv_wr: MAX_WR,
        max_send_sge: MAX_SGE,
        max_recv_sge: MAX_SGE,
        max_inline_data: MAX_INLINE,
    };

    let asked = Caps {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    };
    let queues = caps::queues(&asked, &LIMITS, has_srq).ok_or(EINVAL)?;
    *cap = QpCap {
        max_send_wr: queues.caps.max_send_wr,
        max_recv_wr: queues.caps.max_recv_wr,
        max_send_sge: queues.caps.max_send_sge,
        max_recv_sge: queues.caps.max_recv_sge,
        max_inline_data: if kernel {
            0
        } else {
            queues.caps.max_inline_data
        },
    };
    Ok(queues)
}
