// SPDX-License-Identifier: GPL-2.0

//! A switch with a queue in front of a link that is slower than that of the hosts.

use std::collections::VecDeque;

/// The parameters of a switch.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    /// The time that a byte takes on its link, in 1/16 ns.
    pub sixteenths_per_byte: u64,
    /// The most packets in the queue; others are dropped.
    pub limit: usize,
    /// With more packets than this in the queue, a packet is marked (CE).
    pub mark: usize,
}

/// The fate of a packet at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The queue had no room for the packet.
    Dropped,
    /// The packet left at that time; true if it was marked.
    Left(u64, bool),
}

/// The queue of a switch.
#[derive(Clone, Debug)]
pub struct Queue {
    bottleneck: Bottleneck,
    /// The times when the packets in the queue will have left.
    leave_at: VecDeque<u64>,
}

impl Queue {
    /// Makes an empty queue.
    pub fn new(bottleneck: Bottleneck) -> Queue {
        Queue {
            bottleneck,
            leave_at: VecDeque::new(),
        }
    }

    /// Handles a packet of `len` bytes that arrives at `now`. Packets must be passed in order.
    pub fn pass(&mut self, now: u64, len: usize) -> Passage {
        while self.leave_at.front().is_some_and(|&at| at <= now) {
            self.leave_at.pop_front();
        }
        let waiting = self.leave_at.len();
        if waiting >= self.bottleneck.limit {
            return Passage::Dropped;
        }
        let starts = self.leave_at.back().copied().unwrap_or(now);
        let leaves = starts + len as u64 * self.bottleneck.sixteenths_per_byte / 16;
        self.leave_at.push_back(leaves);
        Passage::Left(leaves, waiting > self.bottleneck.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_delays_then_marks_then_drops() {
        let mut queue = Queue::new(Bottleneck {
            sixteenths_per_byte: 16,
            limit: 3,
            mark: 1,
        });
        assert_eq!(queue.pass(0, 100), Passage::Left(100, false));
        assert_eq!(queue.pass(0, 100), Passage::Left(200, false));
        assert_eq!(queue.pass(0, 100), Passage::Left(300, true));
        assert_eq!(queue.pass(99, 100), Passage::Dropped);
        assert_eq!(queue.pass(100, 100), Passage::Left(400, true));
        assert_eq!(queue.pass(1000, 100), Passage::Left(1100, false));
    }
}
