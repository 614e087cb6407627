// SPDX-License-Identifier: GPL-2.0

//! A receive half with the peculiarities of other implementations (RC).
//!
//! The replies of the half of crate `roce` are changed, and some requests are dropped before it:
//!
//! - Acknowledgments are coalesced: one is held back until a later response, or for a limited time.
//! - Some acknowledgments were not requested, and have any number of credits.
//! - Every duplicate SEND or WRITE is acknowledged.
//! - The responses to a duplicate READ have no FIRST. It cannot start earlier than the last
//!   duplicate: C rxe moves the start of the saved READ forward with each replay, and drops a
//!   request for data before it.

use roce::{
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    responder::{
        ReadSegment,
        Reply,
        ReplyKind, //
    },
    wire::{
        Packet,
        Syndrome, //
    }, //
};

use crate::Rng;

/// The rate in thousandths at which an acknowledgment is held back.
const HOLD: u64 = 500;

/// The longest time for which an acknowledgment is held back, in ns.
const HOLD_NS: u64 = 3_000;

/// The rate in thousandths at which a request without AckReq is acknowledged.
const UNASKED: u64 = 100;

/// The number of READs whose replay the half keeps track of.
const READS: usize = 16;

/// The counts of the peculiarities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oddities {
    /// Acknowledgments that a later one replaced.
    pub coalesced: u64,
    /// Acknowledgments that were not requested.
    pub unasked: u64,
    /// Duplicates without AckReq that were acknowledged.
    pub duplicates: u64,
    /// READ responses without FIRST.
    pub headless: u64,
    /// READs that were dropped because they start earlier than the last duplicate.
    pub dropped_reads: u64,
}

impl Oddities {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Oddities) {
        self.coalesced += other.coalesced;
        self.unasked += other.unasked;
        self.duplicates += other.duplicates;
        self.headless += other.headless;
        self.dropped_reads += other.dropped_reads;
    }
}

/// A READ that was answered.
#[derive(Clone, Copy, Debug)]
struct Read {
    first: Psn,
    /// The PSN after its last response.
    end: Psn,
    /// The first PSN that may be requested again.
    from: Psn,
}

/// The state of a foreign receive half.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    rng: Rng,
    /// The acknowledgment that is held back, and the time when that began.
    held: Option<(Reply, u64)>,
    now: u64,
    reads: Vec<Read>,
    oddities: Oddities,
}

impl Foreign {
    pub(super) fn new(seed: u64) -> Foreign {
        Foreign {
            rng: Rng::new(seed),
            held: None,
            now: 0,
            reads: Vec::new(),
            oddities: Oddities::default(),
        }
    }

    pub(super) fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// Returns whether a duplicate READ is dropped.
    pub(super) fn drops(&mut self, pkt: &Packet<'_>, epsn: Psn) -> bool {
        let psn = pkt.psn();
        if pkt.opcode().operation() != Operation::ReadRequest || !psn.is_before(epsn) {
            return false;
        }
        let covers = |read: &&mut Read| read.first.forward(psn) < read.first.forward(read.end);
        let Some(read) = self.reads.iter_mut().rev().find(covers) else {
            return false;
        };
        let goes_back = psn.is_before(read.from);
        if !goes_back {
            read.from = psn;
        }
        self.oddities.dropped_reads += u64::from(goes_back);
        goes_back
    }

    /// Accounts for a new READ.
    pub(super) fn read(&mut self, first: Psn, end: Psn) {
        if self.reads.len() == READS {
            self.reads.remove(0);
        }
        self.reads.push(Read {
            first,
            end,
            from: first,
        });
    }

    /// Returns the replies that are sent instead of `reply`.
    pub(super) fn reply(&mut self, reply: &Reply) -> Vec<Reply> {
        let mut reply = *reply;
        let Syndrome::Ack { .. } = reply.syndrome else {
            // A NAK acknowledges the packets before its PSN.
            self.held = None;
            return vec![reply];
        };
        reply.syndrome = Syndrome::Ack {
            credits: self.rng.range(0..=31) as u8,
        };
        if reply.kind != ReplyKind::Acknowledge {
            let before = self.held.take().map(|(reply, _)| reply);
            return before.into_iter().chain([reply]).collect();
        }
        let before = self.held.take();
        self.oddities.coalesced += u64::from(before.is_some());
        if self.rng.chance(HOLD) {
            let since = before.map_or(self.now, |(_, since)| since);
            self.held = Some((reply, since));
            return vec![];
        }
        vec![reply]
    }

    /// Returns an acknowledgment that was held back long enough, if there is one.
    pub(super) fn release(&mut self, now: u64) -> Option<Reply> {
        self.now = now;
        match self.held {
            Some((reply, since)) if now - since >= HOLD_NS => {
                self.held = None;
                Some(reply)
            }
            _ => None,
        }
    }

    /// Returns whether an acknowledgment is held back.
    pub(super) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Forgets the acknowledgment that is held back.
    pub(super) fn stop(&mut self) {
        self.held = None;
    }

    /// Returns whether to acknowledge an executed request without AckReq.
    pub(super) fn is_eager(&mut self) -> bool {
        let is_eager = self.rng.chance(UNASKED);
        self.oddities.unasked += u64::from(is_eager);
        is_eager
    }

    /// Returns whether to acknowledge a duplicate even without AckReq, and counts it.
    pub(super) fn acknowledges_duplicate(&mut self, pkt: &Packet<'_>) -> bool {
        let is_message = matches!(pkt.opcode().operation(), Operation::Send | Operation::Write);
        self.oddities.duplicates += u64::from(is_message);
        is_message
    }

    /// Changes a READ response.
    pub(super) fn segment(&mut self, segment: &ReadSegment) -> ReadSegment {
        let opcode = match segment.opcode {
            Opcode::RcReadResponseFirst if segment.again => Opcode::RcReadResponseMiddle,
            opcode => opcode,
        };
        self.oddities.headless += u64::from(opcode != segment.opcode);
        ReadSegment {
            opcode,
            aeth: segment.aeth.filter(|_| opcode.has_aeth()),
            ..*segment
        }
    }
}
