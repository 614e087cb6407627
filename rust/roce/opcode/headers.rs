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

/// The headers that follow the BTH, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) deth: bool,
    pub(super) feth: bool,
    pub(super) reth: bool,
    pub(super) atomic: bool,
    pub(super) aeth: bool,
    pub(super) atomic_ack: bool,
    pub(super) immdt: bool,
    pub(super) ieth: bool,
    /// The reserved field of a CNP.
    pub(super) cnp: bool,
}

impl Headers {
    pub(super) const NONE: Headers = Headers {
        deth: false,
        feth: false,
        reth: false,
        atomic: false,
        aeth: false,
        atomic_ack: false,
        immdt: false,
        ieth: false,
        cnp: false,
    };
    pub(super) const AETH: Headers = Headers {
        aeth: true,
        ..Headers::NONE
    };
    pub(super) const AETH_ATOMIC: Headers = Headers {
        aeth: true,
        atomic_ack: true,
        ..Headers::NONE
    };
    pub(super) const ATOMIC: Headers = Headers {
        atomic: true,
        ..Headers::NONE
    };
    pub(super) const CNP: Headers = Headers {
        cnp: true,
        ..Headers::NONE
    };
    pub(super) const DETH: Headers = Headers {
        deth: true,
        ..Headers::NONE
    };
    pub(super) const DETH_IMMDT: Headers = Headers {
        deth: true,
        immdt: true,
        ..Headers::NONE
    };
    pub(super) const FETH_RETH: Headers = Headers {
        feth: true,
        reth: true,
        ..Headers::NONE
    };
    pub(super) const IETH: Headers = Headers {
        ieth: true,
        ..Headers::NONE
    };
    pub(super) const IMMDT: Headers = Headers {
        immdt: true,
        ..Headers::NONE
    };
    pub(super) const RETH: Headers = Headers {
        reth: true,
        ..Headers::NONE
    };
    pub(super) const RETH_IMMDT: Headers = Headers {
        reth: true,
        immdt: true,
        ..Headers::NONE
    };

    /// Returns the bytes of the BTH and of these headers.
    pub(super) const fn len(&self) -> u8 {
        let mut len = BTH_LEN;
        if self.deth {
            len = len.wrapping_add(DETH_LEN);
        }
        if self.feth {
            len = len.wrapping_add(FETH_LEN);
        }
        if self.atomic {
            len = len.wrapping_add(ATOMIC_LEN);
        }
        if self.reth {
            len = len.wrapping_add(RETH_LEN);
        }
        if self.aeth {
            len = len.wrapping_add(AETH_LEN);
        }
        if self.atomic_ack {
            len = len.wrapping_add(ATOMIC_ACK_LEN);
        }
        if self.immdt {
            len = len.wrapping_add(IMMDT_LEN);
        }
        if self.ieth {
            len = len.wrapping_add(IETH_LEN);
        }
        if self.cnp {
            len = len.wrapping_add(CNP_LEN);
        }
        // CAST: A test compares it with the longest headers of any opcode.
        len as u8
    }
}
