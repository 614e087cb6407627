// SPDX-License-Identifier: GPL-2.0

//! The conditions that every run must satisfy.
//!
//! - Every posted operation completes exactly once, in the order of posting.
//! - RC: success means that the peer has the data, and the receive completion if there is one.
//!   Messages arrive once, in order and unchanged. After the first error all operations are
//!   flushed. Without faults, only sabotaged operations fail, and they fail with the right status.
//! - RC: atomic operations on a word of the peer are executed exactly once, in order. Every
//!   original value, and the last value, is the sum of the values that were added before.
//! - RC: packets that the stack refuses leave no trace in the half that takes them back. New
//!   packets have consecutive PSNs, and the timer runs only if a response was requested.
//! - RC: every failure has a cause: sabotage, or the end of the retries. With seven retries and a
//!   moderate loss rate, no operation fails. Each recovery has a cause: see [`crate::cause`],
//!   `node::ledger` and `node::probe`. The receive half counts as many messages as were sent.
//! - No operation starts while the send queue drains.
//! - Local operations are executed once, in order.
//! - UC, UD: messages that arrive are unchanged. Only sabotaged operations fail.
//! - A receive request completes at most once, and receive requests complete in order.
//! - No byte is written outside of the areas that operations name.

use roce::{
    opcode::Transport,
    wire::GRH_LEN,
    wr::{
        SendOp,
        Status, //
    },
};

use crate::{
    node::{
        Received,
        Sent,
        Violation, //
    },
    ops::{
        Op,
        Sabotage,
        COUNTER,
        GUARD,
        WORD, //
    },
    Node,
    Scenario, //
};

/// The progress of one node.
#[derive(Debug, Default)]
struct Progress {
    /// The number of operations that completed.
    completed: usize,
    /// The first operation that failed without being flushed, or else the first that was flushed,
    /// and its status.
    failure: Option<(usize, Status)>,
    /// The first operation that was flushed before that one (RC).
    flushed: Option<usize>,
    succeeded: u64,
    /// The number of receive requests that completed.
    received: u64,
    /// The number of those that completed successfully (RC).
    delivered: usize,
}

/// The checks during a run.
#[derive(Debug)]
pub struct Check {
    transport: Transport,
    must_succeed: bool,
    must_recover: bool,
    progress: [Progress; 2],
}

impl Check {
    /// Makes the checks of a run that has not started.
    pub fn new(scenario: &Scenario) -> Check {
        Check {
            transport: scenario.transport,
            must_succeed: scenario.must_succeed(),
            must_recover: scenario.must_recover(),
            progress: Default::default(),
        }
    }

    /// Returns the number of operations that succeeded.
    pub fn succeeded(&self) -> u64 {
        self.progress
            .iter()
            .map(|progress| progress.succeeded)
            .sum()
    }

    /// Returns the number of messages that arrived.
    pub fn delivered(&self) -> u64 {
        self.progress
            .iter()
            .map(|progress| progress.delivered as u64)
            .sum()
    }

    /// Checks the completions since the last call.
    pub fn observe(&mut self, nodes: &mut [Node; 2]) -> Result<(), Violation> {
        for index in 0..2 {
            for received in nodes[index].take_received() {
                self.on_received(index, nodes[1 - index].ops(), received)?;
            }
        }
        for index in 0..2 {
            for sent in nodes[index].take_sent() {
                self.on_sent(index, nodes, sent)?;
            }
        }
        Ok(())
    }

    /// Checks the conditions that can only be checked at the end of a run.
    pub fn finish(&self, nodes: &[Node; 2]) -> Result<(), Violation> {
        for index in 0..2 {
            let (node, peer) = (&nodes[index], &nodes[1 - index]);
            check_guards(node.memory(), peer.ops())?;
            if self.transport == Transport::Rc {
                self.finish_reliable(index, node, peer)?;
                self.finish_counter(index, node, peer)?;
            }
        }
        Ok(())
    }

    fn finish_reliable(&self, index: usize, node: &Node, peer: &Node) -> Result<(), Violation> {
        let progress = &self.progress[index];
        if progress.failure.is_some() != node.failed() && !node.failed() {
            return Err(format!(
                "node {index}: an error did not stop the queue pair"
            ));
        }
        if !node.failed() && !peer.failed() {
            let written: u64 = node
                .ops()
                .iter()
                .filter(|op| op.is_write())
                .map(|op| u64::from(op.wr.length))
                .sum();
            if peer.written() != written {
                return Err(format!(
                    "node {index}: {written} bytes were to be written, {} were",
                    peer.written()
                ));
            }
            let ((sent, _), (_, counted)) = (node.messages(), peer.messages());
            if !sent.contains(&counted) {
                return Err(format!(
                    "node {index}: {sent:?} messages, the peer counts {counted}"
                ));
            }
            let flushes = node.ops().iter().filter(|op| op.wr.op == SendOp::Flush);
            let flushes = flushes.count() as u64;
            if peer.flushed() != flushes {
                return Err(format!(
                    "node {index}: {flushes} FLUSHes, {} were executed",
                    peer.flushed()
                ));
            }
        }
        if !self.must_succeed || is_sabotaged(peer.ops()) {
            return Ok(());
        }
        let expected = node
            .ops()
            .iter()
            .position(|op| op.sabotage.is_certain())
            .map(|at| (at, expected_status(&node.ops()[at])));
        let uncertain = node
            .ops()
            .iter()
            .any(|op| op.sabotage != Sabotage::None && !op.sabotage.is_certain());
        if progress.failure != expected && !uncertain {
            return Err(format!(
                "node {index}: failed with {:?} instead of {expected:?}",
                progress.failure
            ));
        }
        Ok(())
    }

    /// Checks that the counter has the value after a number of additions, in order.
    ///
    /// These are at least the successful ones, and all if no operation failed.
    fn finish_counter(&self, index: usize, node: &Node, peer: &Node) -> Result<(), Violation> {
        let ops = node.ops();
        if !ops.iter().any(|op| op.wr.op == SendOp::FetchAdd) {
            return Ok(());
        }
        let word = peer.memory()[COUNTER..][..WORD].try_into();
        let counter = u64::from_ne_bytes(word.map_err(|_| "no counter")?);
        let progress = &self.progress[index];
        let least = match (node.failed() || peer.failed(), progress.failure) {
            (false, _) => ops.len(),
            (true, Some((at, _))) => progress.flushed.unwrap_or(at),
            (true, None) => progress.completed,
        };
        if !(least..=ops.len()).any(|at| added_before(ops, at) == counter) {
            return Err(format!("node {index}: the peer counted to {counter:#x}"));
        }
        Ok(())
    }

    fn on_sent(&mut self, index: usize, nodes: &[Node; 2], sent: Sent) -> Result<(), Violation> {
        let (node, peer) = (&nodes[index], &nodes[1 - index]);
        let delivered = self.progress[1 - index].delivered;
        let progress = &mut self.progress[index];
        let at = progress.completed;
        progress.completed += 1;
        let wrong = |what: &str| {
            Err(format!(
                "node {index}, op {at}: {what}: {:?}",
                sent.completion
            ))
        };

        let Some(op) = node.ops().get(at) else {
            return wrong("one completion too many");
        };
        let completion = &sent.completion;
        if completion.wr_id != op.wr.wr_id || completion.op != op.wr.op {
            return wrong("out of order");
        }
        let status = completion.status;
        if completion.signalled != (op.wr.signalled || status != Status::Success) {
            return wrong("signalled is wrong");
        }
        if status != Status::Success {
            // RC does not recover from a failure; UC and UD do after the flush.
            match progress.failure {
                None => {
                    progress.failure = Some((at, status));
                    if self.transport == Transport::Rc
                        && !has_cause(node, peer, (at, status), self.must_recover)
                    {
                        return wrong("failed without a cause");
                    }
                }
                Some((first, Status::WrFlush))
                    if self.transport == Transport::Rc && status != Status::WrFlush =>
                {
                    // The peer refused this operation, while a response before it was missing.
                    let missing = &node.ops()[first].wr.op;
                    let refused = op.sabotage != Sabotage::None && expected_status(op) == status;
                    if !missing.has_explicit_response() || !refused {
                        return wrong("an error after a flush");
                    }
                    progress.failure = Some((at, status));
                    progress.flushed = Some(first);
                }
                Some(_) if self.transport == Transport::Rc && status != Status::WrFlush => {
                    return wrong("a second error");
                }
                Some(_) => {}
            }
            if self.transport != Transport::Rc
                && status != Status::WrFlush
                && op.sabotage == Sabotage::None
            {
                return wrong("failed for no reason");
            }
            return Ok(());
        }
        progress.succeeded += 1;
        if self.transport != Transport::Rc {
            return Ok(());
        }

        if progress.failure.is_some() {
            return wrong("success after an error");
        }
        if op.sabotage.is_certain() {
            return wrong("sabotage went unnoticed");
        }
        let before = &node.ops()[..=at];
        if op.takes_recv() && delivered < before.iter().filter(|op| op.takes_recv()).count() {
            return wrong("not delivered");
        }
        let payload = op.payload();
        let intact = match op.wr.op {
            SendOp::Send | SendOp::SendImm | SendOp::SendInv | SendOp::Flush => true,
            SendOp::LocalInv | SendOp::BindMw | SendOp::RegMr => true,
            SendOp::Write | SendOp::WriteImm | SendOp::AtomicWrite => {
                peer.memory()[op.area..op.area + payload.len()] == payload[..]
            }
            SendOp::Read => sent.landed == payload,
            SendOp::FetchAdd => sent.landed == added_before(node.ops(), at).to_ne_bytes(),
            SendOp::CompareSwap => {
                let now = match op.wr.compare == op.wr.wr_id {
                    true => op.wr.swap_add,
                    false => op.wr.wr_id,
                };
                sent.landed == op.wr.wr_id.to_ne_bytes()
                    && peer.memory()[op.area..][..WORD] == now.to_ne_bytes()
            }
        };
        if !intact {
            return wrong("data differs");
        }
        Ok(())
    }

    fn on_received(
        &mut self,
        index: usize,
        peer_ops: &[Op],
        received: Received,
    ) -> Result<(), Violation> {
        let progress = &mut self.progress[index];
        let Received { completion, held } = received;
        let wrong = |what: &str| {
            Err(format!(
                "node {index}, receive WQE {}: {what}: {completion:?}",
                held.number
            ))
        };
        if held.number != progress.received {
            return wrong("out of order");
        }
        progress.received += 1;

        let next = progress.delivered;
        let op = if self.transport == Transport::Rc {
            peer_ops.iter().filter(|op| op.takes_recv()).nth(next)
        } else {
            identify(peer_ops, &completion.imm, &held.buffer, self.transport)
        };
        let Some(op) = op else {
            return wrong("was not sent");
        };
        if completion.status != Status::Success {
            let expected = match op.sabotage {
                Sabotage::TooLong => Status::LocLen,
                Sabotage::BadKey | Sabotage::BadAddress => Status::LocAccess,
                _ => return wrong("failed for no reason"),
            };
            if completion.status != expected {
                return wrong("the wrong status");
            }
            return Ok(());
        }
        progress.delivered += 1;

        let headroom = match self.transport {
            Transport::Ud => GRH_LEN,
            _ => 0,
        };
        let with_rdma = op.wr.op == SendOp::WriteImm;
        let imm = imm(op);
        let invalidated = (op.wr.op == SendOp::SendInv).then_some(op.wr.rkey);
        if completion.byte_len != op.wr.length + headroom
            || completion.with_rdma != with_rdma
            || completion.imm != imm
            || completion.invalidated != invalidated
            || completion.solicited != op.wr.solicited
        {
            return wrong("does not fit what was sent");
        }
        let data = headroom as usize..(headroom + op.wr.length) as usize;
        if !with_rdma && held.buffer[data] != op.payload() {
            return wrong("data differs");
        }
        Ok(())
    }
}

/// Returns whether an operation may be the first that fails.
fn has_cause(node: &Node, peer: &Node, (at, status): (usize, Status), must_recover: bool) -> bool {
    match status {
        Status::RetryExceeded | Status::RnrRetryExceeded => {
            // A peer in ERR does not respond.
            !must_recover || is_sabotaged(node.ops()) || is_sabotaged(peer.ops())
        }
        // A sabotaged operation of the peer has moved the queue pair to ERR. Or the peer has
        // refused a later operation, which also flushes an incomplete READ before it.
        Status::WrFlush => is_sabotaged(peer.ops()) || is_sabotaged(&node.ops()[at..]),
        _ => {
            let op = &node.ops()[at];
            op.sabotage != Sabotage::None && expected_status(op) == status
        }
    }
}

/// Finds the message that arrived by its immediate data or payload.
fn identify<'a>(
    ops: &'a [Op],
    imm: &Option<[u8; 4]>,
    buffer: &[u8],
    transport: Transport,
) -> Option<&'a Op> {
    let start = match transport {
        Transport::Ud => GRH_LEN as usize,
        _ => 0,
    };
    ops.iter().find(|op| match imm {
        Some(_) => self::imm(op) == *imm,
        None => {
            let mut front = [0; 8];
            crate::pattern::fill(op.wr.wr_id, 0, &mut front);
            op.wr.op == SendOp::Send && buffer.get(start..start + 8) == Some(&front[..])
        }
    })
}

/// Returns the immediate data of an operation, if it has any.
fn imm(op: &Op) -> Option<[u8; 4]> {
    matches!(op.wr.op, SendOp::SendImm | SendOp::WriteImm).then_some(op.wr.imm)
}

/// Returns the sum of the values that operations before `at` have added to the counter of the peer.
fn added_before(ops: &[Op], at: usize) -> u64 {
    let adds = ops[..at].iter().filter(|op| op.wr.op == SendOp::FetchAdd);
    adds.fold(0, |sum, op| sum.wrapping_add(op.wr.swap_add))
}

fn is_sabotaged(ops: &[Op]) -> bool {
    ops.iter().any(|op| op.sabotage != Sabotage::None)
}

fn expected_status(op: &Op) -> Status {
    match op.sabotage {
        Sabotage::None => Status::Success,
        Sabotage::BadKey | Sabotage::BadAddress => Status::RemAccess,
        Sabotage::Local { .. } => Status::LocProt,
        Sabotage::TooLong | Sabotage::Unaligned => Status::RemInvReq,
    }
}

/// Checks that the bytes between the areas of a memory region are unchanged.
fn check_guards(memory: &[u8], peer_ops: &[Op]) -> Result<(), Violation> {
    let areas = peer_ops.iter().filter(|op| op.is_rdma());
    let ends = areas.map(|op| op.area + op.wr.length as usize);
    for guard in std::iter::once(0).chain(ends) {
        if memory[guard..guard + GUARD].iter().any(|&byte| byte != 0) {
            return Err(format!("memory was overwritten at {guard}"));
        }
    }
    Ok(())
}
