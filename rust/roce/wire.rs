// SPDX-License-Identifier: GPL-2.0

//! The packet format, from the BTH to the ICRC.
//!
//! [`Packet`] is the checked view of a received UDP payload. A [`TxPacket`] is to be sent: a
//! [`Transmit`](crate::requester::Transmit), [`Reply`](crate::responder::Reply),
//! [`ReadSegment`](crate::responder::ReadSegment) or [`Cnp`](crate::congestion::Cnp), to which the
//! driver adds payload, pad and ICRC.
//!
//! ```text
//! BTH | DETH | FETH | RETH or AtomicETH or AETH | AtomicAckETH | ImmDt or IETH | 16 bytes (CNP)
//!     | payload | pad (0..3) | ICRC
//! ```

mod aeth;
mod bth;
mod feth;
mod headers;
mod len;
mod tx;
mod writer;

pub use self::{
    aeth::{
        Aeth,
        NakCode,
        Syndrome,
        MSN_MASK, //
    },
    feth::Feth,
    headers::{
        AtomicEth,
        Deth,
        Reth, //
    },
    len::{
        AETH_LEN,
        ATOMIC_ACK_LEN,
        ATOMIC_LEN,
        BTH_LEN,
        CNP_LEN,
        DETH_LEN,
        FETH_LEN,
        ICRC_LEN,
        IETH_LEN,
        IMMDT_LEN,
        MAX_HEADER_LEN,
        MAX_PACKET_LEN,
        RETH_LEN, //
    },
    tx::TxPacket, //
};

pub(crate) use self::{
    bth::Bth,
    headers::{
        RawAtomicEth,
        RawDeth,
        RawReth, //
    },
    writer::HeaderWriter, //
};

use zerocopy::{
    network_endian::{
        U32,
        U64, //
    },
    FromBytes, //
};

use crate::{
    ids::Rkey,
    opcode::{
        Opcode,
        Operation, //
    }, //
};

/// Bytes of the GRH area before the payload of a datagram in the receive buffer.
pub const GRH_LEN: u32 = 40;

/// The most bytes of a message (IBTA C9-94 for RDMA).
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

const _: () = {
    assert!(size_of::<Bth>() == BTH_LEN && size_of::<RawDeth>() == DETH_LEN);
    assert!(size_of::<RawReth>() == RETH_LEN && size_of::<RawAtomicEth>() == ATOMIC_LEN);
};

/// The version of the transport headers.
const VERSION: u8 = 0;

/// The length of a packet without the ICRC is a multiple of this many bytes.
const ALIGNMENT: u32 = 4;

/// Returns the number of pad bytes after `len` bytes of payload, 0 to 3.
#[inline]
pub const fn pad_for(len: u32) -> u8 {
    // CAST: the mask leaves two bits.
    (len.wrapping_neg() & (ALIGNMENT - 1)) as u8
}

/// Returns the number of packets with `len` bytes of payload in total, at least one.
///
/// The MTU is a power of two.
#[inline]
pub(crate) fn packets_for(len: u32, mtu: u32) -> u32 {
    // The fallback is for an MTU of 0, which the driver does not set.
    let rest = len.saturating_sub(1).checked_shr(mtu.trailing_zeros());
    rest.unwrap_or(0).wrapping_add(1)
}

/// The reason why a packet cannot be parsed. The packet is dropped without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The packet is too short for its headers and ICRC.
    Truncated,
    /// The opcode is not known.
    UnknownOpcode,
    /// The pad count exceeds the bytes between headers and ICRC.
    BadPad,
    /// The transport header version is not 0.
    BadVersion,
    /// The length is not a multiple of four bytes, or there is payload that the opcode does not
    /// allow.
    BadLength,
}

/// The checked view of a packet.
///
/// # Invariants
///
/// - `bth` and `extension` have all headers of `opcode`.
/// - Headers, payload, pad and ICRC together are as long as the packet.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    bth: &'a Bth,
    extension: &'a [u8],
    opcode: Opcode,
    payload_len: u32,
}

impl<'a> Packet<'a> {
    /// Parses a UDP payload, from the BTH to the ICRC. Does not check the ICRC.
    ///
    /// # Errors
    ///
    /// See [`ParseError`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let total = u32::try_from(bytes.len()).map_err(|_| ParseError::BadLength)?;
        let (bth, extension) = Bth::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if bth.version() != VERSION {
            return Err(ParseError::BadVersion);
        }
        let opcode = Opcode::parse(bth.raw_opcode()).ok_or(ParseError::UnknownOpcode)?;

        let header_len = opcode.header_len();
        // CAST: both are small constants.
        let overhead = (header_len as u32).wrapping_add(ICRC_LEN as u32);
        let body = total.checked_sub(overhead).ok_or(ParseError::Truncated)?;
        if body % ALIGNMENT != 0 {
            return Err(ParseError::BadLength);
        }
        let pad = u32::from(bth.pad());
        let payload_len = body.checked_sub(pad).ok_or(ParseError::BadPad)?;
        let bare = matches!(
            opcode.operation(),
            Operation::ReadRequest
                | Operation::Atomic
                | Operation::Flush
                | Operation::Acknowledge
                | Operation::AtomicAck
                | Operation::Cnp
        );
        if bare && body != 0 {
            return Err(ParseError::BadLength);
        }

        // INVARIANT: The length was compared with that of the headers and the ICRC. `payload_len`
        // is the rest without the pad.
        Ok(Packet {
            bth,
            extension,
            opcode,
            payload_len,
        })
    }

    /// Returns the opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns the DETH, if the packet is a datagram.
    #[inline]
    pub fn deth(&self) -> Option<Deth> {
        self.header::<RawDeth>(self.opcode.has_deth(), 0)
            .map(Deth::from)
    }

    /// Returns the RETH, if the packet has one.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        let offset = if self.opcode.has_feth() { FETH_LEN } else { 0 };
        self.header::<RawReth>(self.opcode.has_reth(), offset)
            .map(Reth::from)
    }

    /// Returns the FETH, if the packet is a FLUSH.
    #[inline]
    pub fn feth(&self) -> Option<Feth> {
        self.header::<U32>(self.opcode.has_feth(), 0)
            .map(|bits| Feth::from_bits(bits.get()))
    }

    /// Returns the AtomicETH, if the packet is an atomic operation.
    #[inline]
    pub fn atomic(&self) -> Option<AtomicEth> {
        self.header::<RawAtomicEth>(self.opcode.has_atomic(), 0)
            .map(AtomicEth::from)
    }

    /// Returns the original value of an atomic operation, if the packet is the response to one.
    #[inline]
    pub fn found(&self) -> Option<u64> {
        self.header::<U64>(self.opcode.has_atomic_ack(), AETH_LEN)
            .map(U64::get)
    }

    /// Returns the key to invalidate, if the packet carries one.
    #[inline]
    pub fn ieth(&self) -> Option<Rkey> {
        self.header::<U32>(self.opcode.has_ieth(), 0)
            .map(|key| Rkey::new(key.get()))
    }

    /// Returns the acknowledgment, if the packet has one.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        self.header::<U32>(self.opcode.has_aeth(), 0)
            .map(|bits| Aeth::from_bits(bits.get()))
    }

    /// Returns the immediate data, if the packet has any.
    #[inline]
    pub fn imm(&self) -> Option<[u8; 4]> {
        // Immediate data is the last of the headers.
        let offset = self.payload_offset().wrapping_sub(BTH_LEN + IMMDT_LEN);
        self.header(self.opcode.has_immdt(), offset)
    }

    /// Returns the offset of the payload from the start of the BTH, in bytes.
    #[inline]
    pub fn payload_offset(&self) -> usize {
        self.opcode.header_len()
    }

    /// Returns the length of the payload in bytes, without pad and ICRC.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Reads a header that starts `offset` bytes behind the BTH, if it exists.
    #[inline]
    fn header<T: FromBytes>(&self, exists: bool, offset: usize) -> Option<T> {
        if !exists {
            return None;
        }
        let bytes = self.extension.get(offset..)?;
        T::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_wire))]
mod tests {
    use super::*;
    use crate::ids::Pkey;

    /// A UC WRITE ONLY with immediate data, 5 bytes of payload and 3 of pad.
    #[rustfmt::skip]
    const WRITE_IMM: [u8; 44] = [
        0x2b, 0xf0, 0xff, 0xff, 0xaa, 0x00, 0x00, 0x11, 0x80, 0xab, 0xcd, 0xef,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x12, 0x34,
        0x00, 0x00, 0x00, 0x05, 0xde, 0xad, 0xbe, 0xef,
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 1, 2, 3, 4,
    ];

    #[test]
    fn all_fields_are_parsed() {
        let pkt = Packet::parse(&WRITE_IMM).ok();
        assert!(pkt.is_some());
        let Some(pkt) = pkt else { return };
        assert_eq!(pkt.opcode(), Opcode::UcWriteOnlyImm);
        assert!(pkt.solicited() && pkt.ack_req());
        assert_eq!(pkt.pad(), 3);
        assert_eq!(pkt.pkey(), Pkey::DEFAULT);
        assert_eq!(pkt.dest_qpn().get(), 0x11);
        assert_eq!(pkt.psn().get(), 0xab_cdef);
        assert_eq!(pkt.reth().map(|reth| reth.va), Some(0x1000));
        assert_eq!(pkt.reth().map(|reth| reth.rkey.get()), Some(0x1234));
        assert_eq!(pkt.reth().map(|reth| reth.len), Some(5));
        assert_eq!(pkt.imm(), Some([0xde, 0xad, 0xbe, 0xef]));
        assert!(pkt.aeth().is_none() && pkt.deth().is_none());
        assert_eq!(pkt.payload_offset(), 32);
        assert_eq!(pkt.payload_len(), 5);
    }

    #[test]
    fn truncated_packets_are_refused() {
        for len in 0..36 {
            let cut = WRITE_IMM.get(..len).unwrap_or_default();
            assert_eq!(Packet::parse(cut).err(), Some(ParseError::Truncated));
        }
    }

    #[test]
    fn malformed_packets_are_refused() {
        let mut raw = WRITE_IMM;
        raw[1] = 0xf1;
        assert_eq!(Packet::parse(&raw).err(), Some(ParseError::BadVersion));

        let mut raw = WRITE_IMM;
        raw[0] = 0x80;
        assert_eq!(Packet::parse(&raw).err(), Some(ParseError::UnknownOpcode));

        // A CNP with payload after its reserved field.
        let mut raw = WRITE_IMM;
        raw[0] = Opcode::Cnp.raw();
        raw[1] = 0;
        assert_eq!(Packet::parse(&raw).err(), Some(ParseError::BadLength));

        let short = WRITE_IMM.get(..36).unwrap_or_default();
        assert_eq!(Packet::parse(short).err(), Some(ParseError::BadPad));

        let odd = WRITE_IMM.get(..43).unwrap_or_default();
        assert_eq!(Packet::parse(odd).err(), Some(ParseError::BadLength));

        let mut raw = WRITE_IMM;
        raw[0] = Opcode::RcAcknowledge.raw();
        assert_eq!(Packet::parse(&raw).err(), Some(ParseError::BadLength));
    }

    #[test]
    fn payload_is_padded_to_words() {
        assert_eq!(pad_for(0), 0);
        assert_eq!(pad_for(1), 3);
        assert_eq!(pad_for(2), 2);
        assert_eq!(pad_for(3), 1);
        assert_eq!(pad_for(4), 0);
        assert_eq!(pad_for(u32::MAX), 1);
    }

    #[test]
    fn message_has_at_least_one_packet() {
        for (len, count) in [
            (0, 1),
            (1, 1),
            (256, 1),
            (257, 2),
            (512, 2),
            (1 << 31, 1 << 23),
        ] {
            assert_eq!(packets_for(len, 256), count);
        }
        assert_eq!(packets_for(u32::MAX, 4096), 1 << 20);
        assert_eq!(packets_for(u32::MAX, 0), 1);
    }
}
