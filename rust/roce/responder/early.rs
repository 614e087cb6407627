// SPDX-License-Identifier: GPL-2.0

//! Packets that arrive before an earlier one (RC).
//!
//! The driver keeps them until the missing packet arrives, so that only that has to be sent again.
//! IBTA lets a responder drop them (9.7.4.1.1); that also holds if there is no memory for them.
//!
//! They are kept in the order of arrival. One with a PSN below that of the last kept one is dropped
//! and is missing later: the order of arrival is nearly always that of PSNs, and a queue needs
//! neither a search nor a bitmap.

use super::{
    resources::Records,
    Reply,
    Responder, //
};
use crate::psn::Psn;

/// The PSNs of the kept packets.
///
/// # Invariants
///
/// `last` is not before `first`, if there is one.
#[derive(Clone, Copy, Default)]
pub(super) struct Early {
    /// The PSN of the packet to execute first, if any is kept.
    first: Option<Psn>,
    /// The PSN of the one kept last.
    last: Psn,
    /// True if an acknowledgment was left to the end of the kept packets.
    owes_ack: bool,
}

impl Early {
    /// Returns whether the first kept packet is to be executed now that `epsn` is expected.
    #[inline]
    fn is_due(&self, epsn: Psn) -> bool {
        self.first.is_some_and(|first| !first.is_after(epsn))
    }

    /// Returns whether to acknowledge the packet that was just executed, given whether it requests
    /// that and the PSN expected next.
    ///
    /// If a kept packet follows, the acknowledgment waits for it: from one that covers no more than
    /// the packet that it sent again, the peer concludes that nothing was kept.
    #[inline]
    pub(super) fn acknowledges(&mut self, ack_req: bool, epsn: Psn) -> bool {
        if !ack_req && !self.owes_ack {
            return false;
        }
        self.owes_ack = self.is_due(epsn);
        !self.owes_ack
    }

    /// Accounts for a response that acknowledges all packets before it.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        self.owes_ack = false;
    }
}

impl<S: Records> Responder<S> {
    /// Returns whether to keep a packet of [`Verdict::Early`](super::Verdict::Early).
    #[inline]
    pub fn may_keep(&self, psn: Psn) -> bool {
        self.early.first.is_none() || psn.is_after(self.early.last)
    }

    /// Accounts for a packet that was kept, which [`Responder::may_keep`] allowed.
    pub fn kept(&mut self, psn: Psn) {
        // INVARIANT: It is after the last one, or the only one.
        self.early.first.get_or_insert(psn);
        self.early.last = psn;
    }

    /// Returns whether the kept packet that came first is to be handled now, as if it arrived.
    #[inline]
    pub fn is_kept_due(&self) -> bool {
        self.early.is_due(self.sequence.epsn()) && !self.failed
    }

    /// Accounts for the kept packet that is going to be handled; the one after it has the PSN
    /// `next`, if there is one.
    pub fn took_kept(&mut self, next: Option<Psn>) {
        // INVARIANT: The last one is the same, or there is none.
        self.early.first = next;
    }

    /// Returns the NAK for the next missing packet, after kept ones were executed up to it.
    ///
    /// The peer cannot know of it: it was told of the first missing packet only.
    pub fn report_gap(&mut self) -> Option<Reply> {
        let waits = self.early.first.is_some() && !self.is_kept_due();
        (waits && !self.failed && !self.is_busy() && self.sequence.nak().is_none())
            .then(|| self.report_missing())
    }
}
