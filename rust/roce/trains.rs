// SPDX-License-Identifier: GPL-2.0

//! Use of trains: packets of one flow that cross the network stack as one.
//!
//! A train is lost as a whole where something on the path cannot take it apart or has no room for
//! it. After a loss some packets are sent one by one: after each further one twice as many as
//! before.

/// The decision of one half of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trains {
    /// The packets to send one by one.
    singly: u32,
    /// The packets that were to be sent one by one after the last loss.
    pause: u32,
    /// The packets sent in trains since.
    carried: u32,
}

impl Trains {
    /// The packets sent one by one after a first loss.
    const FIRST: u32 = 16;

    /// The most packets sent one by one after a loss.
    const MOST: u32 = 1 << 16;

    /// The packets in trains after which a loss counts as the first again, in pauses.
    const FORGET: u32 = 16;

    /// Returns whether the next packets may leave in a train.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.singly == 0
    }

    /// Accounts for `packets` that left in one train, or alone.
    #[inline]
    pub fn sent(&mut self, packets: u32) {
        if packets == 1 {
            self.singly = self.singly.saturating_sub(1);
        } else {
            self.carried = self.carried.saturating_add(packets);
        }
    }

    /// A queue below had no room for a train: its packets are to be sent one by one.
    #[cold]
    pub fn refused(&mut self, packets: u32) {
        self.singly = self.singly.max(packets);
    }

    /// Packets were lost. Returns whether that turns trains off: only if there was one since the
    /// last loss.
    #[cold]
    pub fn lost(&mut self) -> bool {
        if self.carried == 0 {
            return false;
        }
        if self.carried >= self.pause.saturating_mul(Self::FORGET) {
            self.pause = 0;
        }
        self.pause = self.pause.saturating_mul(2).clamp(Self::FIRST, Self::MOST);
        self.singly = self.pause;
        self.carried = 0;
        true
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_trains))]
mod tests {
    use super::*;

    /// Sends packets one by one until trains are on again; returns how many.
    fn singles(trains: &mut Trains) -> u32 {
        let mut packets = 0;
        while !trains.is_on() {
            trains.sent(1);
            packets += 1;
        }
        packets
    }

    #[test]
    fn each_lost_train_doubles_the_pause() {
        let mut trains = Trains::default();
        // No train was sent.
        assert!(!trains.lost());
        for packets in [16, 32, 64] {
            assert!(trains.is_on());
            trains.sent(16);
            assert!(trains.lost());
            assert!(!trains.lost());
            assert_eq!(singles(&mut trains), packets);
        }
        for _ in 0..20 {
            trains.sent(2);
            assert!(trains.lost());
            assert!(singles(&mut trains) <= Trains::MOST);
        }
    }

    #[test]
    fn trains_that_arrive_end_the_doubling() {
        let mut trains = Trains::default();
        trains.sent(2);
        trains.lost();
        singles(&mut trains);
        for _ in 0..Trains::FORGET * Trains::FIRST / 16 {
            trains.sent(16);
        }
        trains.lost();
        assert_eq!(singles(&mut trains), Trains::FIRST);
    }

    #[test]
    fn refused_train_is_sent_one_by_one() {
        let mut trains = Trains::default();
        trains.refused(7);
        assert_eq!(singles(&mut trains), 7);
        assert!(trains.is_on());
    }
}
