// SPDX-License-Identifier: GPL-2.0

//! A network that may lose, repeat, delay and corrupt packets.

use crate::Rng;

/// How bad a network is. Chances are in thousandths of the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Packets that vanish.
    pub loss: u64,
    /// Packets that arrive twice.
    pub duplicate: u64,
    /// Packets that arrive late.
    pub reorder: u64,
    /// Packets of which a bit flips.
    pub corrupt: u64,
}

/// One direction of the network.
#[derive(Clone, Debug)]
pub struct Link {
    faults: Faults,
    latency_ns: u64,
    /// Nanoseconds that a byte takes, in 1/16.
    sixteenths_per_byte: u64,
    /// When the packet before has left.
    free_at: u64,
}

impl Link {
    /// Makes an idle link.
    pub fn new(faults: Faults, latency_ns: u64, sixteenths_per_byte: u64) -> Link {
        Link {
            faults,
            latency_ns,
            sixteenths_per_byte,
            free_at: 0,
        }
    }

    /// Sends a packet at `now`, and returns what arrives when: nothing, one packet or two.
    pub fn send(&mut self, now: u64, rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        let busy = 100 + bytes.len() as u64 * self.sixteenths_per_byte / 16;
        self.free_at = self.free_at.max(now) + busy;
        let on_time = self.free_at + self.latency_ns;

        let mut arrivals = Vec::new();
        if rng.chance(self.faults.duplicate) {
            arrivals.push((on_time + self.delay(rng), bytes.clone()));
        }
        if rng.chance(self.faults.loss) {
            return arrivals;
        }
        if rng.chance(self.faults.corrupt) {
            let bit = rng.range(0..=bytes.len() as u64 * 8 - 1) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let late = if rng.chance(self.faults.reorder) {
            self.delay(rng)
        } else {
            0
        };
        arrivals.push((on_time + late, bytes));
        arrivals
    }

    /// Returns for how many nanoseconds from `now` the link is still busy.
    pub fn busy_ns(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now)
    }

    fn delay(&self, rng: &mut Rng) -> u64 {
        rng.range(0..=self.latency_ns * 4)
    }
}
