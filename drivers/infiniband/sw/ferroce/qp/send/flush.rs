// SPDX-License-Identifier: GPL-2.0

//! Completion of requests that were posted before a modify or destroy.

use super::{
    run,
    After,
    SendHalf,
    BUDGET, //
};
use crate::{
    device::IbQp,
    qp::sq::MAX_IN_FLIGHT, //
};
use rdma::sync::cond_resched;

/// Sends and completes the posted requests in at most `max_runs` runs, as far as possible now. The
/// size of the ring bounds the number of runs, too, so neither a process that keeps posting nor
/// long messages can prolong it forever. Process context, may sleep.
pub(crate) fn catch_up(qp: &IbQp, max_runs: u32) {
    // A request may take two units of the budget: it is sent and completed.
    const AT_ONCE: u32 = BUDGET / 2;

    let runs = (qp.cap.max_send_wr / AT_ONCE).saturating_add(1);
    for _ in 0..runs.min(max_runs) {
        if !run(qp) {
            return;
        }
        cond_resched();
    }
}

impl SendHalf {
    /// Completes the requests that were fetched in SQE: at most [`MAX_IN_FLIGHT`], since this is
    /// called under the locks of both halves. Requests that are still in the ring were posted
    /// during the modify, and are sent. Returns whether to notify the consumer.
    pub(crate) fn retire(&mut self, qp: &IbQp) -> bool {
        let mut after = After::default();

        self.complete(qp, &mut { MAX_IN_FLIGHT }, &mut after);
        after.notify
    }
}
