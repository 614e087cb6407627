// SPDX-License-Identifier: GPL-2.0

//! Use of trains: packets of one flow that cross the network stack as one.
//!
//! A train is lost as a whole where something on the path cannot take it apart or has no room for
//! it. After a loss some packets are sent one by one: after each further one twice as many as
//! before, unless so many arrived in trains since that these cannot be the reason. If one of those
//! is lost, trains are not the reason, either.

use crate::psn::Psn;

/// The decision of one half of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trains {
    /// The packets to send one by one.
    singly: u16,
    /// The packets that were to be sent one by one after the last loss.
    pause: u16,
    /// The packets sent in trains since.
    carried: u16,
    /// The PSN that was to be sent next at the last loss.
    since: Psn,
}

impl Trains {
    /// The packets sent one by one after a first loss.
    const FIRST: u16 = 16;

    /// The most packets sent one by one after a loss.
    const MOST: u16 = 1 << 15;

    /// The packets in trains after which a loss counts as the first again.
    ///
    /// This does not depend on the pause: where one of a hundred packets or trains is lost, no
    /// pause would be long enough, and trains are worth the most there.
    const FORGET: u16 = 256;

    /// Returns whether the next packets may leave in a train.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.singly == 0
    }

    /// Accounts for `packets` that left in one train, or alone.
    #[inline]
    pub fn sent(&mut self, packets: u16) {
        if packets == 1 {
            self.singly = self.singly.saturating_sub(1);
        } else {
            self.carried = self.carried.saturating_add(packets);
        }
    }

    /// A queue below had no room for a train: its packets are to be sent one by one.
    #[cold]
    pub fn refused(&mut self, packets: u16) {
        self.singly = self.singly.max(packets);
    }

    /// The packet with PSN `psn` was lost, and maybe others; `next` is to be sent next. Returns
    /// whether that turns trains off: only if there was one since the last loss.
    #[cold]
    pub fn lost(&mut self, psn: Psn, next: Psn) -> bool {
        let is_known = psn.is_before(self.since);
        if self.pause > 0 && self.carried < Self::FORGET && is_known {
            return false;
        }
        self.since = next;
        if self.carried == 0 {
            self.pause >>= 2;
            self.singly = self.singly.min(self.pause);
            return false;
        }
        if self.carried >= Self::FORGET {
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
    fn singles(trains: &mut Trains) -> u16 {
        let mut packets = 0;
        while !trains.is_on() {
            trains.sent(1);
            packets += 1;
        }
        packets
    }

    /// Sends a train, which is lost; `psn` is that of its first packet.
    fn lose_train(trains: &mut Trains, psn: u32) -> bool {
        trains.sent(16);
        trains.lost(Psn::new(psn), Psn::new(psn + 16))
    }

    #[test]
    fn each_lost_train_doubles_the_pause() {
        let mut trains = Trains::default();
        // No train was sent.
        assert!(!trains.lost(Psn::new(0), Psn::new(1)));
        let mut psn = 1;
        for packets in [16, 32, 64] {
            assert!(trains.is_on());
            assert!(lose_train(&mut trains, psn));
            // Another packet of the train.
            assert!(!trains.lost(Psn::new(psn + 1), Psn::new(psn + 16)));
            assert_eq!(singles(&mut trains), packets);
            psn += 100;
        }
        for _ in 0..20 {
            assert!(lose_train(&mut trains, psn));
            assert!(singles(&mut trains) <= Trains::MOST);
            psn += 100;
        }
    }

    #[test]
    fn packets_lost_one_by_one_end_the_pause() {
        let mut trains = Trains::default();
        for psn in [1, 101, 201] {
            assert!(lose_train(&mut trains, psn));
            assert!(psn == 201 || singles(&mut trains) > 0);
        }
        assert!(!trains.lost(Psn::new(300), Psn::new(301)));
        assert_eq!(singles(&mut trains), Trains::FIRST);
        assert!(!trains.lost(Psn::new(301), Psn::new(302)));
        assert!(lose_train(&mut trains, 401));
        assert!(!trains.lost(Psn::new(500), Psn::new(501)));
        assert_eq!(singles(&mut trains), Trains::FIRST / 4);
    }

    #[test]
    fn trains_that_arrive_end_the_doubling() {
        let mut trains = Trains::default();
        for psn in [1, 101, 201] {
            lose_train(&mut trains, psn);
            singles(&mut trains);
        }
        for _ in 0..Trains::FORGET / 16 {
            trains.sent(16);
        }
        assert!(lose_train(&mut trains, 1001));
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
