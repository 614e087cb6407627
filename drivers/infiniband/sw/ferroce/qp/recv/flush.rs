// SPDX-License-Identifier: GPL-2.0

//! Flush of the posted requests (ERR).

use super::{
    completion::completion,
    run,
    RecvHalf,
    Run, //
};
use crate::{
    clock,
    cq::Pushed,
    device::IbQp, //
};
use rdma::ib::qp::QpEvent;
use roce::{
    qp::State,
    responder::RecvCompletion,
    wr::Status, //
};

/// The maximum number of receive requests to flush in ERR each time the timer looks for them.
const PER_LOOK: u32 = 1024;

/// Flushes the receive requests that a process has posted since the last look (ERR). In other
/// states, drops packets that have waited too long for earlier ones. Softirq context, no lock held.
pub(crate) fn look(qp: &IbQp) {
    if qp.state() == State::Err {
        qp.recv_flush_budget.grant(qp.cap.max_recv_wr.min(PER_LOOK));
        run(qp);
    } else {
        qp.recv.lock().expire_early(qp);
    }
}

impl RecvHalf {
    /// Arms the timer that looks for more requests (ERR): librxe rings no doorbell for receive
    /// requests.
    ///
    /// Requests in a shared queue do not belong to the queue pair, and a kernel consumer posts by a
    /// verb.
    pub(super) fn watch(&mut self, qp: &IbQp) {
        if qp.kernel.is_some() || self.rq.is_shared() {
            return;
        }
        let now = clock::monotonic();
        self.next_look.expire(now);
        self.next_look.failed(now);
        if let Some(at) = self.next_look.at() {
            qp.watch_timer.arm(at.as_ns());
        }
    }

    /// Flushes the posted requests (ERR).
    pub(super) fn flush(&mut self, qp: &IbQp, run: &mut Run) {
        // READ responses may have to be sent before a NAK that waits.
        if self.last_reply.is_none() {
            self.resp.reset();
        }
        self.stop_waiting();
        while qp.recv_flush_budget.take() {
            let Some(wr_id) = self.rq.flush_one() else {
                qp.recv_flush_budget.give_back();
                return;
            };
            let done = RecvCompletion::failed(Status::WrFlush);
            let pushed = qp.complete(&qp.recv_cq, &completion(qp, wr_id, &done, None));
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
            qp.raise(QpEvent::LastWqeReached);
        }
    }
}
