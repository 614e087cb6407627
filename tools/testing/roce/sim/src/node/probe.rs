// SPDX-License-Identifier: GPL-2.0

//! Checks of probes: each has a reason and the right consequence (RC).
//!
//! - The probe timer expires after the measured time (RFC 6298), doubled with each probe since the
//!   last sample (Karn) or the last loss that a probe showed. It runs from the last progress, or
//!   from the time when the oldest packet was sent.
//! - The probe consumes no retry.
//! - More packets are sent again if and only if the peer acknowledges only the probe. The same
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

/// The rounding error of the half, which calculates with integers. The doublings multiply it.
const ROUNDING_NS: f64 = 100.0;

/// The most doublings of the probe timer.
const MOST_DOUBLINGS: u32 = 10;

/// The progress of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    None,
    /// The probe is to be sent.
    Due,
    /// Some packets of the probe were sent; the PSN of the next one.
    Begun(Psn),
    /// The probe was sent; the PSN after it.
    Sent(Psn),
}

/// The extent of the acknowledgment after a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Proof {
    /// There was no probe, or the acknowledgment covers more than one packet after it.
    #[default]
    None,
    /// It covers only the probe; the PSN after that.
    Probe(Psn),
    /// It covers the probe and the packet after it.
    OneMore,
}

/// The state of the kept responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// No response is kept.
    None,
    /// The first one is to be handled next, or no response before it is requested again now.
    Next,
    /// The first one is behind missing responses.
    Late,
}

/// The account of the probes of one node.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// SRTT and RTTVAR, in ns.
    estimate: Option<(f64, f64)>,
    /// The PSN after the packet of the current sample, and the time when it was sent.
    sample: Option<(Psn, u64)>,
    una: Psn,
    /// The time of the last progress, of sending the oldest packet or of the last probe.
    since: u64,
    /// The number of probes since the last sample, or since a probe showed a loss.
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

    /// Sets the state of the kept responses, before [`Probes::observe`].
    pub(super) fn set_kept(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Accounts for a packet that was sent. `end` is the PSN after it.
    ///
    /// `requests` is true if the packet requests a response.
    pub(super) fn sent(&mut self, now: u64, transmit: &Transmit, end: Psn, requests: bool) {
        if transmit.is_probe() {
            let is_next = match self.stage {
                Stage::Due => transmit.psn == self.una,
                Stage::Begun(psn) => transmit.psn == psn,
                Stage::None | Stage::Sent(_) => false,
            };
            if is_next {
                // The last packet of a probe requests a response.
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

    /// Accounts for the report of a loss: a few packets are sent again, like a probe, or all are.
    pub(super) fn reported(&mut self, half: &SendSnapshot) {
        self.sample = None;
        self.stage = match half.una == half.next {
            true => Stage::None,
            false => Stage::Due,
        };
    }

    /// Accounts for an early response, which shows that the peer has received more than the probe.
    pub(super) fn came_early(&mut self) {
        self.proof = Proof::None;
    }

    /// Accounts for progress up to `una`, if there is any.
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
            // An explicit response has also acknowledged the packets before its own.
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

    /// Checks that the response is overdue. There were `left` retries before the probe.
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

    /// Checks that the half has found a loss (`found_loss`) if and only if a probe showed one.
    ///
    /// A response to a READ that continues after it, at `goes_on`, is not the response to a probe.
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
            // The response after that to the probe has acknowledged the packets between, too.
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
