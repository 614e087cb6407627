// SPDX-License-Identifier: GPL-2.0

//! Responses of the peer.

use super::{
    finish,
    local_status,
    SendHalf, //
};
use crate::{
    clock,
    counters::{
        self,
        Counter, //
    },
    device::{
        IbQp,
        QpRef, //
    },
    mr::RegionCache,
    packet::{
        Batch,
        Flow,
        Incoming,
        Origin, //
    },
    qp::{
        sched::defers_data,
        tx::BUDGET, //
    },
    traces, //
};
use roce::{
    requester::Placement,
    time::Instant,
    wire::Packet,
    wr::MemError, //
};

/// Handles a response of the peer, and those of `flow` that arrived with it. `origin` becomes that
/// of the last of them. Softirq or process context, no lock held.
///
/// # Errors
///
/// The drop counter, if the first packet is not for this queue pair.
pub(crate) fn respond(
    qp: &QpRef,
    origin: &mut Origin,
    incoming: Incoming,
    flow: Flow,
    batch: &mut Batch<'_>,
) -> Result<(), Counter> {
    let after = {
        let mut half = qp.send.lock();
        let Some(path) = half.tx.path() else {
            return Err(Counter::BadState);
        };
        path.admits(origin)?;
        if let Some(counter) = batch.take_train() {
            half.tx.counters.count(counter);
        }
        half.tx.counters.received(origin.bytes);
        let time = clock::monotonic();
        let mut regions = RegionCache::new();
        half.see_mark(origin, &incoming);
        half.take(qp, time, incoming, &mut regions);
        for _ in 1..BUDGET {
            let Some(incoming) = batch.pop_like(flow, origin) else {
                break;
            };
            traces::received_too(qp, &incoming);
            half.tx.counters.received(origin.bytes);
            half.see_mark(origin, &incoming);
            half.take(qp, time, incoming, &mut regions);
        }
        // Without a budget, the half completes requests, and leaves the packets to the work item.
        let defers = defers_data(half.req.shortest_rtt()) && half.req.has_data_to_send();
        half.drive(qp, time, if defers { 0 } else { BUDGET })
    };
    finish(qp, &after);
    Ok(())
}

impl SendHalf {
    /// Narrows the window if a congested network has marked a READ response, and notifies the peer.
    #[inline]
    fn see_mark(&mut self, origin: &Origin, incoming: &Incoming) {
        if origin.is_marked() {
            self.marked(incoming);
        }
    }

    #[cold]
    fn marked(&mut self, incoming: &Incoming) {
        let counts = incoming
            .packet()
            .is_ok_and(|packet| self.req.on_mark(&packet));
        if counts {
            self.tx.marked(self.req.dest_qpn());
        }
    }

    /// Takes a response, or keeps it behind one that waits for memory.
    #[inline]
    fn take(&mut self, qp: &IbQp, time: Instant, incoming: Incoming, regions: &mut RegionCache) {
        let counters = &self.tx.counters;
        if self.parked.is_none() {
            self.on_response(qp, time, incoming, None, regions);
            self.take_early(qp, time, regions);
        } else if self
            .backlog
            .push(qp, incoming, true, Counter::Backlog, counters)
        {
            counters.count(Counter::AckDeferred);
        }
    }

    /// Handles a response.
    ///
    /// `failed` is the error of the fetch that the response waited for.
    pub(super) fn on_response(
        &mut self,
        qp: &IbQp,
        now: Instant,
        incoming: Incoming,
        failed: Option<MemError>,
        regions: &mut RegionCache,
    ) {
        let Ok(packet) = incoming.packet() else {
            return;
        };
        let psn = packet.psn();
        traces::acknowledgment(qp, &packet);
        let response = self.req.on_response(now, &packet);
        if response.outcome.is_expected() {
            self.tx.heard(incoming.sport());
        }
        if let Some(place) = response.place {
            let result = match failed {
                Some(error) => Err(error),
                None => self.place(&place, &packet, &incoming, regions),
            };
            if result == Err(MemError::NotPresent) {
                self.park(qp, incoming, &place);
                return;
            }
            self.req.placed(now, result.map_err(local_status));
        }
        if let Some(counter) = counters::of_response(response.outcome) {
            self.tx.counters.count(counter);
            match counter {
                Counter::SequenceNak | Counter::ImpliedNak => self.missing(qp, counter),
                Counter::RnrReceived => traces::retried(qp, || self.req.snapshot(), counter),
                Counter::NakReceived | Counter::CnpHandled => {}
                _ => traces::dropped(qp, &packet, counter),
            }
        }
        if response.is_early {
            self.keep_early(qp, psn, incoming);
        } else {
            incoming.consume();
        }
    }

    /// Copies the data of a response to where it belongs.
    #[inline]
    fn place(
        &self,
        place: &Placement,
        packet: &Packet<'_>,
        incoming: &Incoming,
        regions: &mut RegionCache,
    ) -> Result<(), MemError> {
        let found = place.found.map(u64::to_ne_bytes);
        let data = match &found {
            Some(found) => found.as_slice(),
            None => incoming.payload(packet),
        };
        let bytes = data
            // CAST: Widening.
            .get(..place.len as usize)
            .ok_or(MemError::Length)?;
        self.sq.scatter(place.slot, place.offset, bytes, regions)
    }
}
