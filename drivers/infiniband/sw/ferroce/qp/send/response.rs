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
    packet::{
        Incoming,
        Origin, //
    },
    traces, //
};
use roce::{
    requester::Placement,
    time::Instant,
    wire::Packet,
    wr::MemError, //
};

/// Takes a response of the peer. Softirq or process context, no lock held.
///
/// # Errors
///
/// The counter to use if the packet is not for this queue pair.
pub(crate) fn respond(qp: &QpRef, origin: &Origin, incoming: Incoming) -> Result<(), Counter> {
    let after = {
        let mut half = qp.send.lock();
        let Some(path) = half.tx.path() else {
            return Err(Counter::BadState);
        };
        path.admits(origin)?;
        half.counters.received(origin.bytes);
        let time = clock::now();
        if half.parked.is_none() {
            half.on_response(qp, time, incoming, None);
        } else {
            let SendHalf {
                backlog, counters, ..
            } = &mut **half;
            if backlog.push(qp, incoming, counters) {
                counters.count(Counter::AckDeferred);
            }
        }
        half.drive(qp, time)
    };
    finish(qp, &after);
    Ok(())
}

impl SendHalf {
    /// Takes a response.
    ///
    /// `now` is the time, `failed` why memory for the response could not be fetched.
    pub(super) fn on_response(
        &mut self,
        qp: &IbQp,
        now: Instant,
        incoming: Incoming,
        failed: Option<MemError>,
    ) {
        let Ok(packet) = incoming.packet() else {
            return;
        };
        traces::acknowledgment(qp, &packet);
        let response = self.req.on_response(now, &packet);
        if response.outcome.is_expected() {
            if let Some(path) = self.tx.path() {
                path.heard(incoming.sport());
            }
        }
        if let Some(place) = response.place {
            let result = match failed {
                Some(error) => Err(error),
                None => self.place(&place, &packet, &incoming),
            };
            if result == Err(MemError::Absent) {
                self.park(qp, incoming, &place);
                return;
            }
            self.req.placed(now, result.map_err(local_status));
        }
        if let Some(counter) = counters::of_response(response.outcome) {
            self.counters.count(counter);
            match counter {
                Counter::SequenceNak | Counter::ImpliedNak => {
                    self.count_retry();
                    traces::retried(qp, || self.req.snapshot(), counter);
                }
                Counter::RnrReceived => traces::retried(qp, || self.req.snapshot(), counter),
                Counter::NakReceived => {}
                _ => traces::dropped(qp, &packet, counter),
            }
        }
        incoming.consume();
    }

    /// Copies the data of a response to where it belongs.
    #[inline]
    fn place(
        &self,
        place: &Placement,
        packet: &Packet<'_>,
        incoming: &Incoming,
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
        self.sq.scatter(place.slot, place.offset, bytes)
    }
}
