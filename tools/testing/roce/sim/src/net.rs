// SPDX-License-Identifier: GPL-2.0

//! A network that may lose, duplicate, delay and corrupt packets, and split trains.

use crate::{
    switch::{
        Bottleneck,
        Passage,
        Queue, //
    },
    Rng, //
};

/// A packet, or several that are sent as one GSO packet and arrive as one.
pub type Train = Vec<Vec<u8>>;

/// The arrival of a packet or a train at a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// The time of the arrival, in ns.
    pub at: u64,
    /// The packets.
    pub train: Train,
    /// True if a switch has marked them (ECN).
    pub is_marked: bool,
}

/// The fault rates of a network, in thousandths of the packets and whole trains that are sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Packets and trains that are lost.
    pub loss: u64,
    /// Packets and trains that arrive twice.
    pub duplicate: u64,
    /// Packets and trains that arrive late.
    pub reorder: u64,
    /// Packets and trains in which a bit flips.
    pub corrupt: u64,
    /// Trains that are split into single packets.
    pub cut: u64,
    /// Trains of which some packets are lost. The others arrive as one.
    pub partial_loss: u64,
    /// Whole trains that are lost, beyond those of `loss`.
    pub train_loss: u64,
}

impl Faults {
    /// Returns whether all packets arrive unchanged, in order and once.
    pub fn is_none(&self) -> bool {
        let Faults {
            loss,
            duplicate,
            reorder,
            corrupt,
            cut: _,
            partial_loss,
            train_loss,
        } = *self;
        loss + duplicate + reorder + corrupt + partial_loss + train_loss == 0
    }
}

/// The numbers of trains with each fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrainFaults {
    /// Trains that were lost.
    pub lost: u64,
    /// Trains that arrived twice.
    pub duplicated: u64,
    /// Trains that arrived late.
    pub reordered: u64,
    /// Trains that were split.
    pub cut: u64,
    /// Trains of which some packets were lost.
    pub partly_lost: u64,
}

impl TrainFaults {
    /// Adds the counts of another link.
    pub fn add(&mut self, other: &TrainFaults) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.cut += other.cut;
        self.partly_lost += other.partly_lost;
    }
}

/// The numbers of disturbances of packets and trains, which are the causes of recoveries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbances {
    /// Gaps in the sequence of arrivals, because packets are lost or late.
    pub missing: u64,
    /// Packets and trains that arrived twice.
    pub repeated: u64,
    /// Packets and trains for which the queue of a switch had no room; also counted in `missing`.
    pub dropped: u64,
    /// Packets and trains that a switch marked.
    pub marked: u64,
}

impl Disturbances {
    /// Adds the counts of another link.
    pub fn add(&mut self, other: &Disturbances) {
        self.missing += other.missing;
        self.repeated += other.repeated;
        self.dropped += other.dropped;
        self.marked += other.marked;
    }
}

/// The number of gaps that a late packet causes.
///
/// One is in its original place. The other one is behind it when it arrives, because the packets
/// after it were dropped.
const LATE: u64 = 2;

/// Returns the most gaps that the loss of `lost` packets causes.
///
/// The requester sends the first one again alone, and the others when the next one is reported as
/// missing.
fn gaps(lost: usize) -> u64 {
    lost.min(2) as u64
}

/// One direction of the network.
#[derive(Clone, Debug)]
pub struct Link {
    faults: Faults,
    latency_ns: u64,
    /// The time that a byte takes, in 1/16 ns.
    sixteenths_per_byte: u64,
    /// The time when the link is free again.
    free_at: u64,
    /// The switch on the way.
    queue: Option<Queue>,
    disturbances: Disturbances,
    train_faults: TrainFaults,
}

impl Link {
    /// Makes an idle link.
    pub fn new(
        faults: Faults,
        latency_ns: u64,
        sixteenths_per_byte: u64,
        bottleneck: Option<Bottleneck>,
    ) -> Link {
        Link {
            faults,
            latency_ns,
            sixteenths_per_byte,
            free_at: 0,
            queue: bottleneck.map(Queue::new),
            disturbances: Disturbances::default(),
            train_faults: TrainFaults::default(),
        }
    }

    /// Sends a train at `now`, and returns its arrivals. A switch splits trains.
    pub fn send(&mut self, now: u64, rng: &mut Rng, train: Train) -> Vec<Arrival> {
        if train.len() == 1 || (self.queue.is_none() && !rng.chance(self.faults.cut)) {
            return self.send_whole(now, rng, train);
        }
        self.train_faults.cut += 1;
        let packets = train.into_iter();
        packets
            .flat_map(|packet| self.send_whole(now, rng, vec![packet]))
            .collect()
    }

    /// Returns the time from `now` for which the link is still busy, in ns.
    pub fn busy_ns(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    /// Returns the disturbances so far.
    pub fn disturbances(&self) -> Disturbances {
        self.disturbances
    }

    /// Returns the numbers of trains with each fault.
    pub fn train_faults(&self) -> &TrainFaults {
        &self.train_faults
    }

    /// Sends a packet or a train as one. It arrives once, twice or not at all.
    fn send_whole(&mut self, now: u64, rng: &mut Rng, mut train: Train) -> Vec<Arrival> {
        let busy: u64 = train.iter().map(|bytes| self.busy_of(bytes)).sum();
        self.free_at = self.free_at.max(now) + busy;
        let Some((leaves, is_marked)) = self.cross(&train) else {
            self.disturbances.missing += gaps(train.len());
            self.disturbances.dropped += 1;
            return Vec::new();
        };
        self.disturbances.marked += u64::from(is_marked);
        let on_time = leaves + self.latency_ns;
        let arrive = |at, train| Arrival {
            at,
            train,
            is_marked,
        };
        let is_train = train.len() > 1;
        let one = u64::from(is_train);

        let mut arrivals = Vec::new();
        if rng.chance(self.faults.duplicate) {
            self.train_faults.duplicated += one;
            self.disturbances.repeated += 1;
            arrivals.push(arrive(on_time + self.delay(rng), train.clone()));
        }
        if rng.chance(self.faults.loss) || (is_train && rng.chance(self.faults.train_loss)) {
            self.train_faults.lost += one;
            // The duplicate, if there is one, is late.
            self.disturbances.missing += match arrivals.is_empty() {
                true => gaps(train.len()),
                false => LATE,
            };
            return arrivals;
        }
        if is_train && rng.chance(self.faults.partial_loss) {
            self.train_faults.partly_lost += 1;
            self.disturbances.missing += gaps(lose_part(rng, &mut train));
        }
        if rng.chance(self.faults.corrupt) {
            self.disturbances.missing += 1;
            let bytes = match train.len() {
                1 => &mut train[0],
                len => &mut train[rng.range(0..=len as u64 - 1) as usize],
            };
            let bit = rng.range(0..=bytes.len() as u64 * 8 - 1) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let late = if rng.chance(self.faults.reorder) {
            self.train_faults.reordered += one;
            self.disturbances.missing += LATE;
            self.delay(rng)
        } else {
            0
        };
        arrivals.push(arrive(on_time + late, train));
        arrivals
    }

    /// Returns the time when a train has left the switch, and true if it was marked.
    ///
    /// Returns `None` if the train was dropped.
    fn cross(&mut self, train: &Train) -> Option<(u64, bool)> {
        let Some(queue) = &mut self.queue else {
            return Some((self.free_at, false));
        };
        match queue.pass(self.free_at, train.iter().map(Vec::len).sum()) {
            Passage::Dropped => None,
            Passage::Left(at, is_marked) => Some((at, is_marked)),
        }
    }

    /// Returns the time for which a packet occupies the link, in ns.
    fn busy_of(&self, bytes: &[u8]) -> u64 {
        100 + bytes.len() as u64 * self.sixteenths_per_byte / 16
    }

    fn delay(&self, rng: &mut Rng) -> u64 {
        rng.range(0..=self.latency_ns * 4)
    }
}

/// Removes consecutive packets, but not all, from a train of at least two. Returns their number.
fn lose_part(rng: &mut Rng, train: &mut Train) -> usize {
    let last = train.len() as u64 - 1;
    let first = rng.range(0..=last) as usize;
    let end = first + rng.range(1..=last) as usize;
    train.drain(first..end.min(train.len())).count()
}
