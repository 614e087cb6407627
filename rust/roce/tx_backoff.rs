// SPDX-License-Identifier: GPL-2.0

//! Transmit back-off, while a qdisc or a device queue is full.
//!
//! If the local network stack refuses a packet, the sender knows at once that it was not sent. To
//! treat it as lost would cost a timeout, and to go on sending would keep the queue full. So the
//! packet is sent again after a pause. The limit of packets in flight falls to half of those that
//! are queued, and then grows by one each time as many packets as the limit were accepted.
//!
//! It is better not to fill the queue at all. A sender that has packets in a full queue is woken as
//! soon as one of them leaves, and takes the room before the senders that pause. So all sending
//! queue pairs of a device share the room from the beginning. This also bounds the time that a
//! packet spends in the queue, and so the round-trip time. The number of senders is known with a
//! delay ([`senders`](crate::senders)): if many start at once, the first of them may fill the
//! queue.
//!
//! A packet filter refuses packets with the same error as a full queue. So after
//! [`TxBackoff::TRIES`] pauses, a packet counts as lost, and the retries run out as they should.
//! Each packet has as many pauses, a retry too: the queue may be full of long trains.

use crate::{
    senders::Period,
    time::Instant, //
};

/// The limit of packets in flight of one half of a queue pair, and its wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxBackoff {
    /// The most packets in flight, from [`TxBackoff::LEAST`] to [`TxBackoff::MOST`].
    limit: u32,
    /// The packets that were accepted since `limit` changed.
    taken: u32,
    /// The refusals since a packet was accepted or counted as lost, at most [`TxBackoff::TRIES`].
    refused: u32,
    /// The end of the pause.
    until: Option<Instant>,
    /// The last period in which the half was counted as a sender.
    counted: Option<Period>,
}

/// The action for a refused packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Send it again after a pause.
    Again {
        /// The end of the pause.
        at: Instant,
        /// True if this is the first refusal since a packet was accepted or counted as lost.
        first: bool,
    },
    /// Treat it as lost.
    Lost,
}

impl Default for TxBackoff {
    /// Makes the state before the first refusal.
    fn default() -> Self {
        Self {
            limit: Self::MOST,
            taken: 0,
            refused: 0,
            until: None,
            counted: None,
        }
    }
}

impl TxBackoff {
    /// The limit before the first refusal: two of the longest trains.
    pub const MOST: u32 = 120;

    /// The approximate limit for all senders of a device together.
    ///
    /// It is about the default size of a qdisc (`txqueuelen`) and of the backlog of a CPU
    /// (`netdev_max_backlog`).
    const SHARED: u32 = 1024;

    /// The smallest share of a sender.
    pub(crate) const SHARE: u32 = 16;

    /// The smallest share of a sender whose packets leave in trains: the longest train. A queue
    /// counts a train as one packet. With room for a few packets more, a train of only these would
    /// follow.
    const SHARE_IN_TRAINS: u32 = 60;

    /// The lower bound of the limit after refusals.
    const LEAST: u32 = 4;

    /// The pause before a packet is sent again: 1 ms, in nanoseconds.
    pub const PAUSE: u64 = 1_000_000;

    /// The number of pauses after which a refused packet counts as lost.
    pub const TRIES: u32 = 50;

    /// Forgets the refusals. The half stays counted as a sender, so that it is not counted again.
    pub fn reset(&mut self) {
        *self = Self {
            counted: self.counted,
            ..Self::default()
        };
    }

    /// Returns whether the caller must count the half as a sender: once per period.
    #[inline]
    pub fn begins(&mut self, period: Period) -> bool {
        self.counted.replace(period) != Some(period)
    }

    /// Returns the limit of packets in flight if `senders` halves send. `in_trains` is true if the
    /// packets of this half leave in trains.
    #[inline]
    pub fn limit(&self, senders: u32, in_trains: bool) -> u32 {
        let share = Self::SHARED.checked_div(senders).unwrap_or(Self::MOST);
        let least = if in_trains {
            Self::SHARE_IN_TRAINS
        } else {
            Self::SHARE
        };
        self.limit.min(share.max(least))
    }

    /// Accounts for `packets` packets that were accepted at once.
    #[inline]
    pub fn taken(&mut self, packets: u32) {
        self.refused = 0;
        if self.limit < Self::MOST {
            self.taken = self.taken.saturating_add(packets);
            if self.taken >= self.limit {
                self.taken = 0;
                self.limit = self.limit.saturating_add(1);
            }
        }
    }

    /// Accounts for a packet that was refused for lack of room, while `queued` others were queued.
    #[cold]
    pub fn refused(&mut self, now: Instant, queued: u32) -> Refused {
        self.limit = (queued >> 1).min(self.limit).max(Self::LEAST);
        self.taken = 0;
        if self.refused >= Self::TRIES {
            self.refused = 0;
            return Refused::Lost;
        }
        let first = self.refused == 0;
        self.refused = self.refused.saturating_add(1);
        let at = now.after(Self::PAUSE);
        self.until = Some(at);
        Refused::Again { at, first }
    }

    /// Returns whether the half pauses. Reads the clock only after a refusal.
    #[inline]
    pub fn waits(&mut self, clock: impl FnOnce() -> Instant) -> bool {
        if self.until.is_some_and(|until| until.is_due(clock())) {
            self.until = None;
        }
        self.until.is_some()
    }

    /// Returns whether there is a pause whose end [`TxBackoff::waits`] has not noticed.
    #[inline]
    pub const fn is_waiting(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_tx_backoff))]
mod tests {
    use super::*;

    const START: Instant = Instant::from_ns(7);

    /// Refuses packets until one counts as lost. Returns the time of that and the number of pauses.
    fn exhaust(tx_backoff: &mut TxBackoff, start: Instant) -> (Instant, u32) {
        let mut now = start;
        let mut pauses = 0;
        while let Refused::Again { at, first } = tx_backoff.refused(now, 0) {
            assert_eq!(first, pauses == 0);
            assert!(tx_backoff.waits(|| now));
            pauses += 1;
            now = at;
            assert!(!tx_backoff.waits(|| now));
        }
        (now, pauses)
    }

    #[test]
    fn refusal_starts_pause() {
        let mut tx_backoff = TxBackoff::default();
        assert!(!tx_backoff.waits(|| START));

        let at = START.after(TxBackoff::PAUSE);
        assert_eq!(
            tx_backoff.refused(START, 0),
            Refused::Again { at, first: true }
        );
        assert!(tx_backoff.is_waiting());
        assert!(tx_backoff.waits(|| START.after(TxBackoff::PAUSE - 1)));
        assert!(!tx_backoff.waits(|| at));
        assert!(!tx_backoff.is_waiting());
    }

    #[test]
    fn each_packet_has_the_same_number_of_attempts() {
        let mut tx_backoff = TxBackoff::default();
        let mut now = START;

        for _ in 0..3 {
            let (end, pauses) = exhaust(&mut tx_backoff, now);
            assert_eq!(pauses, TxBackoff::TRIES);
            assert!(!tx_backoff.is_waiting());
            now = end;
        }
        assert!(matches!(
            tx_backoff.refused(now, 0),
            Refused::Again { first: true, .. }
        ));
        tx_backoff.taken(1);
        assert_eq!(exhaust(&mut tx_backoff, now).1, TxBackoff::TRIES);
    }

    #[test]
    fn senders_share_limit() {
        let mut tx_backoff = TxBackoff::default();
        assert_eq!(tx_backoff.limit(0, false), TxBackoff::MOST);
        assert_eq!(tx_backoff.limit(1, false), TxBackoff::MOST);
        assert_eq!(tx_backoff.limit(32, false), 32);
        assert_eq!(tx_backoff.limit(1000, false), TxBackoff::SHARE);
        assert_eq!(tx_backoff.limit(1000, true), TxBackoff::SHARE_IN_TRAINS);

        let _ = tx_backoff.refused(START, 20);
        assert_eq!(tx_backoff.limit(32, false), 10);
        assert_eq!(tx_backoff.limit(1000, false), 10);
        assert_eq!(tx_backoff.limit(1000, true), 10);
    }

    #[test]
    fn refusal_halves_limit_and_each_round_raises_it() {
        let mut tx_backoff = TxBackoff::default();
        assert_eq!(tx_backoff.limit(1, false), TxBackoff::MOST);
        for _ in 0..TxBackoff::MOST {
            tx_backoff.taken(1);
        }
        assert_eq!(tx_backoff.limit(1, false), TxBackoff::MOST);

        let _ = tx_backoff.refused(START, 100);
        assert_eq!(tx_backoff.limit(1, false), 50);
        for more in 1..=10 {
            for _ in 0..tx_backoff.limit(1, false) {
                tx_backoff.taken(1);
            }
            assert_eq!(tx_backoff.limit(1, false), 50 + more);
        }

        // Packets sent before the limit fell do not raise it.
        let _ = tx_backoff.refused(START, 1000);
        assert_eq!(tx_backoff.limit(1, false), 60);
        let _ = tx_backoff.refused(START, 0);
        assert_eq!(tx_backoff.limit(1, false), TxBackoff::LEAST);
    }

    #[test]
    fn reset_forgets_refusals() {
        let mut tx_backoff = TxBackoff::default();
        let _ = tx_backoff.refused(START, 20);
        tx_backoff.reset();
        assert!(!tx_backoff.is_waiting());
        assert_eq!(tx_backoff.limit(1, false), TxBackoff::MOST);
    }

    #[test]
    fn packets_before_a_refusal_do_not_raise_the_limit() {
        let mut tx_backoff = TxBackoff::default();
        let _ = tx_backoff.refused(START, 100);
        tx_backoff.taken(49);
        let _ = tx_backoff.refused(START, 100);
        tx_backoff.taken(49);
        assert_eq!(tx_backoff.limit(1, false), 50);
        tx_backoff.taken(1);
        assert_eq!(tx_backoff.limit(1, false), 51);
    }
}
