// SPDX-License-Identifier: GPL-2.0

//! Flush of the posted requests (ERR).

use super::{
    completion::completion,
    Run,
    RecvHalf, //
};
use crate::{
    cq::Pushed,
    device::IbQp,
    qp::Event, //
};
use roce::{
    ids::Qpn,
    responder::RecvCompletion,
    wr::Status, //
};

impl RecvHalf {
    /// Flushes the posted requests (ERR).
    pub(super) fn flush(&mut self, qp: &IbQp, run: &mut Run) {
        self.resp.reset();
        self.stop_waiting();
        while qp.recv_flush_budget.take() {
            let Some(wr_id) = self.rq.flush_one() else {
                return;
            };
            let done = RecvCompletion {
                status: Status::WrFlush,
                byte_len: 0,
                imm: None,
                invalidated: None,
                with_rdma: false,
                solicited: true,
                src_qpn: Qpn::new(0),
            };
            let pushed = qp.complete(&qp.recv_cq, &completion(qp, wr_id, &done, false));
            run.notify |= pushed == Pushed::Notify;
            if !run.spend() {
                return;
            }
        }
    }

    /// Raises the last WQE reached event, once, when the queue pair takes nothing more from its
    /// shared receive queue (ERR).
    pub(super) fn raise_last_wqe_reached(&mut self, qp: &IbQp) {
        if self.rq.is_shared() && !self.last_wqe_reached {
            self.last_wqe_reached = true;
            qp.raise(Event::LastWqeReached);
        }
    }
}
