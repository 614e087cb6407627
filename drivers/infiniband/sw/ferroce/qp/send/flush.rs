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

/// Sends and completes the posted requests, as far as possible now. The number of steps is bounded
/// by the size of the ring, so neither a process that keeps posting nor long messages can prolong
/// it forever. Process context, may sleep.
pub(crate) fn catch_up(qp: &IbQp) {
    steps(qp, runs_of_ring(qp));
}

/// Sends posted requests before the queue pair is destroyed, in at most 32 runs of 60 packets,
/// because process exit or device removal may be waiting. Process context, may sleep.
pub(crate) fn catch_up_last(qp: &IbQp) {
    const RUNS: u32 = 32;

    steps(qp, RUNS.min(runs_of_ring(qp)));
}

/// Returns the number of runs that suffice for all requests of the ring.
fn runs_of_ring(qp: &IbQp) -> u32 {
    // A request may take two units of the budget: it is sent and completed.
    const AT_ONCE: u32 = BUDGET / 2;

    (qp.cap.max_send_wr / AT_ONCE).saturating_add(1)
}

/// Runs the send half until no work is left, or it ran `max` times.
fn steps(qp: &IbQp, max: u32) {
    for _ in 0..max {
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
