// SPDX-License-Identifier: GPL-2.0

//! One end: the shell around the two halves of a queue pair.

mod congestion;
mod foreign;
mod ledger;
mod probe;
mod recv;
mod send;
mod tx;
mod wire;

pub use self::{
    foreign::Oddities,
    ledger::Recoveries,
    tx::TxCounters, //
};

use std::{
    collections::VecDeque,
    ops::RangeInclusive, //
};

use roce::{
    congestion::Congestion,
    ids::{
        Pkey,
        Qpn,
        Rkey, //
    },
    opcode::Transport,
    requester::{
        Expired,
        Requester,
        ResponseKind,
        SendCompletion,
        Slot, //
    },
    responder::{
        Command,
        ReadSegment,
        RecvCompletion,
        RecvQueue,
        Reply,
        Responder,
        ResponseMark, //
    },
    time::Instant,
    wire::{
        pad_for,
        Packet,
        MAX_HEADER_LEN, //
    },
    wr::{
        MemError,
        Status, //
    },
};

use self::{
    foreign::Foreign,
    ledger::Ledger,
    send::{
        Progress,
        SendMark, //
    },
    tx::Tx,
    wire::Wire, //
};
use crate::{
    net::{
        Arrival,
        Train, //
    },
    ops::{
        Op,
        Sabotage,
        BASE,
        RKEY, //
    },
    pattern,
    Rng,
    Scenario, //
};

/// Why a run is wrong.
pub type Violation = String;

/// A receive work request that was taken.
#[derive(Debug)]
pub struct Held {
    /// How many were taken before it.
    pub number: u64,
    /// Its buffers.
    pub buffer: Vec<u8>,
}

/// How often each thing happened, in the order of the variants of its type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Responses by [`ResponseKind`](roce::requester::ResponseKind).
    pub responses: [u64; 11],
    /// Dropped requests by [`DropReason`](roce::responder::DropReason).
    pub drops: [u64; 9],
    /// Requests that were answered at once: duplicates, early ones, no receive work request.
    pub replies: u64,
    /// READ responses sent.
    pub read_segments: u64,
    /// Timeouts of a queue pair.
    pub timeouts: u64,
    /// Probes for lost responses.
    pub probes: u64,
    /// Packets and responses that seemed to be late and were lost.
    pub not_late: u64,
    /// Probes that showed a loss of other packets.
    pub losses_found: u64,
    /// Trains of more than one packet that arrived as one.
    pub trains: u64,
    /// Packets that a switch had marked.
    pub marked: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Packets that were kept until earlier ones came.
    pub kept: u64,
    /// Requests on their way to the stack.
    pub requests: TxCounters,
    /// READ responses on their way to the stack.
    pub read_responses: TxCounters,
}

impl Counters {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Counters) {
        for (sum, count) in self.responses.iter_mut().zip(other.responses) {
            *sum += count;
        }
        for (sum, count) in self.drops.iter_mut().zip(other.drops) {
            *sum += count;
        }
        self.replies += other.replies;
        self.read_segments += other.read_segments;
        self.timeouts += other.timeouts;
        self.probes += other.probes;
        self.not_late += other.not_late;
        self.losses_found += other.losses_found;
        self.trains += other.trains;
        self.marked += other.marked;
        self.cnps += other.cnps;
        self.kept += other.kept;
        self.requests.add(&other.requests);
        self.read_responses.add(&other.read_responses);
    }
}

/// A completion of the send half.
#[derive(Debug)]
pub struct Sent {
    /// The completion.
    pub completion: SendCompletion,
    /// The data that a READ has brought.
    pub landed: Vec<u8>,
}

/// A completion of the receive half.
#[derive(Debug)]
pub struct Received {
    /// The completion.
    pub completion: RecvCompletion,
    /// The receive work request that it ends.
    pub held: Held,
}

/// The posted receive work requests: only their sizes.
#[derive(Debug, Default)]
pub struct RecvRing {
    sizes: VecDeque<u32>,
    taken: u64,
    held: Option<Held>,
}

impl RecvQueue for RecvRing {
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        assert!(self.held.is_none(), "a second receive WQE was taken");
        let size = self.sizes.pop_front()?;
        self.held = Some(Held {
            number: self.taken,
            buffer: vec![0; size as usize],
        });
        self.taken += 1;
        Some(Ok(size))
    }
}

/// One end of the connection.
pub struct Node {
    requester: Requester<Vec<Slot>>,
    responder: Responder,
    /// Everything that gets posted, and how much of it was.
    ops: Vec<Op>,
    posted: usize,
    /// The operation in each slot.
    slots: Vec<usize>,
    /// What READs have brought so far, per operation.
    landed: Vec<Vec<u8>>,
    memory: Vec<u8>,
    recvs: RecvRing,
    /// Sizes of the receive work requests that are not posted yet.
    unposted_recvs: VecDeque<u32>,
    backlog: VecDeque<Vec<u8>>,
    /// Packets that came before an earlier one, and how many may be kept.
    early: VecDeque<Vec<u8>>,
    early_room: usize,
    /// Responses that came before an earlier one.
    early_responses: VecDeque<Vec<u8>>,
    response_room: usize,
    /// Whether the queue pair is in ERR.
    failed: bool,
    reliable: bool,
    max_rd_atomic: usize,
    completed: usize,
    /// How often the sabotaged part of each operation was handled.
    attempts: Vec<u32>,
    /// How far each operation is.
    progress: Vec<Progress>,
    /// The PSNs that were sent.
    wire: Wire,
    /// What was done to recover.
    ledger: Ledger,
    /// The habits of the receive half, if they are not those of crate `roce`.
    foreign: Option<Foreign>,
    /// Whether no operation may start.
    draining: bool,
    written: u64,
    /// FLUSHes that were executed.
    flushed: u64,
    /// A command of the peer that takes longer.
    command: Option<Command>,
    /// Whether it came since the half was run last, so that it takes until the next time.
    command_is_new: bool,
    counters: Counters,
    sent: Vec<Sent>,
    received: Vec<Received>,
    send_tx: Tx<SendMark>,
    recv_tx: Tx<(ResponseMark, ReadSegment)>,
    /// Marks on requests of the peer.
    request_congestion: Congestion,
    /// Marks on READ responses of the peer.
    response_congestion: Congestion,
    peer_qpn: Qpn,
    out: VecDeque<Train>,
}

impl Node {
    /// Makes a node that will post `ops`, owns `memory`, and will post receive work requests of
    /// `recv_sizes`.
    pub fn new(
        index: u64,
        scenario: &Scenario,
        ops: Vec<Op>,
        memory: Vec<u8>,
        recv_sizes: Vec<u32>,
    ) -> Node {
        let slots = vec![Slot::default(); scenario.slots];
        let mut requester = Requester::new(scenario.transport, slots);
        requester.set_params(&scenario.send_params(index));
        requester.set_psn(scenario.psn(index));
        let takes_part = !(scenario.foreign && index == 1);
        let mut responder = Responder::new(scenario.transport);
        responder.set_params(&scenario.recv_params(index));
        responder.set_epsn(scenario.psn(1 - index));
        Node {
            requester,
            responder,
            landed: vec![Vec::new(); ops.len()],
            posted: 0,
            slots: vec![0; scenario.slots],
            memory,
            recvs: RecvRing::default(),
            unposted_recvs: recv_sizes.into(),
            backlog: VecDeque::new(),
            early: VecDeque::new(),
            early_responses: VecDeque::new(),
            response_room: scenario.early,
            early_room: match scenario.foreign && index == 1 {
                true => 0,
                false => scenario.early,
            },
            failed: false,
            reliable: scenario.transport == Transport::Rc,
            max_rd_atomic: usize::from(scenario.send_params(index).max_rd_atomic),
            completed: 0,
            attempts: vec![0; ops.len()],
            progress: vec![Progress::default(); ops.len()],
            wire: Wire::new(scenario.psn(index), scenario.mtu),
            ledger: Ledger::new(scenario.send_params(index), scenario.psn(index)),
            foreign: (scenario.foreign && index == 1).then(|| Foreign::new(scenario.seed)),
            draining: false,
            written: 0,
            flushed: 0,
            command: None,
            command_is_new: false,
            counters: Counters::default(),
            sent: Vec::new(),
            received: Vec::new(),
            ops,
            send_tx: Tx::new(scenario.stack),
            recv_tx: Tx::new(scenario.stack),
            request_congestion: Congestion::new(takes_part),
            response_congestion: Congestion::new(takes_part),
            peer_qpn: scenario.send_params(index).dest_qpn,
            out: VecDeque::new(),
        }
    }

    /// Takes the completions of the send half since the last time.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Takes the completions of the receive half since the last time.
    pub fn take_received(&mut self) -> Vec<Received> {
        std::mem::take(&mut self.received)
    }

    /// Returns how many bytes the peer has written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns how many FLUSHes of the peer were executed.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Returns the operations of the node.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the memory that the peer may access.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Returns whether the queue pair is in ERR.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Returns whether all operations have completed.
    pub fn is_done(&self) -> bool {
        self.completed == self.ops.len()
    }

    /// Returns the packets and trains that wait for the link.
    pub fn out(&mut self) -> &mut VecDeque<Train> {
        &mut self.out
    }

    /// Posts receive work requests.
    pub fn post_recvs(&mut self, count: u64) {
        for _ in 0..count {
            match self.unposted_recvs.pop_front() {
                Some(size) => self.recvs.sizes.push_back(size),
                None => break,
            }
        }
    }

    /// Returns whether there are receive work requests that are not posted yet.
    pub fn has_unposted_recvs(&self) -> bool {
        !self.unposted_recvs.is_empty()
    }

    /// Starts to drain the send queue, or ends it.
    pub fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
        if draining {
            self.requester.drain();
        } else {
            self.requester.resume();
        }
    }

    /// Returns whether the send queue was drained.
    pub fn is_drained(&self) -> bool {
        self.requester.is_drained()
    }

    /// Returns when [`Node::on_timer`] wants to be called.
    pub fn next_timeout(&self) -> Option<u64> {
        self.requester.next_timeout().map(Instant::as_ns)
    }

    /// Returns when a half goes on for whose packets the stack had no room.
    pub fn paused_until(&self) -> Option<u64> {
        let ends = [self.send_tx.paused_until(), self.recv_tx.paused_until()];
        ends.into_iter().flatten().map(Instant::as_ns).min()
    }

    /// Returns how often each thing happened.
    pub fn counters(&self) -> Counters {
        Counters {
            requests: self.send_tx.counters(),
            read_responses: self.recv_tx.counters(),
            ..self.counters
        }
    }

    /// Returns what was done to recover.
    pub fn recoveries(&self) -> Recoveries {
        self.ledger.total()
    }

    /// Returns whether requests that arrive before a missing one are kept.
    pub(crate) fn keeps_early(&self) -> bool {
        self.early_room > 0
    }

    /// Returns what the receive half did that crate `roce` does not do.
    pub fn oddities(&self) -> Oddities {
        self.foreign
            .as_ref()
            .map(Foreign::oddities)
            .unwrap_or_default()
    }

    /// Returns how many messages were sent, at least and at most, and how many of the peer's the
    /// receive half counts.
    pub fn messages(&self) -> (RangeInclusive<u32>, u32) {
        (self.wire.messages(), self.responder.snapshot().msn)
    }

    /// Lets the send half do what is due.
    pub fn on_timer(&mut self, now: u64) -> Result<(), Violation> {
        let left = self.requester.snapshot().retries_left;
        match self.requester.on_timeout(Instant::from_ns(now)) {
            Expired::Nothing => {}
            Expired::Probe => {
                self.counters.probes += 1;
                let half = self.requester.snapshot();
                self.ledger.probes().is_due(now, left, &half)?;
            }
            Expired::Missing(kind) => {
                self.counters.not_late += 1;
                let half = self.requester.snapshot();
                self.ledger.responded(now, kind, &half);
                if kind == ResponseKind::NakSequence {
                    self.lost_oldest();
                }
            }
            Expired::Retry => {
                self.counters.timeouts += 1;
                self.ledger.timed_out();
                self.lost_oldest();
            }
        }
        Ok(())
    }

    /// Takes a train from the network: all its packets, before anything is sent but replies.
    pub fn on_train(&mut self, arrival: Arrival, backlog: usize) -> Result<(), Violation> {
        let train = arrival.train;
        self.counters.trains += u64::from(train.len() > 1);
        for bytes in train {
            if arrival.is_marked {
                self.on_marked(arrival.at, &bytes)?;
            }
            self.on_packet(arrival.at, bytes, backlog)?;
        }
        Ok(())
    }

    fn on_packet(&mut self, now: u64, bytes: Vec<u8>, backlog: usize) -> Result<(), Violation> {
        if self.failed {
            return Ok(());
        }
        let body = bytes.len().saturating_sub(4);
        if pattern::checksum(&bytes[..body]) != bytes[body..] {
            return Ok(());
        }
        let pkt = Packet::parse(&bytes).map_err(|error| format!("sent a bad packet: {error:?}"))?;
        if pkt.opcode().is_request() {
            if !self.responder.is_busy() && self.backlog.is_empty() {
                return self.take(bytes);
            }
            if self.backlog.len() < backlog {
                self.backlog.push_back(bytes);
            } else {
                self.ledger.overflowed();
            }
            Ok(())
        } else {
            self.take_response(Instant::from_ns(now), bytes)
        }
    }

    /// Does everything that can be done now, and sends up to `budget` packets per half.
    ///
    /// Returns whether there is more to do.
    pub fn run(&mut self, now: u64, rng: &mut Rng, budget: u64) -> Result<bool, Violation> {
        let now = Instant::from_ns(now);
        self.recv_tx.expire(now);
        self.send_tx.expire(now);
        let received = self.run_responder(now, rng, budget)?;
        let sent = self.run_requester(now, rng, budget)?;
        let holds = self.release(now.as_ns())?;
        Ok(received || sent || holds)
    }

    /// Moves the queue pair to ERR.
    fn fail(&mut self) {
        self.failed = true;
        self.requester.flush();
        self.backlog.clear();
        self.early.clear();
        self.early_responses.clear();
        self.command = None;
        self.recvs.held = None;
        if let Some(foreign) = &mut self.foreign {
            foreign.stop();
        }
    }

    /// Sends an acknowledgment. It neither waits for room nor joins a train.
    fn reply(&mut self, reply: &Reply) -> Result<(), Violation> {
        let replies = match &mut self.foreign {
            Some(foreign) => foreign.reply(reply),
            None => vec![*reply],
        };
        replies.iter().try_for_each(|reply| self.send_reply(reply))
    }

    /// Sends what was held back for long enough. Returns whether something still is.
    fn release(&mut self, now: u64) -> Result<bool, Violation> {
        let Some(foreign) = &mut self.foreign else {
            return Ok(false);
        };
        let (reply, holds) = (foreign.release(now), foreign.holds());
        if let Some(reply) = reply {
            self.send_reply(&reply)?;
        }
        Ok(holds)
    }

    fn send_reply(&mut self, reply: &Reply) -> Result<(), Violation> {
        let packet = packet(|pkey, buf| reply.write_headers(pkey, buf), &[])?;
        self.out.push_back(vec![packet]);
        Ok(())
    }

    /// Returns the part of the memory region that the peer named.
    fn region(memory: &mut [u8], rkey: Rkey, va: u64, len: u32) -> Result<&mut [u8], MemError> {
        if rkey != RKEY {
            return Err(MemError::Protection);
        }
        let start = va.checked_sub(BASE).ok_or(MemError::Protection)? as usize;
        let end = start.checked_add(len as usize);
        end.and_then(|end| memory.get_mut(start..end))
            .ok_or(MemError::Protection)
    }

    /// Returns whether the local memory of an operation is gone when it comes to these bytes.
    fn is_gone(&mut self, op: usize, offset: u32, len: u32) -> bool {
        let Sabotage::Local {
            offset: at,
            attempt,
        } = self.ops[op].sabotage
        else {
            return false;
        };
        if at >= offset && at < offset + len {
            self.attempts[op] += 1;
        }
        len > 0 && self.attempts[op] >= attempt
    }
}

/// Returns a packet: headers, payload, pad and checksum.
fn packet(
    headers: impl FnOnce(Pkey, &mut [u8]) -> Option<usize>,
    payload: &[u8],
) -> Result<Vec<u8>, Violation> {
    let mut head = [0; MAX_HEADER_LEN];
    let len = headers(Pkey::DEFAULT, &mut head).ok_or("headers do not fit")?;
    let mut bytes = head[..len].to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + usize::from(pad_for(payload.len() as u32)), 0);
    let sum = pattern::checksum(&bytes);
    bytes.extend_from_slice(&sum);
    Ok(bytes)
}

/// The status that sabotaged local data completes with.
const LOCAL_STATUS: Status = Status::LocProt;
