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

/// Sends and completes what was posted before, as far as that can be done now, and in as many steps
/// as that takes if each request is one packet: neither a process that goes on posting nor long
/// messages keep it from ending. Process context, may sleep.
pub(crate) fn catch_up(qp: &QpRef) {
    // A request is sent and completed.
    const AT_ONCE: u32 = BUDGET / 2;

    for _ in 0..=qp.cap.max_send_wr / AT_ONCE {
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
