// SPDX-License-Identifier: GPL-2.0

//! Two nodes, two links, and a clock that jumps to the next event.

use std::{
    cmp::Reverse,
    collections::BinaryHeap, //
};

use roce::{
    opcode::Transport,
    wr::SendOp, //
};

use crate::{
    cause,
    check::Check,
    net::{
        Arrival,
        Disturbances,
        Link,
        TrainFaults, //
    },
    node::{
        Counters,
        Oddities,
        Recoveries,
        Violation, //
    },
    ops,
    pattern,
    Node,
    Rng,
    Scenario, //
};

/// The most events in a run. A run with more of them hangs.
const MAX_EVENTS: u64 = 3_000_000;

/// A node does not send while its link is busy for longer than this.
const MAX_QUEUE_NS: u64 = 200_000;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A packet, or a train, arrives at a node.
    Arrive(usize, Arrival),
    /// The timer of a node may be due.
    Timer(usize),
    /// A node continues its unfinished work.
    Continue(usize),
    /// A node posts receive requests.
    PostRecvs(usize),
    /// The consumer of a node drains the send queue, or continues after that.
    Drain(usize),
}

impl Event {
    /// Returns the node of the event.
    fn node(&self) -> usize {
        match *self {
            Event::Arrive(node, _)
            | Event::Timer(node)
            | Event::Continue(node)
            | Event::PostRecvs(node)
            | Event::Drain(node) => node,
        }
    }
}

/// The summary of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// The virtual time that the run took, in ns.
    pub elapsed: u64,
    /// Events handled.
    pub events: u64,
    /// Packets that reached a node.
    pub packets: u64,
    /// Queue pairs that ended in ERR.
    pub failed: u64,
    /// Operations that completed successfully.
    pub succeeded: u64,
    /// Messages that arrived, with a receive completion.
    pub delivered: u64,
    /// The counters of the nodes.
    pub counters: Counters,
    /// The faults of trains on the links.
    pub train_faults: TrainFaults,
    /// The disturbances of packets on the links.
    pub disturbances: Disturbances,
    /// The recoveries of the nodes.
    pub recoveries: Recoveries,
    /// The peculiarities of a foreign peer.
    pub oddities: Oddities,
}

impl Summary {
    /// Adds another run.
    pub fn add(&mut self, other: &Summary) {
        self.elapsed += other.elapsed;
        self.events += other.events;
        self.packets += other.packets;
        self.failed += other.failed;
        self.succeeded += other.succeeded;
        self.delivered += other.delivered;
        self.counters.add(&other.counters);
        self.train_faults.add(&other.train_faults);
        self.disturbances.add(&other.disturbances);
        self.recoveries.add(&other.recoveries);
        self.oddities.add(&other.oddities);
    }

    /// Returns the number of packets that were sent for READs or WRITEs.
    ///
    /// For READs these are the responses; for WRITEs they include the acknowledgments.
    pub fn sent_for(&self, op: SendOp) -> u64 {
        match op {
            SendOp::Read => self.counters.read_segments,
            _ => self.packets + self.disturbances.missing,
        }
    }

    /// Returns the faults of trains that never happened, although they should in enough RC runs.
    pub fn missing(&self) -> Vec<&'static str> {
        let (requests, responses) = (&self.counters.requests, &self.counters.read_responses);
        let faults = &self.train_faults;
        let counts = [
            (requests.trains, "requests in a train"),
            (requests.refused_trains, "a refused train of requests"),
            (requests.refused_packets, "a refused request"),
            (requests.trains_off, "a timeout that turns trains off"),
            (responses.trains, "READ responses in a train"),
            (responses.refused_trains, "a refused train of responses"),
            (responses.refused_packets, "a refused READ response"),
            (responses.trains_off, "a READ that turns trains off"),
            (self.counters.trains, "a train that arrives"),
            (self.counters.probes, "a probe"),
            (self.counters.losses_found, "a probe that shows a loss"),
            (self.counters.not_late, "a loss after a late packet"),
            (faults.lost, "a lost train"),
            (faults.duplicated, "a duplicated train"),
            (faults.reordered, "a late train"),
            (faults.cut, "a train that is taken apart"),
            (faults.partly_lost, "a train lost in part"),
            (self.disturbances.dropped, "a full queue of a switch"),
            (self.counters.marked, "a packet that a switch marked"),
            (self.counters.cnps, "a congestion notification"),
            (self.recoveries.timeouts, "a timeout"),
            (self.recoveries.gaps, "a missing response"),
            (self.recoveries.rnrs, "a receiver that is not ready"),
            (self.recoveries.overflows, "a full backlog"),
            (self.oddities.coalesced, "a coalesced acknowledgment"),
            (self.oddities.unasked, "an unsolicited acknowledgment"),
            (self.oddities.duplicates, "an acknowledged duplicate"),
            (self.oddities.headless, "a repeated READ without FIRST"),
        ];
        let missing = counts.iter().filter(|(count, _)| *count == 0);
        missing.map(|(_, what)| *what).collect()
    }
}

/// Two nodes, and the packets between them.
pub struct World {
    scenario: Scenario,
    rng: Rng,
    now: u64,
    /// The events, earliest first. The number keeps the order of simultaneous events.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    nodes: [Node; 2],
    links: [Link; 2],
    /// The time of the last scheduled timer event of each node.
    timers: [Option<u64>; 2],
    /// The time when each node continues its unfinished work, if it has any.
    resumes: [Option<u64>; 2],
    draining: [bool; 2],
    /// The number of packets and trains on the links.
    in_flight: u64,
    check: Check,
    summary: Summary,
}

impl World {
    /// Makes the world of a scenario.
    pub fn new(scenario: Scenario, mut rng: Rng) -> World {
        let (ops_a, memory_b) = ops::draw(&mut rng, &scenario, 0);
        let (ops_b, memory_a) = ops::draw(&mut rng, &scenario, 1);
        World::with_ops(scenario, rng, (ops_a, memory_a), (ops_b, memory_b))
    }

    /// Runs a scenario in which node 0 successfully reads or writes `len` bytes `count` times.
    pub fn transfer(scenario: Scenario, rng: Rng, op: SendOp, count: u64, len: u32) -> Summary {
        let (ops, memory) = ops::transfers(op, count, len);
        let world = World::with_ops(scenario, rng, (ops, ops::GUARD), (vec![], memory));
        let summary = world.run().unwrap();
        assert_eq!((summary.succeeded, summary.failed), (count, 0));
        summary
    }

    /// Makes the world of a scenario with the given operations of each node.
    ///
    /// Each node has the given number of bytes of memory for its peer.
    pub fn with_ops(
        scenario: Scenario,
        mut rng: Rng,
        (ops_a, memory_a): (Vec<ops::Op>, usize),
        (ops_b, memory_b): (Vec<ops::Op>, usize),
    ) -> World {
        let node = |index, ops: &[ops::Op], peer_ops: &[ops::Op], memory, rng: &mut Rng| {
            let memory = prepare(memory, peer_ops);
            let sizes = ops::recv_sizes(rng, &scenario, peer_ops);
            Node::new(index, &scenario, ops.to_vec(), memory, sizes)
        };
        let nodes = [
            node(0, &ops_a, &ops_b, memory_a, &mut rng),
            node(1, &ops_b, &ops_a, memory_b, &mut rng),
        ];
        let link = Link::new(
            scenario.faults,
            scenario.latency_ns,
            scenario.sixteenths_per_byte,
            scenario.bottleneck,
        );
        World {
            check: Check::new(&scenario),
            scenario,
            rng,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            nodes,
            links: [link.clone(), link],
            timers: [None; 2],
            resumes: [None; 2],
            draining: [false; 2],
            in_flight: 0,
            summary: Summary::default(),
        }
    }

    /// Runs until both nodes are done and the links are empty.
    pub fn run(mut self) -> Result<Summary, Violation> {
        for node in 0..2 {
            self.schedule(0, Event::PostRecvs(node));
            self.resume_after(0, node);
            if self.scenario.drains {
                let at = self.rng.range(1_000..=500_000);
                self.schedule(at, Event::Drain(node));
            }
        }
        while !self.is_over() {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                return Err(self.hang("nothing is going to happen"));
            };
            self.now = at;
            if let Some((from, until)) = self.scenario.stall {
                if (from..until).contains(&at) && event.node() == 1 {
                    self.schedule(until - at, event);
                    continue;
                }
            }
            self.summary.events += 1;
            if self.summary.events > MAX_EVENTS {
                return Err(self.hang("there is no end"));
            }
            self.handle(event)?;
            self.check.observe(&mut self.nodes)?;
        }
        self.check.finish(&self.nodes)?;
        if self.scenario.transport == Transport::Rc {
            let on_the_way = self.links.each_ref().map(Link::disturbances);
            cause::check(
                &self.nodes,
                on_the_way,
                self.scenario.stalls(),
                self.scenario.is_hasty(),
            )?;
        }
        self.summary.elapsed = self.now;
        self.summary.failed = self.nodes.iter().filter(|node| node.failed()).count() as u64;
        self.summary.succeeded = self.check.succeeded();
        self.summary.delivered = self.check.delivered();
        for node in &self.nodes {
            self.summary.counters.add(&node.counters());
            self.summary.recoveries.add(&node.recoveries());
            self.summary.oddities.add(&node.oddities());
        }
        for link in &self.links {
            self.summary.train_faults.add(link.train_faults());
            self.summary.disturbances.add(&link.disturbances());
        }
        Ok(self.summary)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Arrive(node, arrival) => {
                self.summary.packets += arrival.train.len() as u64;
                self.in_flight -= 1;
                self.nodes[node].on_train(arrival, self.scenario.backlog)?;
                self.go_on(node)
            }
            Event::Timer(node) => {
                self.nodes[node].on_timer(self.now)?;
                self.go_on(node)
            }
            Event::Continue(node) => {
                if self.resumes[node].is_none_or(|at| at > self.now) {
                    return Ok(());
                }
                self.resumes[node] = None;
                self.go_on(node)
            }
            Event::PostRecvs(node) => {
                self.post_recvs(node);
                Ok(())
            }
            Event::Drain(node) => self.drain(node),
        }
    }

    /// Runs a node, and puts its packets on the link.
    fn go_on(&mut self, node: usize) -> Result<(), Violation> {
        let busy = self.links[node].busy_ns(self.now);
        if busy > MAX_QUEUE_NS {
            self.resume_after(busy - MAX_QUEUE_NS / 2, node);
            return Ok(());
        }
        let more = self.nodes[node].run(self.now, &mut self.rng, self.scenario.budget)?;
        while let Some(train) = self.nodes[node].out().pop_front() {
            for arrival in self.links[node].send(self.now, &mut self.rng, train) {
                self.in_flight += 1;
                self.schedule(arrival.at - self.now, Event::Arrive(1 - node, arrival));
            }
        }
        if more {
            self.resume_after(1_000, node);
        }
        if let Some(at) = self.nodes[node].paused_until() {
            self.resume_after(at.saturating_sub(self.now), node);
        }
        let timer = self.nodes[node].next_timeout();
        if timer != self.timers[node] {
            self.timers[node] = timer;
            if let Some(at) = timer {
                let at = at.next_multiple_of(self.scenario.tick_ns.max(1));
                self.schedule(at.saturating_sub(self.now), Event::Timer(node));
            }
        }
        Ok(())
    }

    fn post_recvs(&mut self, node: usize) {
        let batch = match self.scenario.recv_batch {
            0 => u64::MAX,
            batch => batch,
        };
        self.nodes[node].post_recvs(batch);
        if self.nodes[node].has_unposted_recvs() {
            self.schedule(self.scenario.recv_interval_ns, Event::PostRecvs(node));
        }
    }

    /// Drains the send queue, or resumes it after that.
    fn drain(&mut self, node: usize) -> Result<(), Violation> {
        if !self.draining[node] {
            self.draining[node] = true;
            self.nodes[node].set_draining(true);
        } else if self.nodes[node].is_drained() || self.nodes[node].failed() {
            self.draining[node] = false;
            self.nodes[node].set_draining(false);
            return self.go_on(node);
        }
        self.schedule(50_000, Event::Drain(node));
        // The packet that was sent last may have become the last one only now. Then it is sent
        // again as a probe.
        self.go_on(node)
    }

    fn is_over(&self) -> bool {
        self.nodes.iter().all(Node::is_done) && self.in_flight == 0 && self.resumes == [None; 2]
    }

    /// Schedules the node to continue later, unless it does so earlier anyway.
    fn resume_after(&mut self, after_ns: u64, node: usize) {
        let at = self.now + after_ns;
        if self.resumes[node].is_none_or(|earlier| earlier > at) {
            self.resumes[node] = Some(at);
            self.schedule(after_ns, Event::Continue(node));
        }
    }

    fn schedule(&mut self, after_ns: u64, event: Event) {
        self.scheduled += 1;
        let entry = (self.now + after_ns, self.scheduled, event);
        self.events.push(Reverse(entry));
    }

    fn hang(&self, what: &str) -> Violation {
        format!(
            "hangs: {what} at {} ns; done: {:?}",
            self.now,
            self.nodes.each_ref().map(Node::is_done)
        )
    }
}

/// Makes the memory that the peer accesses, with the data of its READs but not of its WRITEs.
fn prepare(len: usize, peer_ops: &[ops::Op]) -> Vec<u8> {
    let mut memory = vec![0; len];
    for op in peer_ops {
        let area = op.area..op.area + op.wr.length as usize;
        match op.wr.op {
            SendOp::Read => pattern::fill(op.wr.wr_id, 0, &mut memory[area]),
            SendOp::CompareSwap => memory[area].copy_from_slice(&op.wr.wr_id.to_ne_bytes()),
            _ => {}
        }
    }
    memory
}
