// SPDX-License-Identifier: GPL-2.0

//! What a node did to recover, and whether it had to (RC).
//!
//! Each rule is about one step of a half, so that a violation names the packet that is wrong:
//!
//! - A reply at once has a reason: no receive request is posted, the PSN is early, or the request
//!   is a duplicate that asks for an acknowledgment. That names a SEND or WRITE.
//! - A request fails for lack of retries after as many recoveries in a row as it may have, no
//!   sooner and no later.
//! - A requester that waits has a timer, and makes progress or fails within a bound.
//!
//! [`crate::cause`] compares the totals with what the network did.

use roce::{
    opcode::Operation,
    psn::Psn,
    requester::{
        ResponseKind,
        SendParams,
        SendSnapshot, //
    },
    responder::{
        Reply,
        ReplyKind, //
    },
    wire::{
        NakCode,
        Packet,
        Syndrome, //
    },
    wr::Status, //
};

use super::{
    probe::Probes,
    Violation, //
};

/// A timeout may take four times as long as configured, and be put off until sixteen times.
const LONGEST_TIMEOUT: u64 = 20;

/// Beside its timeouts, a request waits for the pauses of both stacks, and for RNR timers.
const LONGEST_PAUSES_NS: u64 = 400_000_000;

/// What a node did to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recoveries {
    /// Responses that were overdue.
    pub timeouts: u64,
    /// Losses that a probe showed.
    pub losses_found: u64,
    /// NAKs after which it sent again.
    pub naks: u64,
    /// Missing responses that it asked for again.
    pub gaps: u64,
    /// Waits for a receiver that was not ready.
    pub rnrs: u64,
    /// Sequence NAKs that it sent.
    pub sent_naks: u64,
    /// RNR NAKs that it sent.
    pub sent_rnrs: u64,
    /// Requests that it dropped because its backlog was full, or behind those that it kept.
    pub overflows: u64,
}

impl Recoveries {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Recoveries) {
        self.timeouts += other.timeouts;
        self.losses_found += other.losses_found;
        self.naks += other.naks;
        self.gaps += other.gaps;
        self.rnrs += other.rnrs;
        self.sent_naks += other.sent_naks;
        self.sent_rnrs += other.sent_rnrs;
        self.overflows += other.overflows;
    }
}

/// The account of one node.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    params: SendParams,
    una: Psn,
    /// When a response that was expected came last, or the wait for it began.
    progress_at: u64,
    /// Recoveries since then that consume a retry.
    retries: u64,
    /// The same for RNR retries.
    rnr_retries: u64,
    probes: Probes,
    total: Recoveries,
}

impl Ledger {
    pub(super) fn new(params: SendParams, psn: Psn) -> Ledger {
        Ledger {
            params,
            una: psn,
            progress_at: 0,
            retries: 0,
            rnr_retries: 0,
            probes: Probes::new(psn),
            total: Recoveries::default(),
        }
    }

    pub(super) fn total(&self) -> Recoveries {
        self.total
    }

    /// Accounts for what was acknowledged.
    pub(super) fn observe(&mut self, now: u64, una: Psn) {
        self.probes.observe(now, una);
        if una != self.una {
            self.una = una;
            self.progress_at = now;
            self.retries = 0;
            self.rnr_retries = 0;
        }
    }

    /// Accounts for a response that was overdue.
    pub(super) fn timed_out(&mut self) {
        self.total.timeouts += 1;
        self.retries += 1;
        self.probes.rewound();
    }

    /// Accounts for a response, after what it acknowledges.
    pub(super) fn responded(&mut self, now: u64, outcome: ResponseKind, half: &SendSnapshot) {
        match outcome {
            ResponseKind::NakSequence => {
                self.total.naks += 1;
                self.retries += 1;
                self.probes.reported(half);
            }
            ResponseKind::Gap => {
                self.total.gaps += 1;
                self.retries += 1;
                self.probes.reported(half);
            }
            ResponseKind::Rnr => {
                self.total.rnrs += 1;
                self.rnr_retries += 1;
                self.probes.rewound();
                // The wait for the receiver has no bound.
                self.progress_at = now;
            }
            _ => {}
        }
    }

    /// Returns the account of the probes.
    pub(super) fn probes(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Checks whether a response showed a loss, and accounts for it.
    pub(super) fn check_loss(
        &mut self,
        found_loss: bool,
        outcome: ResponseKind,
        goes_on: Option<Psn>,
        half: &SendSnapshot,
    ) -> Result<(), Violation> {
        self.total.losses_found += u64::from(found_loss);
        self.probes.check(found_loss, outcome, goes_on, half)
    }

    /// Accounts for a NAK for a packet that is missing behind one that was.
    pub(super) fn reported_gap(&mut self) {
        self.total.sent_naks += 1;
    }

    /// Accounts for a request that found the backlog full.
    pub(super) fn overflowed(&mut self) {
        self.total.overflows += 1;
    }

    /// Checks the status of a request that ended.
    pub(super) fn check_status(&self, status: Status) -> Result<(), Violation> {
        let (used, most) = match status {
            Status::RetryExceeded => (self.retries, u64::from(self.params.retry_cnt)),
            Status::RnrRetryExceeded if self.params.rnr_retry == 7 => {
                return Err("gave up although RNR retries have no limit".into());
            }
            Status::RnrRetryExceeded => (self.rnr_retries, u64::from(self.params.rnr_retry)),
            _ => return Ok(()),
        };
        if used != most + 1 {
            return Err(format!("{status:?} after {used} retries of {most}"));
        }
        Ok(())
    }

    /// Checks that a requester has not used more retries than it has.
    pub(super) fn check_retries(&self) -> Result<(), Violation> {
        let most = u64::from(self.params.retry_cnt);
        let most_rnr = match self.params.rnr_retry {
            7 => u64::MAX,
            most => u64::from(most),
        };
        if self.retries > most || self.rnr_retries > most_rnr {
            return Err(format!("too many retries: {self:?}"));
        }
        Ok(())
    }

    /// Checks that something will happen, and did not long ago.
    pub(super) fn check_life(&mut self, now: u64, half: &SendSnapshot) -> Result<(), Violation> {
        if half.una == half.max {
            self.progress_at = now;
            return Ok(());
        }
        let Some(timeout) = self.params.ack_timeout else {
            return Ok(());
        };
        let tries = u64::from(self.params.retry_cnt) + 1;
        let bound = tries * LONGEST_TIMEOUT * timeout.get() + LONGEST_PAUSES_NS;
        if now - self.progress_at > bound {
            return Err(format!("no progress since {}: {half:?}", self.progress_at));
        }
        Ok(())
    }

    /// Checks a reply that was sent at once: `epsn` was expected, and `is_ready` tells whether a
    /// receive request was posted.
    pub(super) fn check_reply(
        &mut self,
        pkt: &Packet<'_>,
        reply: &Reply,
        epsn: Psn,
        is_ready: bool,
    ) -> Result<(), Violation> {
        let psn = pkt.psn();
        let has_reason = match reply.syndrome {
            Syndrome::Rnr { .. } => {
                self.total.sent_rnrs += 1;
                !is_ready && psn == epsn && reply.psn == psn
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.total.sent_naks += 1;
                psn.is_after(epsn) && reply.psn == epsn
            }
            Syndrome::Ack { .. } if reply.kind == ReplyKind::Acknowledge => {
                let is_message =
                    matches!(pkt.opcode().operation(), Operation::Send | Operation::Write);
                pkt.ack_req() && is_message && psn.is_before(epsn) && !reply.psn.is_before(psn)
            }
            Syndrome::Ack { .. } => psn.is_before(epsn) && reply.psn == psn,
            Syndrome::Nak(_) | Syndrome::Reserved => false,
        };
        if !has_reason {
            return Err(format!("{reply:?} to {psn:?}, {epsn:?} was expected"));
        }
        Ok(())
    }
}
