// SPDX-License-Identifier: GPL-2.0

//! Lengths of headers (IBTA 9.2 to 9.3, annex A19 for the FETH).

/// Bytes of a BTH.
pub const BTH_LEN: usize = 12;

/// Bytes of a DETH.
pub const DETH_LEN: usize = 8;

/// Bytes of a RETH.
pub const RETH_LEN: usize = 16;

/// Bytes of an AETH.
pub const AETH_LEN: usize = 4;

/// Bytes of an AtomicAckETH: the original value of the word.
pub const ATOMIC_ACK_LEN: usize = 8;

/// Bytes of an AtomicETH.
pub const ATOMIC_LEN: usize = 28;

/// Bytes of a FETH.
pub const FETH_LEN: usize = 4;

/// Bytes of immediate data.
pub const IMMDT_LEN: usize = 4;

/// Bytes of an IETH: an R_Key.
pub const IETH_LEN: usize = 4;

/// Bytes of the reserved field of a CNP.
pub const CNP_LEN: usize = 16;

/// Bytes of the ICRC.
pub const ICRC_LEN: usize = 4;

/// The most header bytes of any packet: BTH and AtomicETH.
pub const MAX_HEADER_LEN: usize = BTH_LEN + ATOMIC_LEN;

/// The most bytes of any packet, from the BTH to the ICRC.
pub const MAX_PACKET_LEN: usize = MAX_HEADER_LEN + 4096 + ICRC_LEN;
