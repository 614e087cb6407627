// SPDX-License-Identifier: GPL-2.0

//! The choice between trains and single packets.
//!
//! A train is lost as a whole where a part of the path cannot segment it or has no room for it. So
//! after a loss, a number of packets are sent singly (the pause). Each further loss doubles the
//! pause. Two observations show that trains are not the reason for the losses:
//!
//! - Many packets were sent in trains since the last loss: the pause is that of a first loss.
//! - Only single packets were sent since the last loss: the pause is cut to a quarter.
//!
//! The losses of one flight count as one. Once a part of it is sent again, further losses there are
//! new: on a path that loses all trains, these packets may have left in trains again.

use crate::psn::Psn;

/// The state of one half of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trains {
    /// The number of packets that are still to be sent singly.
    singly: u16,
    /// The number of packets to send singly after the last loss.
    pause: u16,
    /// The number of packets sent in trains since that loss.
    carried: u16,
    /// The PSN of the last loss that was reported.
    lost: Psn,
    /// The end of the packets behind it whose losses count as the same one.
    end: Psn,
}

impl Trains {
    /// The shortest pause, after a first loss.
    const FIRST: u16 = 16;

    /// The longest pause.
    const MOST: u16 = 1 << 15;

    /// The number of packets sent in trains after which a loss counts as the first one again.
    ///
    /// It does not grow with the pause: on a path that loses one of a hundred packets or trains, no
    /// pause would be long enough, and that is where trains are worth the most.
    const FORGET: u16 = 256;

    /// Returns whether the next packets may leave in a train.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.singly == 0
    }

    /// Accounts for `packets` packets that were sent in one train, or for one that was sent singly.
    #[inline]
    pub fn sent(&mut self, packets: u16) {
        if packets == 1 {
            self.singly = self.singly.saturating_sub(1);
        } else {
            self.carried = self.carried.saturating_add(packets);
        }
    }

    /// Accounts for a train of `packets` packets for which a queue below had no room.
    ///
    /// They are sent singly.
    #[cold]
    pub fn refused(&mut self, packets: u16) {
        self.singly = self.singly.max(packets);
    }

    /// Accounts for the loss of the packet with PSN `psn`, while `next` is the next PSN to be sent,
    /// for the first time or again.
    ///
    /// Returns whether a pause starts. It does only if a train was sent since the last loss.
    #[cold]
    pub fn lost(&mut self, psn: Psn, next: Psn) -> bool {
        let is_same = (1..self.lost.forward(self.end)).contains(&self.lost.forward(psn));
        self.lost = psn;
        if self.pause > 0 && self.carried < Self::FORGET && is_same {
            if next.is_before(self.end) {
                self.end = next;
            }
            return false;
        }
        self.end = next;
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

    /// Sends packets singly until trains are on again, and returns their number.
    fn singles(trains: &mut Trains) -> u16 {
        let mut packets = 0;
        while !trains.is_on() {
            trains.sent(1);
            packets += 1;
        }
        packets
    }

    /// Sends a train whose first packet has PSN `psn`, and loses it.
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
    fn loss_of_single_packet_shortens_the_pause() {
        let mut trains = Trains::default();
        for psn in [1, 101] {
            assert!(lose_train(&mut trains, psn));
            assert!(singles(&mut trains) > 0);
        }
        assert!(lose_train(&mut trains, 201));
        assert!(!trains.lost(Psn::new(300), Psn::new(301)));
        assert_eq!(singles(&mut trains), Trains::FIRST);
        assert!(!trains.lost(Psn::new(301), Psn::new(302)));
        assert!(lose_train(&mut trains, 401));
        assert!(!trains.lost(Psn::new(500), Psn::new(501)));
        assert_eq!(singles(&mut trains), Trains::FIRST / 4);
    }

    #[test]
    fn pause_starts_anew_after_many_trains() {
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
    fn train_that_is_lost_again_starts_a_pause() {
        let mut trains = Trains::default();
        let end = Psn::new(100);
        trains.sent(60);
        assert!(trains.lost(Psn::new(1), end));
        assert_eq!(singles(&mut trains), 16);
        trains.sent(40);
        // The peer has kept nothing, so all is sent again.
        assert!(!trains.lost(Psn::new(17), Psn::new(17)));
        trains.sent(40);
        assert!(trains.lost(Psn::new(18), Psn::new(18)));
        assert_eq!(singles(&mut trains), 32);
        trains.sent(40);
        // A READ that is repeated twice: other responses may follow.
        assert!(trains.lost(Psn::new(50), end));
        singles(&mut trains);
        trains.sent(40);
        assert!(!trains.lost(Psn::new(60), end));
        assert!(trains.lost(Psn::new(60), end));
    }

    /// A loss is another one after half of all PSNs, too.
    #[test]
    fn loss_long_after_the_last_one_starts_a_pause() {
        let mut trains = Trains::default();
        for psn in [1, 1 + Psn::HALF, 1, 1 + Psn::HALF + 20, 30] {
            assert!(lose_train(&mut trains, psn));
            singles(&mut trains);
        }
    }

    #[test]
    fn refused_train_is_sent_singly() {
        let mut trains = Trains::default();
        trains.refused(7);
        assert_eq!(singles(&mut trains), 7);
        assert!(trains.is_on());
    }

    #[test]
    fn first_loss_starts_a_pause_at_any_psn() {
        let mut trains = Trains::default();
        assert!(lose_train(&mut trains, 0x00ff_ff00));
    }

    #[test]
    fn loss_after_many_trains_is_another_one() {
        let mut trains = Trains::default();
        for psn in [1, 101, 201] {
            lose_train(&mut trains, psn);
            singles(&mut trains);
        }
        trains.sent(Trains::FORGET);
        assert!(trains.lost(Psn::new(201), Psn::new(301)));
        assert_eq!(singles(&mut trains), Trains::FIRST);
    }
}
