// SPDX-License-Identifier: GPL-2.0

//! The ACK extended transport header.

/// The three bits of a syndrome that select the meaning of the other five. The top one of them is
/// reserved and must be zero.
const KIND_MASK: u8 = 0xe0;
const KIND_ACK: u8 = 0x00;
const KIND_RNR: u8 = 0x20;
const KIND_NAK: u8 = 0x60;

/// The five bits of a syndrome that hold the credit count, the RNR timer or the NAK code.
const VALUE_MASK: u8 = 0x1f;

/// The shift of the syndrome above the MSN.
const SYNDROME_SHIFT: u32 = 24;

/// Bits of the MSN.
pub const MSN_MASK: u32 = 0x00ff_ffff;

/// The reason for a NAK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: the PSN is the one that the responder expects.
    PsnSequence = 0,
    /// The request is malformed, unsupported or not allowed on this queue pair.
    InvalidRequest = 1,
    /// The key does not allow the access, or the range is outside of the region.
    RemoteAccess = 2,
    /// The responder could not execute the request.
    RemoteOperation = 3,
    /// The reliable datagram domain is wrong.
    InvalidRd = 4,
}

/// The syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets up to the PSN were executed.
    Ack {
        /// Encoded end-to-end flow control credits, 0 to 31; 31 means that there is no such flow
        /// control.
        credits: u8,
    },
    /// All packets before the PSN were executed; there is no receive request for the packet itself.
    Rnr {
        /// The RNR timer code, 0 to 31; see [`rnr_timer_ns`](crate::time::rnr_timer_ns).
        timer: u8,
    },
    /// All packets before the PSN were executed; the packet itself was not.
    Nak(NakCode),
    /// A code that the specification reserves.
    Reserved,
}

impl Syndrome {
    /// An acknowledgment without end-to-end flow control, which is the only kind that is sent.
    pub const ACK: Syndrome = Syndrome::Ack {
        credits: VALUE_MASK,
    };

    /// Returns the meaning of a syndrome byte.
    #[inline]
    pub const fn parse(raw: u8) -> Syndrome {
        let value = raw & VALUE_MASK;
        match raw & KIND_MASK {
            KIND_ACK => Syndrome::Ack { credits: value },
            KIND_RNR => Syndrome::Rnr { timer: value },
            KIND_NAK => match value {
                0 => Syndrome::Nak(NakCode::PsnSequence),
                1 => Syndrome::Nak(NakCode::InvalidRequest),
                2 => Syndrome::Nak(NakCode::RemoteAccess),
                3 => Syndrome::Nak(NakCode::RemoteOperation),
                4 => Syndrome::Nak(NakCode::InvalidRd),
                _ => Syndrome::Reserved,
            },
            _ => Syndrome::Reserved,
        }
    }

    /// Returns the syndrome byte.
    ///
    /// [`Syndrome::Reserved`] is never sent. It is encoded as a code that every peer rejects.
    #[inline]
    pub const fn raw(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => KIND_ACK | (credits & VALUE_MASK),
            Syndrome::Rnr { timer } => KIND_RNR | (timer & VALUE_MASK),
            // CAST: the discriminants are the codes on the wire.
            Syndrome::Nak(code) => KIND_NAK | code as u8,
            Syndrome::Reserved => KIND_NAK | VALUE_MASK,
        }
    }
}

/// The ACK extended transport header (AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The result of the request.
    pub syndrome: Syndrome,
    /// The number of messages that the responder has completed, of which the header carries the
    /// low 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Returns the number on the wire.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        // CAST: Widening.
        ((self.syndrome.raw() as u32) << SYNDROME_SHIFT) | (self.msn & MSN_MASK)
    }

    /// Converts from the number on the wire.
    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Aeth {
        // CAST: Narrowing: the shift leaves eight bits.
        let syndrome = (bits >> SYNDROME_SHIFT) as u8;
        Aeth {
            syndrome: Syndrome::parse(syndrome),
            msn: bits & MSN_MASK,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_wire_aeth))]
mod tests {
    use super::*;

    #[test]
    fn syndromes_round_trip() {
        for raw in 0..=u8::MAX {
            let syndrome = Syndrome::parse(raw);
            if syndrome != Syndrome::Reserved {
                assert_eq!(syndrome.raw(), raw);
            }
        }
        assert_eq!(
            Syndrome::parse(Syndrome::Reserved.raw()),
            Syndrome::Reserved
        );
    }

    #[test]
    fn syndromes_have_codes_of_ibta() {
        assert_eq!(Syndrome::ACK.raw(), 0x1f);
        assert_eq!(Syndrome::Rnr { timer: 12 }.raw(), 0x2c);
        assert_eq!(Syndrome::Nak(NakCode::RemoteAccess).raw(), 0x62);
        assert_eq!(Syndrome::parse(0x40), Syndrome::Reserved);
        assert_eq!(Syndrome::parse(0x80), Syndrome::Reserved);
        assert_eq!(Syndrome::parse(0x65), Syndrome::Reserved);
    }

    #[test]
    fn msn_has_24_bits() {
        for (msn, on_wire) in [(0x0012_3456, 0x0012_3456), (0x7f00_0001, 1)] {
            let syndrome = Syndrome::ACK;
            let bits = Aeth { syndrome, msn }.bits();
            assert_eq!(bits, 0x1f00_0000 | on_wire);
            let parsed = Aeth::from_bits(bits);
            assert_eq!((parsed.syndrome, parsed.msn), (Syndrome::ACK, on_wire));
        }
    }
}
