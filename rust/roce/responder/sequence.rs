// SPDX-License-Identifier: GPL-2.0

//! The sequence of requests: the expected PSN, the acknowledged PSN and the MSN.

use crate::psn::Psn;

/// The value of [`Sequence::msn`] after the largest one. Its 24 bits on the wire are 0; the value 0
/// means that no message was completed.
const MSN_RESTART: u32 = 1 << 24;

/// The position of the responder in the sequence of requests.
pub(super) struct Sequence {
    /// The PSN to execute next.
    epsn: Psn,
    /// The PSN of the last executed SEND or WRITE.
    acked: Psn,
    /// The number of completed messages: 0 only if there is none. The low 24 bits are the MSN.
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

    /// Returns the number of completed messages: 0 only if there is none. The low 24 bits are the
    /// MSN.
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
        self.msn = self.msn.checked_add(1).unwrap_or(MSN_RESTART);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_sequence))]
mod tests {
    use super::*;
    use crate::responder::Record;
    use crate::testutil::*;

    /// Accounts for a message of one packet, with PSN 0.
    fn executed(sequence: &mut Sequence) {
        sequence.executed(Psn::new(0));
        sequence.count_message();
    }

    #[test]
    fn read_needs_no_last_acknowledgment() {
        let mut rx = responder();
        assert_eq!(rx.last_ack(), None);
        executed(&mut rx.sequence);
        assert_eq!(rx.last_ack().map(|ack| ack.psn.get()), Some(0));
        rx.sequence.skip_to(Psn::new(2));
        rx.sequence.count_message();
        assert_eq!(rx.last_ack(), None);
    }

    #[test]
    fn last_acknowledgment_is_sent_after_the_msn_has_wrapped() {
        for msn in [(1 << 24) - 1, u32::MAX] {
            let mut rx = responder();
            rx.sequence.msn = msn;
            executed(&mut rx.sequence);
            let ack = rx.last_ack().map(|ack| Frame::new(&ack));
            let aeth = ack.and_then(|ack| ack.packet().aeth());
            assert_eq!(aeth.map(|aeth| aeth.msn), Some(0));
        }
    }

    #[test]
    fn failed_or_unreliable_half_acknowledges_nothing() {
        let mut uc = Responder::new(Transport::Uc);
        executed(&mut uc.sequence);
        assert_eq!(uc.last_ack(), None);
        let mut rc = responder();
        executed(&mut rc.sequence);
        rc.failed = true;
        assert_eq!(rc.last_ack(), None);
    }

    #[test]
    fn old_flush_with_the_same_psn_is_not_acknowledged() {
        let mut rx = responder();
        rx.resources.remember(Record {
            opcode: Opcode::RcFlush,
            ..Record::default()
        });
        executed(&mut rx.sequence);
        let kind = rx.last_ack().map(|ack| ack.kind);
        assert_eq!(kind, Some(ReplyKind::Acknowledge));
    }
}
