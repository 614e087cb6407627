// SPDX-License-Identifier: GPL-2.0

//! The headers of a packet.

use crate::wire::{
    AETH_LEN,
    ATOMIC_ACK_LEN,
    ATOMIC_LEN,
    BTH_LEN,
    CNP_LEN,
    DETH_LEN,
    FETH_LEN,
    IETH_LEN,
    IMMDT_LEN,
    RETH_LEN, //
};

/// The headers that follow the BTH: a set of bits.
#[derive(Clone, Copy)]
pub(super) struct Headers(u16);

impl Headers {
    pub(super) const NONE: Headers = Headers(0);
    pub(super) const DETH: Headers = Headers(1 << 0);
    pub(super) const FETH: Headers = Headers(1 << 1);
    pub(super) const RETH: Headers = Headers(1 << 2);
    pub(super) const ATOMIC: Headers = Headers(1 << 3);
    pub(super) const AETH: Headers = Headers(1 << 4);
    pub(super) const ATOMIC_ACK: Headers = Headers(1 << 5);
    pub(super) const IMMDT: Headers = Headers(1 << 6);
    pub(super) const IETH: Headers = Headers(1 << 7);
    /// The reserved field of a CNP.
    pub(super) const CNP: Headers = Headers(1 << 8);
    pub(super) const AETH_ATOMIC: Headers = Headers(Self::AETH.0 | Self::ATOMIC_ACK.0);
    pub(super) const DETH_IMMDT: Headers = Headers(Self::DETH.0 | Self::IMMDT.0);
    pub(super) const FETH_RETH: Headers = Headers(Self::FETH.0 | Self::RETH.0);
    pub(super) const RETH_IMMDT: Headers = Headers(Self::RETH.0 | Self::IMMDT.0);

    /// The bytes of each header.
    const LENGTHS: [(Headers, usize); 9] = [
        (Self::DETH, DETH_LEN),
        (Self::FETH, FETH_LEN),
        (Self::RETH, RETH_LEN),
        (Self::ATOMIC, ATOMIC_LEN),
        (Self::AETH, AETH_LEN),
        (Self::ATOMIC_ACK, ATOMIC_ACK_LEN),
        (Self::IMMDT, IMMDT_LEN),
        (Self::IETH, IETH_LEN),
        (Self::CNP, CNP_LEN),
    ];

    /// Returns whether `header` is one of these headers.
    #[inline]
    pub(super) const fn has(self, header: Headers) -> bool {
        self.0 & header.0 != 0
    }

    /// Returns the bytes of the BTH and of these headers.
    pub(super) const fn len(self) -> u8 {
        let mut sum = BTH_LEN;
        let mut rest: &[_] = &Self::LENGTHS;
        while let [(header, len), others @ ..] = rest {
            if self.has(*header) {
                sum = sum.wrapping_add(*len);
            }
            rest = others;
        }
        // CAST: A test compares it with the longest headers of any opcode.
        sum as u8
    }
}
