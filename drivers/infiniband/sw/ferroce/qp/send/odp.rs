// SPDX-License-Identifier: GPL-2.0

//! Requests and responses that wait for memory.

use super::{
    finish,
    local_status,
    SendHalf, //
};
use crate::{
    clock,
    counters::Counter,
    device::{
        IbQp,
        QpRef, //
    },
    mr::RegionCache,
    packet::Incoming,
    qp::{
        backlog::refuse,
        tx::BUDGET,
        wait::ahead, //
    }, //
};
use kernel::prelude::*;
use rdma::ib::Access;
use roce::{
    requester::{
        Placement,
        Transmit, //
    },
    wr::MemError, //
};

/// Reports the end of a fetch, and runs the half if it waits for that round.
fn fetched(qp: &QpRef, round: u64, result: Result<(), MemError>) {
    let after = {
        let mut half = qp.send.lock();
        if !half.request_wait.finish(round, result) && !half.response_wait.finish(round, result) {
            return;
        }
        half.drive(qp, clock::monotonic(), BUDGET)
    };
    finish(qp, &after);
}

impl SendHalf {
    /// Starts to fetch the memory of a packet. Returns whether to go on at once. If the fetch
    /// cannot be started, `drive` tries again later.
    #[cold]
    pub(super) fn await_request(&mut self, qp: &IbQp, transmit: &Transmit) -> bool {
        let slot = transmit.slot;
        let psn = transmit.psn.get();
        let fault = match self.request_wait.take_failure(psn) {
            Some(error) => Err(error),
            None => self.sq.odp_fault(
                slot,
                transmit.offset,
                transmit.len,
                ahead(transmit.opcode),
                Access::NONE,
            ),
        };
        match fault {
            Ok(Some(fault)) => {
                let _ = self.request_wait.start(qp, psn, fault, fetched);
                false
            }
            // The memory is present by now.
            Ok(None) => true,
            Err(error) => {
                self.req.local_error(slot, local_status(error));
                true
            }
        }
    }

    /// Parks a response until its memory is present; later responses wait behind it.
    ///
    /// If the memory cannot be fetched now, or is present by now, `drive` tries again later. The
    /// response may then wait for as long as the process delays its other fetches, so it is dropped
    /// as if it had been lost if the backlog has no room for it.
    #[cold]
    pub(super) fn park(&mut self, qp: &IbQp, incoming: Incoming, place: &Placement) {
        let ahead = incoming.packet().map_or(0, |packet| ahead(packet.opcode()));
        let fault = self.sq.odp_fault(
            place.slot,
            place.offset,
            place.len,
            ahead,
            Access::LOCAL_WRITE,
        );
        match fault {
            Ok(fault) => {
                if let Some(fault) = fault {
                    let _ = self.response_wait.start(qp, 0, fault, fetched);
                }
                let is_fetching = self.response_wait.is_fetching();
                if self.backlog.charge(&incoming, is_fetching) {
                    self.parked = Some(incoming);
                    self.tx.counters.count(Counter::AckDeferred);
                } else {
                    self.response_wait.cancel();
                    refuse(qp, &incoming, Counter::Backlog, &self.tx.counters);
                }
            }
            Err(e) => self.req.placed(clock::monotonic(), Err(local_status(e))),
        }
    }

    /// Handles the parked response again, then those behind it, some of which may be kept again.
    #[cold]
    pub(super) fn unpark(&mut self, qp: &IbQp) {
        let failed = self.response_wait.take_failure(0);
        let Some(parked) = self.take_parked() else {
            return;
        };
        let regions = &mut RegionCache::new();
        self.on_response(qp, clock::monotonic(), parked, failed, regions);
        if self.parked.is_some() {
            return;
        }
        self.req.forget_kept();
        for _ in 0..self.backlog.len() {
            let Some(incoming) = self.backlog.pop() else {
                break;
            };
            self.on_response(qp, clock::monotonic(), incoming, None, regions);
            if self.parked.is_some() {
                return;
            }
        }
        self.take_early(qp, clock::monotonic(), regions);
        self.retry.succeeded();
    }

    fn take_parked(&mut self) -> Option<Incoming> {
        let parked = self.parked.take()?;
        self.backlog.uncharge(&parked);
        Some(parked)
    }

    /// Ends all waits for memory, and drops the waiting responses.
    pub(super) fn stop_waiting(&mut self) {
        self.request_wait.cancel();
        self.response_wait.cancel();
        let parked = usize::from(self.take_parked().is_some());
        let dropped = self.backlog.clear().saturating_add(parked);
        self.tx.counters.dropped(Counter::BadState, dropped);
    }
}
