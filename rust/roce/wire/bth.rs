// SPDX-License-Identifier: GPL-2.0

//! The base transport header.

use zerocopy::network_endian::{
    U16,
    U32, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    pad_for,
    Packet,
    TxPacket, //
};
use crate::{
    ids::{
        Pkey,
        Qpn, //
    },
    opcode::Opcode,
    psn::Psn, //
};

/// Flag bits: a solicited event.
const SOLICITED: u8 = 0x80;

/// Flag bits: the path has migrated. Without path migration it is set in all packets except CNPs.
const MIG_REQ: u8 = 0x40;

/// Flag bits: number of pad bytes.
const PAD_MASK: u8 = 0x30;
const PAD_SHIFT: u32 = 4;

/// Flag bits: version of the transport headers.
const VERSION_MASK: u8 = 0x0f;

/// The bit above the QPN of a CNP: packets of that queue pair were marked (BECN).
const BECN: u32 = 0x4000_0000;

/// The bit above the PSN that requests an acknowledgment.
const ACK_REQ: u32 = 0x8000_0000;

/// The base transport header on the wire.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Bth {
    opcode: u8,
    flags: u8,
    pkey: U16,
    qpn: U32,
    psn: U32,
}

impl Bth {
    /// Makes the header of a packet that is not solicited and does not request an acknowledgment.
    ///
    /// It has the default P_Key. Reserved bits are zero.
    #[inline]
    pub(crate) fn new(packet: &impl TxPacket, dest_qpn: Qpn, psn: Psn) -> Bth {
        Bth {
            opcode: packet.opcode().raw(),
            flags: MIG_REQ | (pad_for(packet.payload_len()) << PAD_SHIFT),
            pkey: U16::new(Pkey::DEFAULT.get()),
            qpn: U32::new(dest_qpn.get()),
            psn: U32::new(psn.get()),
        }
    }

    /// Sets whether the packet is solicited, and whether it requests an acknowledgment.
    #[inline]
    pub(crate) fn with_flags(self, solicited: bool, ack_req: bool) -> Bth {
        let solicited = if solicited { SOLICITED } else { 0 };
        let ack_req = if ack_req { ACK_REQ } else { 0 };
        Bth {
            flags: self.flags | solicited,
            psn: U32::new(ack_req | self.psn.get()),
            ..self
        }
    }

    /// Makes the header of a CNP (IBTA A17.9.3).
    pub(crate) fn cnp(dest_qpn: Qpn) -> Bth {
        Bth {
            opcode: Opcode::Cnp.raw(),
            flags: 0,
            pkey: U16::new(Pkey::DEFAULT.get()),
            qpn: U32::new(BECN | dest_qpn.get()),
            psn: U32::new(0),
        }
    }

    /// Returns the opcode, which may be unknown.
    #[inline]
    pub(crate) fn raw_opcode(&self) -> u8 {
        self.opcode
    }

    /// Returns the version of the transport headers.
    #[inline]
    pub(crate) fn version(&self) -> u8 {
        self.flags & VERSION_MASK
    }

    /// Returns the number of pad bytes between payload and ICRC, 0 to 3.
    #[inline]
    pub(crate) fn pad(&self) -> u8 {
        (self.flags & PAD_MASK) >> PAD_SHIFT
    }
}

/// The fields of the BTH.
impl Packet<'_> {
    /// Returns the destination QPN, without the byte above it (congestion and reserved bits).
    #[inline]
    pub fn dest_qpn(&self) -> Qpn {
        Qpn::new(self.bth.qpn.get())
    }

    /// Returns the PSN.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(self.bth.psn.get())
    }

    /// Returns the P_Key.
    #[inline]
    pub fn pkey(&self) -> Pkey {
        Pkey::new(self.bth.pkey.get())
    }

    /// Returns whether the packet requests an acknowledgment.
    #[inline]
    pub fn ack_req(&self) -> bool {
        self.bth.psn.get() & ACK_REQ != 0
    }

    /// Returns whether the completion at the receiver is a solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        self.bth.flags & SOLICITED != 0
    }

    /// Returns the number of pad bytes between payload and ICRC, 0 to 3.
    #[inline]
    pub fn pad(&self) -> u8 {
        self.bth.pad()
    }
}
