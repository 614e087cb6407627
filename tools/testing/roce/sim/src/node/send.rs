// SPDX-License-Identifier: GPL-2.0

//! The shell around the send half.

use roce::{
    requester::{
        Local,
        Transmit, //
    },
    time::Instant,
    wire::Packet,
    wr::{
        SendOp,
        Status, //
    }, //
};

use super::{
    Node,
    Sent,
    Violation,
    LOCAL_STATUS, //
};
use crate::{
    ops::Sabotage,
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
        loop {
            while let Some(transmit) = self.requester.poll_transmit() {
                if left == 0 {
                    return Ok(true);
                }
                left -= 1;
                if self.send(&transmit)? {
                    self.requester.transmitted(now);
                }
                self.complete();
            }
            let Some(local) = self.requester.poll_local() else {
                break;
            };
            let result = self.execute_local(&local)?;
            self.requester.local_done(result);
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
        self.counters.responses[response.outcome as usize] += 1;
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
            let found = place.found.map(u64::to_ne_bytes);
            let start = pkt.payload_offset();
            let data = match &found {
                Some(found) => found.get(..place.len as usize),
                None => bytes.get(start..start + place.len as usize),
            };
            landed.extend_from_slice(data.ok_or("placement is longer than the data")?);
            let result = match self.is_gone(op, place.offset, place.len) {
                true => Err(LOCAL_STATUS),
                false => Ok(()),
            };
            self.requester.placed(now, result);
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
        self.check_order(op, transmit)?;
        if self.is_gone(op, transmit.offset, transmit.len) {
            self.requester.local_error(transmit.slot, LOCAL_STATUS);
            return Ok(false);
        }
        let mut payload = vec![0; transmit.len as usize];
        let id = self.ops[op].wr.wr_id;
        pattern::fill(id, transmit.offset as usize, &mut payload);
        self.put_out(|pkey, buf| transmit.write_headers(pkey, buf), &payload)?;
        let wr = &self.ops[op].wr;
        self.begun[op] |=
            wr.op.has_explicit_response() || transmit.offset + transmit.len == wr.length;
        Ok(true)
    }

    /// Executes an operation of the own side, whose turn it must be.
    fn execute_local(&mut self, local: &Local) -> Result<Result<(), Status>, Violation> {
        let op = self.slots[usize::from(local.slot)];
        let early = match local.op {
            SendOp::LocalInv => op != self.completed,
            _ => self.begun[self.completed..op].contains(&false),
        };
        if early || self.begun[op] || local.op != self.ops[op].wr.op {
            return Err(format!("local op {op} is executed out of turn"));
        }
        self.check_fence(op)?;
        self.begun[op] = true;
        Ok(match self.ops[op].sabotage {
            Sabotage::None => Ok(()),
            _ => Err(LOCAL_STATUS),
        })
    }

    /// Checks that nothing overtakes what it has to wait for.
    fn check_order(&mut self, op: usize, transmit: &Transmit) -> Result<(), Violation> {
        let wr = &self.ops[op].wr;
        if transmit.opcode.starts_message() && transmit.offset == 0 {
            self.check_fence(op)?;
        }
        let overtakes =
            |earlier: &usize| self.ops[*earlier].wr.op.is_local() && !self.begun[*earlier];
        if let Some(earlier) = (self.completed..op).find(overtakes) {
            return Err(format!("op {op} overtook local op {earlier}"));
        }
        if wr.op.has_explicit_response() {
            self.asked[op] = true;
            let outstanding = (self.completed..=op).filter(|&op| self.asked[op]).count();
            if outstanding > self.max_rd_atomic {
                return Err(format!("{:?} {op} is one too many", self.ops[op].wr.op));
            }
        }
        Ok(())
    }

    /// Checks that every answer is there for which a fenced operation has to wait.
    fn check_fence(&self, op: usize) -> Result<(), Violation> {
        // What was answered is complete, for everything before it is.
        let open = |earlier: &usize| self.ops[*earlier].wr.op.has_explicit_response();
        match (self.completed..op).find(open) {
            Some(earlier) if self.ops[op].wr.fence => {
                Err(format!("op {op} is fenced and overtook {earlier}"))
            }
            _ => Ok(()),
        }
    }
}
