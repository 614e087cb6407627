// SPDX-License-Identifier: GPL-2.0

//! The sequence of requests: the expected PSN, the acknowledged PSN and the MSN.

use crate::psn::Psn;

/// The bits of the MSN.
const MSN_MASK: u32 = 0x00ff_ffff;

/// The position of the responder in the sequence of requests.
pub(super) struct Sequence {
    /// The PSN to execute next.
    epsn: Psn,
    /// The PSN of the last executed SEND or WRITE.
    acked: Psn,
    /// The number of completed messages, modulo 2^24.
    msn: u32,
    /// The NAK that was sent for the expected packet, if any. No other one is sent until the packet
    /// arrives.
    nak: Option<Nak>,
}

/// A NAK for the expected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nak {
    /// The packet is missing.
    Sequence,
    /// There was no receive request for it.
    Rnr,
}

impl Sequence {
    /// Makes the sequence before the first packet, which has PSN `psn`.
    pub(super) fn new(psn: Psn) -> Sequence {
        Sequence {
            epsn: psn,
            acked: psn.prev(),
            msn: 0,
            nak: None,
        }
    }

    /// Returns the PSN to execute next.
    #[inline]
    pub(super) fn epsn(&self) -> Psn {
        self.epsn
    }

    /// Returns the PSN of the last executed SEND or WRITE.
    #[inline]
    pub(super) fn acked(&self) -> Psn {
        self.acked
    }

    /// Returns the number of completed messages, modulo 2^24.
    #[inline]
    pub(super) fn msn(&self) -> u32 {
        self.msn
    }

    /// Returns the NAK that was sent for the expected packet.
    #[inline]
    pub(super) fn nak(&self) -> Option<Nak> {
        self.nak
    }

    /// Accounts for a NAK for the expected packet.
    pub(super) fn sent_nak(&mut self, nak: Nak) {
        self.nak = Some(nak);
    }

    /// Accounts for the arrival of the expected packet.
    #[inline]
    pub(super) fn arrived(&mut self) {
        self.nak = None;
    }

    /// Accounts for a SEND or WRITE packet that was executed.
    #[inline]
    pub(super) fn executed(&mut self, psn: Psn) {
        self.epsn = psn.next();
        self.acked = psn;
    }

    /// Expects `psn` next, after a request with an explicit response, or a lost message.
    #[inline]
    pub(super) fn skip_to(&mut self, psn: Psn) {
        self.epsn = psn;
    }

    /// Counts a completed message.
    #[inline]
    pub(super) fn count_message(&mut self) {
        self.msn = next_msn(self.msn);
    }
}

/// Returns the MSN after `msn`.
pub(super) fn next_msn(msn: u32) -> u32 {
    msn.wrapping_add(1) & MSN_MASK
}
