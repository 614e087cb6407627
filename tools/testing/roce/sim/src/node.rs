// SPDX-License-Identifier: GPL-2.0

//! A node: the driver of the two halves of a queue pair.

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
        ResponseCheckpoint, //
    },
    time::Instant,
    wire::{
        pad_for,
        Packet,
        TxPacket,
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
        SendCheckpoint, //
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

/// The condition that a run violates, in words.
pub type Violation = String;

/// A receive request that was taken from the queue.
#[derive(Debug)]
pub struct Held {
    /// The number of receive requests that were taken before it.
    pub number: u64,
    /// Its buffers.
    pub buffer: Vec<u8>,
}

/// The counters of a node. Arrays are in the order of the variants of the type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Responses by [`ResponseKind`](roce::requester::ResponseKind).
    pub responses: [u64; 11],
    /// Dropped requests by [`DropReason`](roce::responder::DropReason).
    pub drops: [u64; 9],
    /// Requests that were answered at once: duplicate, early or without a receive request.
    pub replies: u64,
    /// READ responses sent.
    pub read_segments: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Probes after the probe timer has expired.
    pub probes: u64,
    /// Packets and responses that the requester has waited for and that were lost.
    pub not_late: u64,
    /// Probes that showed a loss of other packets.
    pub losses_found: u64,
    /// Trains of more than one packet that arrived as one.
    pub trains: u64,
    /// Packets that a switch had marked.
    pub marked: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Packets that were kept until earlier ones arrived.
    pub kept: u64,
    /// The transmit side of requests.
    pub requests: TxCounters,
    /// The transmit side of READ responses.
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
    /// The data that a READ has returned.
    pub landed: Vec<u8>,
}

/// A completion of the receive half.
#[derive(Debug)]
pub struct Received {
    /// The completion.
    pub completion: RecvCompletion,
    /// The receive request that it completes.
    pub held: Held,
}

/// The sizes of the posted receive requests.
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

/// A node: one end of the connection.
pub struct Node {
    requester: Requester<Vec<Slot>>,
    responder: Responder,
    /// All operations, of which the first `posted` were posted.
    ops: Vec<Op>,
    posted: usize,
    /// The operation in each slot.
    slots: Vec<usize>,
    /// The data that READs have returned so far, per operation.
    landed: Vec<Vec<u8>>,
    memory: Vec<u8>,
    recvs: RecvRing,
    /// The sizes of the receive requests that are not posted yet.
    unposted_recvs: VecDeque<u32>,
    backlog: VecDeque<Vec<u8>>,
    /// Requests that are kept until earlier ones arrive, and the most that may be kept.
    early: VecDeque<Vec<u8>>,
    early_room: usize,
    /// Responses that are kept until missing ones arrive.
    early_responses: VecDeque<Vec<u8>>,
    response_room: usize,
    /// True if the queue pair is in ERR.
    failed: bool,
    reliable: bool,
    max_rd_atomic: usize,
    completed: usize,
    /// The number of times that the sabotaged part of each operation was handled.
    attempts: Vec<u32>,
    /// The progress of each operation.
    progress: Vec<Progress>,
    /// The PSNs that were sent.
    wire: Wire,
    /// The recoveries.
    ledger: Ledger,
    /// The peculiarities of the receive half, if it is not that of crate `roce`.
    foreign: Option<Foreign>,
    /// True if no operation may start.
    draining: bool,
    written: u64,
    /// FLUSHes that were executed.
    flushed: u64,
    /// A command of the peer that is not executed at once.
    command: Option<Command>,
    /// True if it arrived since the half was run last. It is executed the next time.
    command_is_new: bool,
    counters: Counters,
    sent: Vec<Sent>,
    received: Vec<Received>,
    send_tx: Tx<SendCheckpoint>,
    recv_tx: Tx<(ResponseCheckpoint, ReadSegment)>,
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

    /// Returns the completions of the send half since the last call.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Returns the completions of the receive half since the last call.
    pub fn take_received(&mut self) -> Vec<Received> {
        std::mem::take(&mut self.received)
    }

    /// Returns the number of bytes that the peer has written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of FLUSHes of the peer that were executed.
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

    /// Returns the time of the next call of [`Node::on_timer`], if one is needed.
    pub fn next_timeout(&self) -> Option<u64> {
        self.requester.next_timeout().map(Instant::as_ns)
    }

    /// Returns the end of the pause of a half for whose packets the stack had no room.
    pub fn paused_until(&self) -> Option<u64> {
        let ends = [self.send_tx.paused_until(), self.recv_tx.paused_until()];
        ends.into_iter().flatten().map(Instant::as_ns).min()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        Counters {
            requests: self.send_tx.counters(),
            read_responses: self.recv_tx.counters(),
            ..self.counters
        }
    }

    /// Returns the recoveries.
    pub fn recoveries(&self) -> Recoveries {
        self.ledger.total()
    }

    /// Returns whether requests that arrive before a missing one are kept.
    pub(crate) fn keeps_early(&self) -> bool {
        self.early_room > 0
    }

    /// Returns the counts of the peculiarities of the receive half.
    pub fn oddities(&self) -> Oddities {
        self.foreign
            .as_ref()
            .map(Foreign::oddities)
            .unwrap_or_default()
    }

    /// Returns the range of the number of messages that were sent, and the MSN of the receive half.
    pub fn messages(&self) -> (RangeInclusive<u32>, u32) {
        (self.wire.messages(), self.responder.snapshot().msn)
    }

    /// Handles expired timers of the send half.
    pub fn on_timer(&mut self, now: u64) -> Result<(), Violation> {
        let left = self.requester.snapshot().retries_left;
        match self.requester.on_timeout(Instant::from_ns(now)) {
            Expired::Nothing | Expired::RnrTimer => {}
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

    /// Handles all packets of a train from the network. Only replies are sent meanwhile.
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

    /// Runs both halves, which send up to `budget` packets each.
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

    /// Sends an acknowledgment, which neither waits for room nor joins a train.
    fn reply(&mut self, reply: &Reply) -> Result<(), Violation> {
        let replies = match &mut self.foreign {
            Some(foreign) => foreign.reply(reply),
            None => vec![*reply],
        };
        replies.iter().try_for_each(|reply| self.send_reply(reply))
    }

    /// Sends an acknowledgment that was held back long enough. Returns whether one still is.
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
        let packet = packet(reply, &[])?;
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

    /// Returns whether the local memory of an operation fails at these bytes.
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
fn packet(sent: &impl TxPacket, payload: &[u8]) -> Result<Vec<u8>, Violation> {
    let mut head = [0; MAX_HEADER_LEN];
    let len = sent.write_headers(&mut head).ok_or("headers do not fit")?;
    if len != sent.opcode().header_len() || payload.len() as u32 != sent.payload_len() {
        return Err("lengths of the packet are wrong".into());
    }
    let mut bytes = head[..len].to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + usize::from(pad_for(payload.len() as u32)), 0);
    let sum = pattern::checksum(&bytes);
    bytes.extend_from_slice(&sum);
    Ok(bytes)
}

/// The status that sabotaged local data completes with.
const LOCAL_STATUS: Status = Status::LocProt;
