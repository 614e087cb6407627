// SPDX-License-Identifier: GPL-2.0

//! The recoveries of a node, and checks that each was necessary (RC).
//!
//! The rules apply to single steps of a half, so that a violation shows the wrong packet:
//!
//! - An immediate reply has a reason: no receive request is posted, the PSN is early, or the
//!   request is a duplicate with AckReq. The acknowledgment of a duplicate has the PSN of a SEND or
//!   WRITE.
//! - A request fails with RETRY_EXC_ERR after exactly as many consecutive recoveries as it may
//!   have.
//! - A requester that waits has a timer, and makes progress or fails within a bounded time.
//!
//! [`crate::cause`] compares the totals with the disturbances of the network.

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

/// The longest time until a timeout, in ACK timeouts: sixteen in which other responses restart the
/// timer, and four of the timer itself.
const LONGEST_TIMEOUT: u64 = 20;

/// The longest time that a request waits for the pauses of both stacks and for RNR timers, in ns.
const LONGEST_PAUSES_NS: u64 = 400_000_000;

/// The recoveries of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recoveries {
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Losses that a probe showed.
    pub losses_found: u64,
    /// Sequence NAKs after which packets were sent again.
    pub naks: u64,
    /// Missing responses that were requested again.
    pub gaps: u64,
    /// RNR waits.
    pub rnrs: u64,
    /// Sequence NAKs that were sent.
    pub sent_naks: u64,
    /// RNR NAKs that were sent.
    pub sent_rnrs: u64,
    /// Acknowledgments of duplicates that were sent.
    pub duplicate_acks: u64,
    /// Requests that were dropped because the backlog was full, or behind kept ones.
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
        self.duplicate_acks += other.duplicate_acks;
        self.overflows += other.overflows;
    }
}

/// The account of one node.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    params: SendParams,
    una: Psn,
    /// The time of the last progress, or of the start of the wait for a response.
    progress_at: u64,
    /// The retries that were consumed since then.
    retries: u64,
    /// The RNR retries that were consumed since then.
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

    /// Accounts for progress up to `una`, if there is any.
    pub(super) fn observe(&mut self, now: u64, una: Psn) {
        self.probes.observe(now, una);
        if una != self.una {
            self.una = una;
            self.progress_at = now;
            self.retries = 0;
            self.rnr_retries = 0;
        }
    }

    /// Accounts for an expiry of the retransmission timer.
    pub(super) fn timed_out(&mut self) {
        self.total.timeouts += 1;
        self.retries += 1;
        self.probes.rewound();
    }

    /// Accounts for a response, after [`Ledger::observe`].
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
                // The peer is alive.
                self.retries = 0;
                self.probes.rewound();
                // The RNR wait is not bounded by the timeout.
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

    /// Accounts for a NAK for the next missing packet, after the one before it has arrived.
    pub(super) fn reported_gap(&mut self) {
        self.total.sent_naks += 1;
    }

    /// Accounts for a request that was dropped for lack of room.
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

    /// Checks that a timer is running, and that the last progress was not too long ago.
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

    /// Checks an immediate reply.
    ///
    /// `epsn` was the expected PSN, and `is_ready` is true if a receive request was posted.
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
                self.total.duplicate_acks += 1;
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
