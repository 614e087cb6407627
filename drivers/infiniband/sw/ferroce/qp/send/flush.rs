// SPDX-License-Identifier: GPL-2.0

//! The end of what an error has left (SQE).

use super::{
    After,
    SendHalf,
    BUDGET, //
};
use crate::{
    cq,
    qp::{
        IbQp,
        QpRef, //
    }, //
};
use rdma::sync::cond_resched;

/// Completes most of what an error has left in the send queue (SQE), so that little is left to do
/// for [`SendHalf::retire`]. Process context, may sleep.
pub(crate) fn flush(qp: &QpRef) {
    qp.allow_flush();
    for _ in 0..=qp.cap.max_send_wr / BUDGET {
        let after = {
            let mut half = qp.send.lock();
            half.drive(qp)
        };
        if after.notify {
            cq::notify(&qp.send_cq);
        }
        if !after.again {
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
