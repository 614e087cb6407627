// SPDX-License-Identifier: GPL-2.0

//! The shell around the send half.

use roce::{
    requester::Transmit,
    time::Instant,
    wire::Packet, //
};

use super::{
    Node,
    Sent,
    Violation,
    LOCAL_STATUS, //
};
use crate::{
    pattern,
    Rng, //
};

impl Node {
    /// Posts, sends and completes. Returns whether there is more to send.
    pub(super) fn run_requester(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        budget: u64,
    ) -> Result<bool, Violation> {
        self.complete();
        self.post(rng)?;
        let mut left = budget;
        while let Some(transmit) = self.requester.poll_transmit(now) {
            if left == 0 {
                return Ok(true);
            }
            left -= 1;
            if self.send(&transmit)? {
                self.requester.transmitted(now);
            }
            self.complete();
        }
        Ok(self.posted < self.ops.len() && !self.requester.is_full())
    }

    /// Takes a response.
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        pkt: &Packet<'_>,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let response = self.requester.on_response(now, pkt);
        if let Some(place) = response.place {
            let op = self.slots[usize::from(place.slot)];
            let landed = &mut self.landed[op];
            if landed.len() != place.offset as usize {
                return Err(format!(
                    "READ data of op {op} lands at {} instead of {}",
                    place.offset,
                    landed.len()
                ));
            }
            let start = pkt.payload_offset();
            let payload = bytes.get(start..start + place.len as usize);
            landed.extend_from_slice(payload.ok_or("placement is longer than the packet")?);
            if self.is_sabotaged(op, place.offset, place.len) {
                self.requester.local_error(place.slot, LOCAL_STATUS);
            }
        }
        self.complete();
        Ok(())
    }

    /// Retires what is over.
    pub(super) fn complete(&mut self) {
        while let Some(completion) = self.requester.poll_completion() {
            let op = self.slots[usize::from(completion.slot)];
            let landed = std::mem::take(&mut self.landed[op]);
            self.completed += 1;
            self.sent.push(Sent { completion, landed });
        }
        if self.requester.take_error() {
            if self.reliable {
                self.fail();
                self.complete();
            } else {
                // What was behind the failed request has been flushed above.
                self.requester.resume();
            }
        }
    }

    /// Posts some of what is left.
    fn post(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        while self.posted < self.ops.len() && !self.requester.is_full() {
            let slot = self.requester.post(self.ops[self.posted].wr);
            let slot = slot.map_err(|error| format!("op {} refused: {error:?}", self.posted))?;
            self.slots[usize::from(slot)] = self.posted;
            self.posted += 1;
            if rng.chance(200) {
                break;
            }
        }
        self.complete();
        Ok(())
    }

    /// Builds a packet and puts it out. Returns false if its data cannot be read.
    fn send(&mut self, transmit: &Transmit) -> Result<bool, Violation> {
        let op = self.slots[usize::from(transmit.slot)];
        if self.is_sabotaged(op, transmit.offset, transmit.len) {
            self.requester.local_error(transmit.slot, LOCAL_STATUS);
            return Ok(false);
        }
        let mut payload = vec![0; transmit.len as usize];
        let id = self.ops[op].wr.wr_id;
        pattern::fill(id, transmit.offset as usize, &mut payload);
        self.put_out(|pkey, buf| transmit.write_headers(pkey, buf), &payload)?;
        Ok(true)
    }
}
