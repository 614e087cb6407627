// SPDX-License-Identifier: GPL-2.0

//! The driver of the receive half.

use roce::{
    opcode::Opcode,
    psn::Psn,
    responder::{
        Action,
        Command,
        DropReason,
        Outcome,
        Place,
        ReadSegment,
        ReplyKind,
        Verdict, //
    },
    time::Instant,
    wire::Packet,
    wr::MemError, //
};

use super::{
    foreign::Foreign,
    packet,
    tx::Handed,
    Node,
    Received,
    Violation, //
};
use crate::{
    ops::{
        BASE,
        WORD, //
    },
    Rng, //
};

impl Node {
    /// Answers READs, and handles the backlog. Returns whether there is more to do.
    pub(super) fn run_responder(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        budget: u64,
    ) -> Result<bool, Violation> {
        let mut left = budget;
        if std::mem::take(&mut self.command_is_new) {
            return Ok(true);
        }
        if let Some(command) = self.command.take() {
            let result = self.do_command(&command, &[]);
            let outcome = self.responder.executed(result);
            self.execute(outcome)?;
        }
        loop {
            let more = self.build_responses(now, rng, &mut left)?;
            // Only the responses to new READs may share a train.
            let epsn = self.responder.epsn();
            let next = self.backlog.front();
            if more || self.responder.is_busy() || !next.is_some_and(|bytes| is_read(bytes, epsn)) {
                self.hand_over_responses(now, rng)?;
            }
            if more {
                return Ok(true);
            }
            if self.responder.is_busy() {
                // The stack had no room.
                return Ok(false);
            }
            if !self.failed && self.responder.is_kept_due() {
                self.take_kept()?;
                continue;
            }
            let Some(bytes) = self.backlog.pop_front() else {
                return Ok(false);
            };
            self.take(bytes)?;
            if std::mem::take(&mut self.command_is_new) {
                return Ok(true);
            }
        }
    }

    /// Builds READ responses. Those of the last train are still to be handed over.
    ///
    /// Returns whether the budget is used up.
    fn build_responses(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        left: &mut u64,
    ) -> Result<bool, Violation> {
        while let Some(segment) = self.responder.poll_response() {
            if self.recv_tx.paused_until().is_some() {
                return Ok(false);
            }
            if *left == 0 {
                return Ok(true);
            }
            *left -= 1;
            if !self.send_response(now, rng, &segment)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Builds a READ response, and adds it to the train or sends it alone.
    ///
    /// Returns false if the stack had no room.
    fn send_response(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        segment: &ReadSegment,
    ) -> Result<bool, Violation> {
        let data = Self::region(&mut self.memory, segment.rkey, segment.va, segment.len);
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                if !self.hand_over_responses(now, rng)? {
                    return Ok(false);
                }
                let outcome = self.responder.response_failed(error);
                self.execute(outcome)?;
                return Ok(true);
            }
        };
        let sent = match &mut self.foreign {
            Some(foreign) => foreign.segment(segment),
            None => *segment,
        };
        let packet = packet(&sent, data)?;
        if self.recv_tx.takes_trains() {
            if let Err(packet) = self.recv_tx.join(packet) {
                if !self.hand_over_responses(now, rng)? {
                    return Ok(false);
                }
                let checkpoint = self.responder.checkpoint_responses();
                self.recv_tx.begin(packet, (checkpoint, *segment));
            }
        } else {
            if !self.hand_over_responses(now, rng)?
                || !self.recv_tx.send(now, rng, packet, &mut self.out)
            {
                return Ok(false);
            }
            self.counters.read_segments += 1;
        }
        self.responder.response_sent();
        if segment.again && !self.responder.read_in_progress() {
            return self.hand_over_responses(now, rng);
        }
        Ok(true)
    }

    /// Hands a train of READ responses over. Returns false if they were taken back.
    fn hand_over_responses(&mut self, now: Instant, rng: &mut Rng) -> Result<bool, Violation> {
        match self.recv_tx.hand_over(now, rng, &mut self.out) {
            Handed::Over(packets) => {
                self.counters.read_segments += packets;
                Ok(true)
            }
            Handed::Back((checkpoint, first)) => {
                self.responder.take_back_responses(checkpoint);
                let next = self.responder.poll_response();
                if next != Some(first) {
                    return Err(format!("took back {first:?}, left {next:?}"));
                }
                Ok(false)
            }
        }
    }

    /// Handles a request, and the kept ones that follow it. The half is not busy.
    pub(super) fn take(&mut self, bytes: Vec<u8>) -> Result<(), Violation> {
        let epsn = self.responder.epsn();
        if self.on_request(&bytes)? {
            let psn = parse(&bytes)?.psn();
            if self.early.len() < self.early_room && self.responder.may_keep(psn) {
                self.responder.kept(psn);
                self.early.push_back(bytes);
                self.counters.kept += 1;
            } else {
                self.responder.not_kept(psn);
                self.counters.drops[DropReason::PsnGap as usize] += 1;
                if !self.early.is_empty() {
                    // The dropped request is another missing one, behind the kept ones.
                    self.ledger.overflowed();
                }
            }
        }
        if self.responder.epsn() != epsn {
            self.take_kept()?;
        }
        Ok(())
    }

    /// Handles the kept requests that are due.
    fn take_kept(&mut self) -> Result<(), Violation> {
        let mut took = false;
        while !self.failed && !self.responder.is_busy() && self.responder.is_kept_due() {
            let bytes = self.early.pop_front().ok_or("nothing is kept")?;
            let next = self.early.front().map(|bytes| parse(bytes)).transpose()?;
            self.responder.took_kept(next.map(|next| next.psn()));
            self.on_request(&bytes)?;
            took = true;
        }
        if let Some(ack) = self.responder.owed_ack() {
            self.reply(&ack)?;
        }
        if let Some(nak) = took.then(|| self.responder.report_gap()).flatten() {
            self.ledger.reported_gap();
            self.reply(&nak)?;
        }
        Ok(())
    }

    /// Handles a request. Returns whether it is early and may be kept.
    fn on_request(&mut self, bytes: &[u8]) -> Result<bool, Violation> {
        let pkt = parse(bytes)?;
        let (epsn, is_ready) = (self.responder.epsn(), !self.recvs.sizes.is_empty());
        if self
            .foreign
            .as_mut()
            .is_some_and(|foreign| foreign.drops(&pkt, epsn))
        {
            return Ok(false);
        }
        match self.responder.on_request(&pkt, &mut self.recvs) {
            Verdict::Drop(reason) => {
                self.counters.drops[reason as usize] += 1;
                let foreign = self.foreign.as_mut();
                let acknowledges = reason == DropReason::Duplicate
                    && foreign.is_some_and(|foreign| foreign.acknowledges_duplicate(&pkt));
                match acknowledges {
                    true => self.acknowledge_unasked(),
                    false => Ok(()),
                }
            }
            Verdict::Reply(reply) => {
                self.counters.replies += 1;
                self.ledger.check_reply(&pkt, &reply, epsn, is_ready)?;
                self.reply(&reply)
            }
            Verdict::Early(nak) => {
                if let Some(reply) = nak {
                    self.counters.replies += 1;
                    self.ledger.check_reply(&pkt, &reply, epsn, is_ready)?;
                    self.reply(&reply)?;
                }
                return Ok(true);
            }
            Verdict::Fail(outcome) => self.execute(outcome),
            Verdict::Place(place) => {
                let start = pkt.payload_offset();
                let payload = bytes.get(start..start + pkt.payload_len() as usize);
                let payload = payload.ok_or("payload is longer than the packet")?;
                let result = self.place(place, payload)?;
                let outcome = self.responder.finish(result);
                let may_be_eager = !outcome.error && outcome.reply.is_none();
                self.execute(outcome)?;
                let foreign = self.foreign.as_mut();
                match may_be_eager && foreign.is_some_and(Foreign::is_eager) {
                    true => self.acknowledge_unasked(),
                    false => Ok(()),
                }
            }
            Verdict::Execute(command) => {
                if let Action::Flush { .. } = command.action {
                    self.command = Some(command);
                    self.command_is_new = true;
                    return Ok(false);
                }
                let start = pkt.payload_offset();
                let payload = bytes.get(start..start + pkt.payload_len() as usize);
                let payload = payload.ok_or("payload is longer than the packet")?;
                let result = self.do_command(&command, payload);
                let outcome = self.responder.executed(result);
                self.execute(outcome)
            }
            Verdict::Read(request) => {
                if request.again {
                    self.recv_tx.lost(pkt.psn(), self.responder.epsn());
                }
                let reth = request.reth;
                let data = Self::region(&mut self.memory, reth.rkey, reth.va, reth.len);
                let result = data.map(|_| ());
                let outcome = self.responder.start_read(result);
                if let (Some(foreign), false) = (&mut self.foreign, request.again) {
                    foreign.read(epsn, self.responder.epsn());
                }
                match outcome {
                    Some(outcome) => self.execute(outcome),
                    None => Ok(()),
                }
            }
        }?;
        Ok(false)
    }

    /// Acknowledges the executed requests, although no acknowledgment was requested.
    fn acknowledge_unasked(&mut self) -> Result<(), Violation> {
        match self.responder.last_ack() {
            Some(reply) if reply.kind == ReplyKind::Acknowledge => self.reply(&reply),
            _ => Ok(()),
        }
    }

    /// Executes a command of the peer on memory.
    fn do_command(&mut self, command: &Command, payload: &[u8]) -> Result<u64, MemError> {
        let len = match command.action {
            Action::Flush { feth, .. } if feth.whole() => 0,
            Action::Flush { len, .. } => len,
            _ => WORD as u32,
        };
        let va = match command.action {
            Action::Flush { feth, .. } if feth.whole() => BASE,
            _ => command.va,
        };
        let area = Self::region(&mut self.memory, command.rkey, va, len)?;
        if let Action::Flush { .. } = command.action {
            self.flushed += 1;
            return Ok(0);
        }
        let word: &mut [u8; WORD] = area.try_into().map_err(|_| MemError::Length)?;
        let found = u64::from_ne_bytes(*word);
        let stored = match command.action {
            Action::CompareSwap { compare, swap } if found == compare => swap,
            Action::CompareSwap { .. } | Action::Flush { .. } => found,
            Action::FetchAdd { add } => found.wrapping_add(add),
            Action::Store => {
                self.written += WORD as u64;
                u64::from_ne_bytes(payload.try_into().map_err(|_| MemError::Length)?)
            }
        };
        *word = stored.to_ne_bytes();
        Ok(found)
    }

    /// Copies payload to its place. This may fail for the memory region, but not for a receive
    /// buffer.
    fn place(&mut self, place: Place, payload: &[u8]) -> Result<Result<(), MemError>, Violation> {
        match place {
            Place::Recv { offset, len } => {
                let held = self.recvs.held.as_mut();
                let held = held.ok_or("no receive WQE is held")?;
                let start = offset as usize;
                let room = held.buffer.get_mut(start..start + len as usize);
                let room = room.ok_or("the payload does not fit the receive WQE")?;
                room.copy_from_slice(payload);
                Ok(Ok(()))
            }
            Place::Remote {
                rkey,
                va,
                len,
                rest,
            } => {
                let room = Self::region(&mut self.memory, rkey, va, rest);
                Ok(room.map(|room| {
                    room[..len as usize].copy_from_slice(payload);
                    self.written += u64::from(len);
                }))
            }
        }
    }

    fn execute(&mut self, outcome: Outcome) -> Result<(), Violation> {
        if let Some(completion) = outcome.completion {
            let held = self.recvs.held.take();
            let held = held.ok_or("a completion without a receive WQE")?;
            self.received.push(Received { completion, held });
        }
        if let Some(reply) = outcome.reply {
            self.reply(&reply)?;
        }
        if outcome.error {
            self.fail();
            self.complete()?;
        }
        Ok(())
    }
}

/// Returns whether a packet is a READ request with PSN `psn`.
fn is_read(bytes: &[u8], psn: Psn) -> bool {
    Packet::parse(bytes)
        .is_ok_and(|packet| packet.opcode() == Opcode::RcReadRequest && packet.psn() == psn)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_>, Violation> {
    Packet::parse(bytes).map_err(|error| format!("{error:?}"))
}
