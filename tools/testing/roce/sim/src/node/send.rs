// SPDX-License-Identifier: GPL-2.0

//! The driver of the send half.

use roce::{
    requester::{
        Checkpoint,
        Local,
        ResponseKind,
        SendSnapshot,
        Transmit, //
    },
    time::Instant,
    wr::{
        SendOp,
        Status, //
    }, //
};

use super::{
    packet,
    probe::Kept,
    recv::parse,
    tx::Handed,
    wire::Wire,
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

/// The progress of an operation. Packets that were taken back do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// True if a packet of it was sent.
    started: bool,
    /// True if it has an explicit response that was requested.
    asked: bool,
    /// True if its last packet was sent, or it was executed.
    begun: bool,
}

/// The place of the first packet of a train, and the state at that place.
pub(super) struct SendCheckpoint {
    requester: Checkpoint,
    first: Transmit,
    half: SendSnapshot,
    timeout: Option<Instant>,
    progress: Vec<Progress>,
    wire: Wire,
}

impl Node {
    /// Posts operations, sends packets and polls completions. Returns whether there is more to
    /// send.
    pub(super) fn run_requester(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        budget: u64,
    ) -> Result<bool, Violation> {
        self.complete()?;
        self.check_life(now)?;
        self.post(rng)?;
        let mut left = budget;
        loop {
            let more = self.build_all(now, rng, &mut left)?;
            self.hand_over(now, rng)?;
            self.complete()?;
            if more {
                return Ok(true);
            }
            let Some(local) = self.requester.poll_local() else {
                break;
            };
            let result = self.execute_local(&local)?;
            self.requester.local_done(result);
            self.complete()?;
        }
        self.check_wire()?;
        Ok(self.posted < self.ops.len() && self.requester.next_slot().is_some())
    }

    /// Handles a response, and the kept ones that follow it.
    pub(super) fn take_response(&mut self, now: Instant, bytes: Vec<u8>) -> Result<(), Violation> {
        if self.on_response(now, &bytes)? {
            let psn = parse(&bytes)?.psn();
            if self.early_responses.len() < self.response_room && self.requester.may_keep(psn) {
                self.requester.kept(psn);
                self.early_responses.push_back(bytes);
                self.counters.kept += 1;
            } else {
                self.requester.not_kept(psn);
                self.note_rewind();
            }
        }
        while self.requester.is_kept_due() {
            let bytes = self.early_responses.pop_front().ok_or("nothing is kept")?;
            let next = self.early_responses.front();
            let next = next.map(|bytes| parse(bytes)).transpose()?;
            self.requester.took_kept(next.map(|next| next.psn()));
            if self.on_response(now, &bytes)? {
                return Err("a kept response is early again".into());
            }
            self.note_rewind();
        }
        Ok(())
    }

    /// Informs the ledger if the requester has rewound.
    fn note_rewind(&mut self) {
        let half = self.requester.snapshot();
        if half.una == half.next {
            self.ledger.probes().rewound();
        }
    }

    /// Accounts for the loss of the oldest packet.
    pub(super) fn lost_oldest(&mut self) {
        let (oldest, next) = (self.requester.oldest_psn(), self.requester.send_psn());
        self.send_tx.lost(oldest, next);
    }

    /// Informs the ledger of progress.
    ///
    /// `is_placing` is true while the next expected explicit response is being handled.
    fn observe(&mut self, now: Instant, is_placing: bool) {
        let half = self.requester.snapshot();
        let requests_nothing = half.awaits_late || half.una == half.next;
        let kept = match self.early_responses.is_empty() {
            true => Kept::None,
            false if is_placing || requests_nothing || self.requester.is_kept_due() => Kept::Next,
            false => Kept::Late,
        };
        self.ledger.probes().set_kept(kept);
        self.ledger.observe(now.as_ns(), half.una);
    }

    /// Handles a response. Returns whether it is early and may be kept.
    fn on_response(&mut self, now: Instant, bytes: &[u8]) -> Result<bool, Violation> {
        let pkt = &parse(bytes)?;
        let response = self.requester.on_response(now, pkt);
        self.observe(now, response.place.is_some());
        let half = self.requester.snapshot();
        self.ledger.responded(now.as_ns(), response.outcome, &half);
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
            self.observe(now, false);
        }
        if response.is_early {
            self.ledger.probes().came_early();
        }
        let found_loss = self.requester.take_loss();
        if found_loss {
            self.counters.losses_found += 1;
        }
        let half = self.requester.snapshot();
        if found_loss || response.outcome == ResponseKind::NakSequence {
            self.lost_oldest();
        }
        let goes_on = (!pkt.opcode().ends_message()).then(|| pkt.psn().next());
        self.ledger
            .check_loss(found_loss, response.outcome, goes_on, &half)?;
        self.complete()?;
        self.check_wire()?;
        Ok(response.is_early)
    }

    /// Polls completions.
    pub(super) fn complete(&mut self) -> Result<(), Violation> {
        while let Some(completion) = self.requester.poll_completion() {
            let op = self.slots[usize::from(completion.slot)];
            let landed = std::mem::take(&mut self.landed[op]);
            self.completed += 1;
            self.ledger.check_status(completion.status)?;
            self.sent.push(Sent { completion, landed });
        }
        if self.requester.take_error() {
            if self.reliable {
                self.fail();
                self.complete()?;
            } else {
                // The requests after the failed one were flushed above.
                self.requester.resume();
            }
        }
        Ok(())
    }

    /// Posts some of the remaining operations.
    fn post(&mut self, rng: &mut Rng) -> Result<(), Violation> {
        while self.posted < self.ops.len() && self.requester.next_slot().is_some() {
            let slot = self.requester.post(self.ops[self.posted].wr);
            let slot = slot.map_err(|error| format!("op {} refused: {error:?}", self.posted))?;
            self.slots[usize::from(slot)] = self.posted;
            self.posted += 1;
            if rng.chance(200) {
                break;
            }
        }
        self.complete()?;
        Ok(())
    }

    /// Builds packets. Those of the last train are still to be handed over.
    ///
    /// Returns whether the budget is used up.
    fn build_all(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        left: &mut u64,
    ) -> Result<bool, Violation> {
        while let Some(transmit) = self.requester.poll_transmit() {
            if self.send_tx.paused_until().is_some() {
                return Ok(false);
            }
            if *left == 0 {
                return Ok(true);
            }
            *left -= 1;
            if !self.send(now, rng, &transmit)? {
                return Ok(false);
            }
            if !self.send_tx.is_pending() {
                self.complete()?;
            }
        }
        Ok(false)
    }

    /// Builds a packet, and adds it to the train or sends it alone.
    ///
    /// Returns false if the stack had no room.
    fn send(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        transmit: &Transmit,
    ) -> Result<bool, Violation> {
        let op = self.slots[usize::from(transmit.slot)];
        self.check_order(op, transmit)?;
        if self.is_gone(op, transmit.offset, transmit.len) {
            // Packets that are already built are handed over before this one fails.
            if !self.hand_over(now, rng)? {
                return Ok(false);
            }
            self.requester.local_error(transmit.slot, LOCAL_STATUS);
            return Ok(true);
        }
        let mut payload = vec![0; transmit.len as usize];
        let id = self.ops[op].wr.wr_id;
        pattern::fill(id, transmit.offset as usize, &mut payload);
        let packet = packet(transmit, &payload)?;

        // UC cannot take packets back. A packet that may have been lost with a train is sent alone.
        if self.reliable && !transmit.is_probe() && self.send_tx.takes_trains() {
            if let Err(packet) = self.send_tx.join(packet) {
                if !self.hand_over(now, rng)? {
                    return Ok(false);
                }
                let checkpoint = self.checkpoint(transmit);
                self.send_tx.begin(packet, checkpoint);
            }
        } else if !self.hand_over(now, rng)? {
            return Ok(false);
        } else if !self.send_tx.send(now, rng, packet, &mut self.out) {
            self.requester.on_refusal();
            if self.reliable {
                self.wire.refused(transmit);
            }
            return Ok(false);
        }
        self.note_sent(now, op, transmit)?;
        self.requester.transmitted(now, transmit);
        Ok(true)
    }

    /// Accounts for a packet that was sent.
    fn note_sent(&mut self, now: Instant, op: usize, transmit: &Transmit) -> Result<(), Violation> {
        let wr = &self.ops[op].wr;
        let is_explicit = wr.op.has_explicit_response();
        let progress = &mut self.progress[op];
        progress.started = true;
        progress.asked |= is_explicit;
        progress.begun |= is_explicit || transmit.offset + transmit.len == wr.length;
        if self.reliable {
            let (end, requests) = self.wire.sent(transmit)?;
            self.ledger
                .probes()
                .sent(now.as_ns(), transmit, end, requests);
        }
        Ok(())
    }

    /// Marks the place of a packet.
    fn checkpoint(&self, first: &Transmit) -> SendCheckpoint {
        SendCheckpoint {
            requester: self.requester.checkpoint(),
            first: *first,
            half: self.requester.snapshot(),
            timeout: self.requester.next_timeout(),
            progress: self.progress.clone(),
            wire: self.wire,
        }
    }

    /// Hands the train over to the stack. Returns false if its packets were taken back.
    fn hand_over(&mut self, now: Instant, rng: &mut Rng) -> Result<bool, Violation> {
        match self.send_tx.hand_over(now, rng, &mut self.out) {
            Handed::Over(_) => Ok(true),
            Handed::Back(checkpoint) => {
                self.take_back(checkpoint)?;
                self.requester.on_refusal();
                Ok(false)
            }
        }
    }

    /// Takes the packets of a train back, and checks that the state is that of the checkpoint.
    fn take_back(&mut self, checkpoint: SendCheckpoint) -> Result<(), Violation> {
        self.requester.take_back(&checkpoint.requester);
        self.progress = checkpoint.progress;
        self.wire.take_back(checkpoint.wire);
        self.ledger.probes().taken_back();
        let (half, next) = (self.requester.snapshot(), self.requester.poll_transmit());
        if half != checkpoint.half || next != Some(checkpoint.first) {
            return Err(format!(
                "took back {:?} {:?}, left {half:?} {next:?}",
                checkpoint.half, checkpoint.first
            ));
        }
        let timeout = self.requester.next_timeout();
        if timeout != checkpoint.timeout {
            return Err(format!("waits differently after taking back: {timeout:?}"));
        }
        self.check_wire()
    }

    /// Checks that the half makes progress within a bounded time.
    fn check_life(&mut self, now: Instant) -> Result<(), Violation> {
        if !self.reliable || self.failed {
            return Ok(());
        }
        self.ledger.check_retries()?;
        let half = self.requester.snapshot();
        self.ledger.check_life(now.as_ns(), &half)
    }

    /// Checks the state of the requester against the packets that were sent.
    fn check_wire(&self) -> Result<(), Violation> {
        match self.reliable {
            true => self.wire.check(&self.requester.snapshot()),
            false => Ok(()),
        }
    }

    /// Executes a local operation, and checks that it is the next one in order.
    fn execute_local(&mut self, local: &Local) -> Result<Result<(), Status>, Violation> {
        let op = self.slots[usize::from(local.slot)];
        let early = match local.op {
            SendOp::LocalInv => op != self.completed,
            _ => self.progress[self.completed..op]
                .iter()
                .any(|earlier| !earlier.begun),
        };
        if early || self.progress[op].begun || local.op != self.ops[op].wr.op {
            return Err(format!("local op {op} is executed out of turn"));
        }
        self.check_fence(op)?;
        self.progress[op].begun = true;
        Ok(match self.ops[op].sabotage {
            Sabotage::None => Ok(()),
            _ => Err(LOCAL_STATUS),
        })
    }

    /// Checks that a packet does not overtake operations for which it has to wait.
    fn check_order(&self, op: usize, transmit: &Transmit) -> Result<(), Violation> {
        let wr = &self.ops[op].wr;
        if self.draining && !self.progress[op].started {
            return Err(format!("op {op} starts while the send queue drains"));
        }
        if transmit.opcode.starts_message() && transmit.offset == 0 {
            self.check_fence(op)?;
        }
        let overtakes =
            |earlier: &usize| self.ops[*earlier].wr.op.is_local() && !self.progress[*earlier].begun;
        if let Some(earlier) = (self.completed..op).find(overtakes) {
            return Err(format!("op {op} overtook local op {earlier}"));
        }
        if wr.op.has_explicit_response() {
            let earlier = &self.progress[self.completed..op];
            let outstanding = earlier.iter().filter(|earlier| earlier.asked).count();
            if outstanding >= self.max_rd_atomic {
                return Err(format!("{:?} {op} is one too many", self.ops[op].wr.op));
            }
        }
        Ok(())
    }

    /// Checks that all responses have arrived for which a fenced operation has to wait.
    fn check_fence(&self, op: usize) -> Result<(), Violation> {
        // An operation with a response is complete, because all operations before it are.
        let open = |earlier: &usize| self.ops[*earlier].wr.op.has_explicit_response();
        match (self.completed..op).find(open) {
            Some(earlier) if self.ops[op].wr.fence => {
                Err(format!("op {op} is fenced and overtook {earlier}"))
            }
            _ => Ok(()),
        }
    }
}
