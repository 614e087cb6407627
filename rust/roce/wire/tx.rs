// SPDX-License-Identifier: GPL-2.0

//! Packets to be sent.

use crate::opcode::Opcode;

/// A packet to be sent, without its payload, its padding ([`pad_for`](super::pad_for)) and the
/// ICRC.
pub trait TxPacket {
    /// Returns the opcode.
    fn opcode(&self) -> Opcode;

    /// Returns the length of the payload in bytes.
    #[inline]
    fn payload_len(&self) -> u32 {
        0
    }

    /// Writes all headers to the front of `buf` and returns their length in bytes, or `None` if
    /// they do not fit.
    fn write_headers(&self, buf: &mut [u8]) -> Option<usize>;
}
