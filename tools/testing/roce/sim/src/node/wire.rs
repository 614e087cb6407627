// SPDX-License-Identifier: GPL-2.0

//! The PSNs of the requests that were sent, to check those of the requester (RC).

use std::ops::RangeInclusive;

use roce::{
    opcode::Opcode,
    psn::Psn,
    requester::{
        SendSnapshot,
        Transmit, //
    },
};

use super::Violation;

/// The packets that were sent and not taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    mtu: u32,
    /// The PSN after the last one that was sent.
    max: Psn,
    /// The PSN after the last packet that requested a response.
    requested: Psn,
    /// The number of messages that were sent. Each part of a READ is one.
    messages: u32,
    /// The number of requests for parts of READs that were sent again. They may be new to the peer.
    again: u32,
    /// The PSN after the last packet that the stack has refused.
    refused: Psn,
    /// The number of requests for parts of READs that begin before that. They may be shorter than
    /// the refused ones, of which a copy may have reached the peer.
    shorter: u32,
}

impl Wire {
    /// Makes the account before the first packet.
    pub(super) fn new(psn: Psn, mtu: u32) -> Wire {
        Wire {
            mtu,
            max: psn,
            requested: psn,
            messages: 0,
            again: 0,
            refused: psn,
            shorter: 0,
        }
    }

    /// Accounts for a packet that the stack has refused. A copy of it may have left.
    pub(super) fn refused(&mut self, transmit: &Transmit) {
        let mut copy = *self;
        if copy.sent(transmit).is_ok() {
            self.take_copies(&copy);
        }
    }

    /// Goes back to `before`: the packets since then were refused. Copies of them may have left.
    pub(super) fn take_back(&mut self, before: Wire) {
        let copies = core::mem::replace(self, before);
        self.take_copies(&copies);
    }

    /// Accounts for packets that may have left. `copies` is the account if they were sent.
    fn take_copies(&mut self, copies: &Wire) {
        self.again = copies.again;
        if copies.max.is_after(self.refused) {
            self.refused = copies.max;
        }
    }

    /// Accounts for a packet, and checks that a new one has the next PSN.
    ///
    /// Returns the PSN after it, and true if it requests a response.
    pub(super) fn sent(&mut self, transmit: &Transmit) -> Result<(Psn, bool), Violation> {
        let is_new = transmit.psn == self.max;
        if transmit.again == is_new || transmit.psn.is_after(self.max) {
            return Err(format!("{transmit:?} does not follow {:?}", self.max));
        }
        let end = transmit.psn.add(self.count(transmit));
        if end.is_after(self.max) {
            self.max = end;
        }
        let is_read = transmit.opcode == Opcode::RcReadRequest;
        let ends = transmit.opcode.ends_message() || is_read;
        self.messages += u32::from(is_new && ends);
        self.again += u32::from(!is_new && is_read);
        let is_refused = transmit.psn.is_before(self.refused);
        self.shorter += u32::from(is_new && is_read && is_refused);
        let requests = transmit.ack_req || has_explicit_response(transmit);
        if requests && end.is_after(self.requested) {
            self.requested = end;
        }
        Ok((end, requests))
    }

    /// Returns the range of the number of messages that the peer may count.
    pub(super) fn messages(&self) -> RangeInclusive<u32> {
        self.messages - self.shorter..=self.messages + self.again
    }

    /// Checks the PSNs of a requester, and that it waits only for responses that were requested.
    pub(super) fn check(&self, half: &SendSnapshot) -> Result<(), Violation> {
        if half.max != self.max {
            return Err(format!("{:?} was sent last, not {half:?}", self.max));
        }
        if half.ack_due.is_some() && !half.una.is_before(self.requested) {
            return Err(format!("waits for nothing: {half:?}"));
        }
        Ok(())
    }

    /// Returns the number of PSNs of a packet.
    fn count(&self, transmit: &Transmit) -> u32 {
        match transmit.reth {
            Some(reth) if transmit.opcode == Opcode::RcReadRequest => {
                reth.len.div_ceil(self.mtu).max(1)
            }
            _ => 1,
        }
    }
}

fn has_explicit_response(transmit: &Transmit) -> bool {
    matches!(
        transmit.opcode,
        Opcode::RcReadRequest
            | Opcode::RcCompareSwap
            | Opcode::RcFetchAdd
            | Opcode::RcAtomicWrite
            | Opcode::RcFlush
    )
}
