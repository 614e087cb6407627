// SPDX-License-Identifier: GPL-2.0

//! The parameters of a run, which are drawn from the seed.

use std::num::NonZero;

use roce::{
    ids::{
        Qkey,
        Qpn, //
    },
    opcode::Transport,
    psn::Psn,
    qp::QpAccess,
    requester::SendParams,
    responder::RecvParams,
    time::ack_timeout_ns, //
};

use crate::{
    net::Faults,
    switch::Bottleneck,
    Rng, //
};

/// The code of a timeout (65 µs) that is shorter than many round trips.
const HASTY: u8 = 4;

/// The loss rate in thousandths up to which seven retries are enough.
const MODERATE: u64 = 60;

/// The parameters of the network stack of a host.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The most packets of a train.
    pub max_train: usize,
    /// The rate in thousandths at which it has no room for a train or for a single packet.
    pub refuse: u64,
    /// The rate in thousandths at which a copy of a refused packet, or of the first packets of a
    /// refused train, leaves (RC).
    pub leave: u64,
    /// The most consecutive refusals.
    pub most_refusals: u64,
    /// The pause of a half after a refusal, in ns.
    pub pause_ns: u64,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed from which the parameters were drawn.
    pub seed: u64,
    /// The service type of both queue pairs.
    pub transport: Transport,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Slots of a send half.
    pub slots: usize,
    /// The most operations that a node posts.
    pub max_ops: u64,
    /// The rate in thousandths of runs in which an operation of a node is sabotaged.
    pub sabotage: u64,
    /// The faults of the network.
    pub faults: Faults,
    /// The one-way latency, in ns.
    pub latency_ns: u64,
    /// The time that a byte takes on the link, in 1/16 ns.
    pub sixteenths_per_byte: u64,
    /// The most packets that a half sends at once.
    pub budget: u64,
    /// The most packets that a node keeps while it cannot handle them.
    pub backlog: usize,
    /// The most packets that a node keeps until earlier ones arrive. 0: none, as C rxe.
    pub early: usize,
    /// The number of receive requests that a node posts at once. 0: all at the start.
    pub recv_batch: u64,
    /// The time between two such posts, in ns.
    pub recv_interval_ns: u64,
    /// True if the send queues are drained in mid-traffic.
    pub drains: bool,
    /// The start and the end of a time in which node 1 does nothing.
    pub stall: Option<(u64, u64)>,
    /// The first PSN of each node.
    pub first_psn: [u32; 2],
    /// The switch on the way, if there is one.
    pub bottleneck: Option<Bottleneck>,
    /// The resolution of timers, in ns. 0: they expire exactly when they are due.
    pub tick_ns: u64,
    /// True if the receive half of node 1 has the peculiarities of other implementations.
    pub foreign: bool,
    ack_timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    min_rnr_timer: u8,
    /// The most outstanding requests with an explicit response.
    pub max_rd_atomic: u8,
    /// The network stack of each host.
    pub stack: Stack,
}

impl Scenario {
    /// Draws the parameters.
    pub fn draw(seed: u64, transport: Transport) -> (Scenario, Rng) {
        let mut rng = Rng::new(seed);
        let faults = draw_faults(&mut rng);
        let slow = rng.chance(300);
        let mut scenario = Scenario {
            seed,
            transport,
            mtu: rng.pick(&[256, 512, 1024, 2048, 4096]),
            slots: rng.range(1..=64) as usize,
            max_ops: rng.pick(&[4, 16, 40]),
            sabotage: 50,
            faults,
            latency_ns: rng.pick(&[500, 5_000, 20_000]),
            sixteenths_per_byte: rng.pick(&[1, 16]),
            budget: rng.pick(&[1, 4, 64]),
            backlog: rng.pick(&[8, 128]),
            early: 0,
            recv_batch: if slow { rng.range(1..=4) } else { 0 },
            recv_interval_ns: rng.pick(&[20_000, 200_000]),
            drains: rng.chance(100),
            stall: None,
            first_psn: [draw_psn(&mut rng), draw_psn(&mut rng)],
            ack_timeout: rng.pick(&[10, 11, 12]),
            retry_cnt: draw_retries(&mut rng),
            rnr_retry: draw_retries(&mut rng),
            min_rnr_timer: rng.range(1..=14) as u8,
            max_rd_atomic: rng.pick(&[1, 2, 16]),
            stack: draw_stack(&mut rng, &faults),
            bottleneck: None,
            tick_ns: 0,
            foreign: false,
        };
        if transport == Transport::Ud {
            // It never waits for room.
            scenario.stack.refuse = 0;
        }
        draw_train_faults(&mut rng, &mut scenario.faults);
        scenario.tick_ns = rng.pick(&[0, 0, 1_000_000, 4_000_000]);
        if rng.chance(150) {
            scenario.bottleneck = Some(draw_bottleneck(&mut rng, &scenario));
        }
        scenario.foreign = transport == Transport::Rc && rng.chance(200);
        if rng.chance(50) {
            scenario.ack_timeout = HASTY;
        }
        // A generator of its own leaves the other parameters of a seed as they are.
        let mut others = Rng::new(!seed);
        scenario.early = others.pick(&[0, 8, 128]);
        if transport == Transport::Rc {
            scenario.stack.leave = others.pick(&[0, 0, 500]);
        }
        if scenario.stack.leave > 0 {
            // If the peer refuses a copy, it answers no retry, and the NAK is not expected yet.
            scenario.sabotage = 0;
        }
        (scenario, rng)
    }

    /// Returns the scenario of a READ from a peer that stops for a bit more than one timeout.
    ///
    /// Each part of the READ takes four times as long as the timeout.
    pub fn slow() -> Scenario {
        let timeout = 4_194_304;
        Scenario {
            seed: 0,
            transport: Transport::Rc,
            mtu: 1024,
            slots: 4,
            max_ops: 1,
            sabotage: 0,
            faults: Faults::default(),
            latency_ns: 5_000,
            sixteenths_per_byte: 256,
            budget: 64,
            backlog: 128,
            early: 128,
            recv_batch: 0,
            recv_interval_ns: 0,
            drains: false,
            stall: Some((10 * timeout, 10 * timeout + timeout * 5 / 4)),
            first_psn: [100, 200],
            ack_timeout: 10,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 1,
            bottleneck: None,
            tick_ns: 0,
            foreign: false,
            stack: Stack {
                max_train: 60,
                refuse: 0,
                leave: 0,
                most_refusals: 0,
                pause_ns: 0,
            },
        }
    }

    /// Returns a scenario of long messages over a fast link without faults, from a peer that never
    /// stops.
    pub fn fast() -> Scenario {
        Scenario {
            stall: None,
            mtu: 4096,
            slots: 64,
            sixteenths_per_byte: 16,
            latency_ns: 20_000,
            max_rd_atomic: 16,
            ..Scenario::slow()
        }
    }

    /// Returns the number of the queue pair of a node.
    pub fn qpn(&self, node: u64) -> u32 {
        0x11 + node as u32
    }

    /// Returns the attributes of the send half of a node.
    pub fn send_params(&self, node: u64) -> SendParams {
        SendParams {
            mtu: self.mtu,
            dest_qpn: Qpn::new(self.qpn(1 - node)),
            src_qpn: Qpn::new(self.qpn(node)),
            ack_timeout: ack_timeout_ns(self.ack_timeout),
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            has_ecn: true,
        }
    }

    /// Returns the attributes of the receive half of a node.
    pub fn recv_params(&self, node: u64) -> RecvParams {
        RecvParams {
            mtu: self.mtu,
            dest_qpn: Qpn::new(self.qpn(1 - node)),
            min_rnr_timer: self.min_rnr_timer,
            qkey: Qkey::new(0x1111),
            access: QpAccess::from_bits(
                QpAccess::REMOTE_WRITE
                    | QpAccess::REMOTE_READ
                    | QpAccess::REMOTE_ATOMIC
                    | QpAccess::FLUSH_GLOBAL,
            )
            .unwrap_or_default(),
            max_dest_rd_atomic: self.max_rd_atomic,
        }
    }

    /// Returns the first PSN that a node sends.
    pub fn psn(&self, node: u64) -> Psn {
        Psn::new(self.first_psn[node as usize])
    }

    /// Returns whether the timeout is shorter than a round trip.
    pub fn is_hasty(&self) -> bool {
        self.ack_timeout == HASTY
    }

    /// Returns the number of timeouts that fit in the time in which node 1 does nothing.
    pub fn stalls(&self) -> u64 {
        let timeout = ack_timeout_ns(self.ack_timeout).map_or(u64::MAX, NonZero::get);
        let stall = self.stall.map_or(0, |(from, until)| until - from);
        stall.div_ceil(timeout)
    }

    /// Returns whether the retries are enough for the losses of the network.
    pub fn must_recover(&self) -> bool {
        let Faults {
            loss,
            corrupt,
            partial_loss,
            ..
        } = self.faults;
        loss + corrupt + partial_loss <= MODERATE
            && !self.is_hasty()
            && self.retry_cnt == 7
            && self.backlog >= 128
            && self.bottleneck.is_none_or(|bottleneck| bottleneck.limit >= 32)
            // A READ fails if its responses take longer than the timeout, and some are lost.
            && (self.stack.refuse == 0 || self.stack.pause_ns < 1_000_000)
            && (self.rnr_retry == 7 || self.recv_batch == 0)
    }

    /// Returns whether only sabotage can make an operation fail.
    ///
    /// This is so if there are enough retries, or if none are needed.
    pub fn must_succeed(&self) -> bool {
        let clean = self.faults.is_none() && self.bottleneck.is_none();
        let clean = clean && self.backlog >= 128 && !self.is_hasty();
        // A READ response to a copy is ignored if the READ was refused and is yet to be sent. If
        // the READ is sent before the next response to the copy, the gap costs a retry.
        let clean = clean && (self.stack.leave == 0 || self.retry_cnt > 0);
        clean && (self.rnr_retry == 7 || self.recv_batch == 0)
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    match rng.range(0..=9) {
        0 | 1 => Faults::default(),
        2 => Faults {
            loss: rng.pick(&[10, 50]),
            ..Faults::default()
        },
        3 => Faults {
            duplicate: 50,
            ..Faults::default()
        },
        4 => Faults {
            reorder: 100,
            ..Faults::default()
        },
        5 => Faults {
            corrupt: 30,
            ..Faults::default()
        },
        _ => Faults {
            loss: rng.pick(&[2, 20, 100, 200]),
            duplicate: rng.pick(&[0, 10, 50]),
            reorder: rng.pick(&[0, 20, 100]),
            corrupt: rng.pick(&[0, 10]),
            ..Faults::default()
        },
    }
}

/// Draws the faults of trains. Any network may split them, and a lossy one may lose parts of them.
fn draw_train_faults(rng: &mut Rng, faults: &mut Faults) {
    faults.cut = rng.pick(&[0, 100, 1000]);
    if faults.loss > 0 {
        faults.partial_loss = rng.pick(&[0, 50, 300]);
    }
}

/// Draws a switch. The link behind it is up to four times as slow as that of the hosts.
fn draw_bottleneck(rng: &mut Rng, scenario: &Scenario) -> Bottleneck {
    let limit = rng.pick(&[8, 32, 128]);
    Bottleneck {
        sixteenths_per_byte: scenario.sixteenths_per_byte * rng.range(1..=4),
        limit,
        mark: limit / 4,
    }
}

/// Draws a stack. Without faults, its pauses are shorter than a timeout, so that no retry is
/// needed.
fn draw_stack(rng: &mut Rng, faults: &Faults) -> Stack {
    Stack {
        max_train: rng.range(1..=60) as usize,
        refuse: rng.pick(&[0, 20, 200, 600]),
        leave: 0,
        most_refusals: match faults.is_none() {
            true => 2,
            false => rng.pick(&[2, 50]),
        },
        pause_ns: rng.pick(&[1_000, 50_000, 1_000_000]),
    }
}

/// Draws a first PSN, often just before the wrap.
fn draw_psn(rng: &mut Rng) -> u32 {
    if rng.chance(500) {
        0x0100_0000 - rng.range(1..=300) as u32
    } else {
        rng.range(0..=0x00ff_ffff) as u32
    }
}

/// Draws a number of retries, which is the maximum most of the time.
fn draw_retries(rng: &mut Rng) -> u8 {
    if rng.chance(850) {
        7
    } else {
        rng.range(0..=3) as u8
    }
}
