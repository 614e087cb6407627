// SPDX-License-Identifier: GPL-2.0

//! What was posted before, when the queue pair goes on to something else.

use super::{
    run,
    After,
    SendHalf,
    BUDGET, //
};
use crate::qp::{
    IbQp,
    QpRef, //
};
use rdma::sync::cond_resched;

/// Completes most of what an error has left in the send queue (SQE), so that little is left to do
/// for [`SendHalf::retire`]. Process context, may sleep.
pub(crate) fn flush(qp: &QpRef) {
    qp.allow_flush();
    catch_up(qp);
}

/// Sends and completes what was posted before, as far as that can be done now. A process that goes
/// on posting does not keep it from ending. Process context, may sleep.
pub(crate) fn catch_up(qp: &QpRef) {
    for _ in 0..=qp.cap.max_send_wr / BUDGET {
        if !run(qp) {
            return;
        }
        cond_resched();
    }
}

impl SendHalf {
    /// Completes all that was posted before now in SQE. Returns whether to notify the consumer.
    pub(crate) fn retire(&mut self, qp: &IbQp) -> bool {
        let mut after = After::default();

        // As many as the ring holds; a process can go on writing to it.
        qp.allow_flush();
        loop {
            let mut budget = u32::MAX;
            let pulled = self.pull(qp);
            let completed = self.complete(qp, &mut budget, &mut after);
            if !(pulled | completed) {
                return after.notify;
            }
        }
    }
}
