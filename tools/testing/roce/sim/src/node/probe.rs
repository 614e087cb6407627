// SPDX-License-Identifier: GPL-2.0

//! Whether a probe for a lost response had a reason, and what followed from it (RC).
//!
//! - The response is late: the pause is the measured one (RFC 6298), doubled with each probe since
//!   the last measurement (Karn) or the last loss that a probe showed, and counts from the last
//!   progress, or from when the oldest packet was sent.
//! - The probe consumes no retry.
//! - More is sent again if the peer acknowledges nothing but the probe, and only then. The same
//!   holds for packets that a NAK reported as missing.

use roce::{
    psn::Psn,
    requester::{
        ResponseKind,
        SendSnapshot,
        SendState,
        Transmit,
        MIN_RTO_NS, //
    },
};

use super::Violation;

/// The half calculates with whole numbers. The doublings multiply the difference.
const ROUNDING_NS: f64 = 100.0;

/// The most doublings of the pause.
const MOST_DOUBLINGS: u32 = 10;

/// A probe that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    None,
    /// It is to be sent.
    Due,
    /// Packets of it were sent; the PSN of the next one.
    Begun(Psn),
    /// It was sent; the PSN after it.
    Sent(Psn),
}

/// What was acknowledged after a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proof {
    /// There was no probe, or much more was.
    #[default]
    None,
    /// The probe only; the PSN after it.
    Probe(Psn),
    /// The probe, and the packet after it.
    OneMore,
}

/// The responses that are kept until those before them come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// There is none.
    None,
    /// The first one is to be handled next, or nothing is requested again for its sake.
    Next,
    /// The first one is behind missing ones.
    Late,
}

/// The account of the probes of one node.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// The smoothed round-trip time and its deviation.
    estimate: Option<(f64, f64)>,
    /// The PSN after the packet that is measured, and when it was sent.
    sample: Option<(Psn, u64)>,
    una: Psn,
    /// When there was progress, the oldest packet was sent, or the last probe was due.
    since: u64,
    /// Probes since the last measurement, or the last loss that one showed.
    count: u32,
    stage: Stage,
    proof: Proof,
    kept: Kept,
}

impl Probes {
    pub(super) fn new(psn: Psn) -> Probes {
        Probes {
            estimate: None,
            sample: None,
            una: psn,
            since: 0,
            count: 0,
            stage: Stage::None,
            proof: Proof::None,
            kept: Kept::None,
        }
    }

    /// Accounts for the responses that are kept after what was acknowledged.
    pub(super) fn set_kept(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Accounts for a packet before `end`; `requests` tells whether it has to be answered.
    pub(super) fn sent(&mut self, now: u64, transmit: &Transmit, end: Psn, requests: bool) {
        if transmit.is_probe() {
            let is_next = match self.stage {
                Stage::Due => transmit.psn == self.una,
                Stage::Begun(psn) => transmit.psn == psn,
                Stage::None | Stage::Sent(_) => false,
            };
            if is_next {
                // The last packet has to be answered.
                self.stage = match requests {
                    true => Stage::Sent(end),
                    false => Stage::Begun(end),
                };
            }
            return;
        }
        if transmit.psn == self.una {
            self.since = now;
            self.stage = Stage::None;
        }
        if !transmit.again && requests && self.sample.is_none() {
            self.sample = Some((transmit.psn.next(), now));
        }
    }

    /// Accounts for packets that were taken back.
    pub(super) fn taken_back(&mut self) {
        self.sample = None;
    }

    /// Accounts for a rewind.
    pub(super) fn rewound(&mut self) {
        self.sample = None;
        self.stage = Stage::None;
    }

    /// Accounts for a report of what is missing: either a few packets are sent again, like a probe,
    /// or all are.
    pub(super) fn reported(&mut self, half: &SendSnapshot) {
        self.sample = None;
        self.stage = match half.una == half.next {
            true => Stage::None,
            false => Stage::Due,
        };
    }

    /// Accounts for a response to a later request than the probe, which was executed, too.
    pub(super) fn came_early(&mut self) {
        self.proof = Proof::None;
    }

    /// Accounts for what was acknowledged.
    pub(super) fn observe(&mut self, now: u64, una: Psn) {
        if una == self.una {
            return;
        }
        let mut stage = Stage::None;
        if let Stage::Sent(end) = self.stage {
            self.proof = match una {
                una if una == end && self.kept == Kept::None => Proof::Probe(end),
                una if una == end.next() => Proof::OneMore,
                _ => Proof::None,
            };
            if una.is_before(end) {
                stage = self.stage;
            }
        } else if matches!(self.stage, Stage::Begun(psn) if !psn.is_before(una)) {
            stage = self.stage;
        } else if self.proof != Proof::None {
            // The response also acknowledged the packets before its own.
            self.proof = Proof::OneMore;
        }
        if stage == Stage::None && self.kept == Kept::Late {
            // The requester requests the next missing responses again.
            stage = Stage::Due;
        }
        self.una = una;
        self.since = now;
        self.stage = stage;
        match self.sample {
            Some((end, sent)) if !una.is_before(end) => {
                self.sample = None;
                self.count = 0;
                self.measured((now - sent) as f64);
            }
            _ => {}
        }
        if stage == Stage::Due {
            self.sample = None;
        }
    }

    fn measured(&mut self, ns: f64) {
        self.estimate = Some(match self.estimate {
            None => (ns, ns / 2.0),
            Some((time, deviation)) => (
                time + (ns - time) / 8.0,
                deviation + ((ns - time).abs() - deviation) / 4.0,
            ),
        });
    }

    /// Checks that the response is late. There were `left` retries before the probe.
    pub(super) fn is_due(
        &mut self,
        now: u64,
        left: u8,
        half: &SendSnapshot,
    ) -> Result<(), Violation> {
        let Some((time, deviation)) = self.estimate else {
            return Err(format!("a probe before anything was measured: {half:?}"));
        };
        let rto = (2.0 * time + 4.0 * deviation - ROUNDING_NS).max(MIN_RTO_NS as f64);
        let pause = rto * f64::from(1 << self.count.min(MOST_DOUBLINGS));
        let waited = (now - self.since) as f64;
        if half.una == half.next || waited < pause {
            return Err(format!(
                "a probe after {waited} of {pause} ns: {half:?} {self:?}"
            ));
        }
        if half.retries_left != left {
            return Err(format!("a probe left {half:?} of {left} retries"));
        }
        self.count += 1;
        self.since = now;
        self.sample = None;
        self.stage = Stage::Due;
        Ok(())
    }

    /// Checks whether a response showed a loss: `found_loss` is what the half says. One to a READ
    /// that goes on behind it (at `goes_on`) is not to a probe.
    pub(super) fn check(
        &mut self,
        found_loss: bool,
        outcome: ResponseKind,
        goes_on: Option<Psn>,
        half: &SendSnapshot,
    ) -> Result<(), Violation> {
        let proof = std::mem::take(&mut self.proof);
        let shows_loss = match proof {
            Proof::None => false,
            Proof::Probe(end) => outcome != ResponseKind::ReadResponse || goes_on != Some(end),
            // A response that followed told of the packet before it, too.
            Proof::OneMore => outcome == ResponseKind::ReadResponse,
        };
        let is_active = matches!(half.state, SendState::Running | SendState::Draining);
        if found_loss && !shows_loss {
            return Err(format!("no probe shows a loss: {half:?}"));
        }
        let is_proof = shows_loss && proof != Proof::OneMore;
        if !found_loss && is_proof && is_active && half.una.is_before(half.next) {
            return Err(format!("the loss that a probe shows is ignored: {half:?}"));
        }
        if found_loss {
            self.reported(half);
            self.count = 0;
        }
        Ok(())
    }
}
