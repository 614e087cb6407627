// SPDX-License-Identifier: GPL-2.0

//! The transmit side of a half: its trains, and the network stack below.

use std::collections::VecDeque;

use roce::{
    psn::Psn,
    time::Instant,
    trains::Trains, //
};

use crate::{
    net::Train,
    scenario::Stack,
    Rng, //
};

/// The counters of a transmit side.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxCounters {
    /// Trains of more than one packet that the stack accepted.
    pub trains: u64,
    /// Trains of more than one packet that the stack refused.
    pub refused_trains: u64,
    /// Single packets that the stack refused.
    pub refused_packets: u64,
    /// The number of times that a loss turned trains off.
    pub trains_off: u64,
}

impl TxCounters {
    /// Adds the counts of another half.
    pub fn add(&mut self, other: &TxCounters) {
        self.trains += other.trains;
        self.refused_trains += other.refused_trains;
        self.refused_packets += other.refused_packets;
        self.trains_off += other.trains_off;
    }
}

/// The transmit side of a half. `M` marks the place of the first packet of a train.
pub(super) struct Tx<M> {
    stack: Stack,
    trains: Trains,
    /// The packets that were built and not handed over yet.
    train: Option<(Train, M)>,
    /// The end of the pause after a refusal.
    paused_until: Option<Instant>,
    /// The number of refusals since the stack accepted a packet.
    refused: u64,
    counters: TxCounters,
}

/// The result of handing over a train.
#[must_use]
pub(super) enum Handed<M> {
    /// The stack has accepted that many packets, none if there was no train.
    Over(u64),
    /// The stack had no room. The packets must be taken back to the checkpoint.
    Back(M),
}

impl<M> Tx<M> {
    pub(super) fn new(stack: Stack) -> Tx<M> {
        Tx {
            stack,
            trains: Trains::default(),
            train: None,
            paused_until: None,
            refused: 0,
            counters: TxCounters::default(),
        }
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> TxCounters {
        self.counters
    }

    /// Returns the end of the pause, if there is one.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends the pause if it is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| until.is_due(now)) {
            self.paused_until = None;
        }
    }

    /// Returns whether packets were built that are not handed over yet.
    pub(super) fn is_pending(&self) -> bool {
        self.train.is_some()
    }

    /// Returns whether packets may leave in trains now.
    pub(super) fn takes_trains(&self) -> bool {
        self.trains.is_on()
    }

    /// Adds a packet to the train, or returns it if it has to begin a new train.
    pub(super) fn join(&mut self, packet: Vec<u8>) -> Result<(), Vec<u8>> {
        match &mut self.train {
            Some((train, _)) if train.len() < self.stack.max_train => {
                train.push(packet);
                Ok(())
            }
            _ => Err(packet),
        }
    }

    /// Begins a train. The one before must have been handed over.
    pub(super) fn begin(&mut self, packet: Vec<u8>, checkpoint: M) {
        assert!(!self.is_pending(), "a train was forgotten");
        self.train = Some((vec![packet], checkpoint));
    }

    /// Hands the train to the stack.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        out: &mut VecDeque<Train>,
    ) -> Handed<M> {
        let Some((train, checkpoint)) = self.train.take() else {
            return Handed::Over(0);
        };
        let packets = train.len();
        if self.refuses(now, rng) {
            if rng.chance(self.stack.leave) {
                let left = rng.range(1..=packets as u64) as usize;
                out.push_back(train[..left].to_vec());
            }
            if packets > 1 {
                self.trains.refused(packets as u16);
                self.counters.refused_trains += 1;
            } else {
                self.counters.refused_packets += 1;
            }
            return Handed::Back(checkpoint);
        }
        self.trains.sent(packets as u16);
        self.counters.trains += u64::from(packets > 1);
        out.push_back(train);
        Handed::Over(packets as u64)
    }

    /// Hands a single packet to the stack. Returns false if the stack had no room.
    pub(super) fn send(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        packet: Vec<u8>,
        out: &mut VecDeque<Train>,
    ) -> bool {
        assert!(!self.is_pending(), "a packet overtook a train");
        if self.refuses(now, rng) {
            self.counters.refused_packets += 1;
            if rng.chance(self.stack.leave) {
                out.push_back(vec![packet]);
            }
            return false;
        }
        self.trains.sent(1);
        out.push_back(vec![packet]);
        true
    }

    /// Accounts for the loss of the packet with PSN `psn`, while `next` is the next PSN to be sent.
    pub(super) fn lost(&mut self, psn: Psn, next: Psn) {
        self.counters.trains_off += u64::from(self.trains.lost(psn, next));
    }

    /// Returns whether the stack has no room, which starts a pause.
    fn refuses(&mut self, now: Instant, rng: &mut Rng) -> bool {
        let refuses = self.refused < self.stack.most_refusals && rng.chance(self.stack.refuse);
        if refuses {
            self.refused += 1;
            self.paused_until = Some(now.after(self.stack.pause_ns));
        } else {
            self.refused = 0;
        }
        refuses
    }
}
