// SPDX-License-Identifier: GPL-2.0

//! The properties of a queue pair: its service type, states, attributes and capacities.
//!
//! - [`State`] names the states, [`Attrs`] the attributes and [`AttrMask`] the bits of the mask
//!   that selects them.
//! - [`table`] is the table of transitions, with the attributes that each requires or allows. The
//!   modify verb, the tests and the documentation all use it.
//! - [`modify`] plans a modification: it checks everything and changes nothing.
//! - [`caps`] sizes the queues.

mod attr;
pub mod caps;
mod mask;
pub mod modify;
mod state;
pub mod table;

pub use self::{
    attr::{
        AttrMask,
        Attrs,
        Limits,
        Mtu,
        QpAccess, //
    },
    modify::ModifyError,
    state::State,
    table::{
        check,
        TransitionError, //
    }, //
};

use crate::opcode::Transport;

/// Service type of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// General services interface: queue pair 1, which carries management datagrams.
    Gsi,
    /// Raw packets: frames leave the net device unchanged, and none is received.
    RawPacket,
}

/// The errno of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrnoKind {
    /// `EINVAL`: the caller broke a rule.
    Invalid,
    /// `EOPNOTSUPP`: the call has a meaning, and this driver does not offer it.
    Unsupported,
}

impl QpType {
    /// Every type, in the order of the documentation.
    pub const ALL: [QpType; 5] = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::Gsi,
        QpType::RawPacket,
    ];

    /// Returns the number in `enum ib_qp_type`.
    pub const fn as_ib(self) -> u32 {
        match self {
            QpType::Gsi => 1,
            QpType::Rc => 2,
            QpType::Uc => 3,
            QpType::Ud => 4,
            QpType::RawPacket => 8,
        }
    }

    /// Returns the usual abbreviation.
    pub const fn name(self) -> &'static str {
        match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::Gsi => "GSI",
            QpType::RawPacket => "RAW",
        }
    }

    /// Returns the transport of its packets.
    ///
    /// Raw packets have none. Their queues follow the rules of UD: a request is one packet, and is
    /// complete when that was sent.
    pub const fn transport(self) -> Transport {
        match self {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud | QpType::Gsi | QpType::RawPacket => Transport::Ud,
        }
    }

    /// Returns whether the queue pair accepts packets of a transport.
    #[inline]
    pub const fn takes(self, transport: Transport) -> bool {
        matches!(
            (self, transport),
            (QpType::Rc, Transport::Rc)
                | (QpType::Uc, Transport::Uc)
                | (QpType::Ud | QpType::Gsi, Transport::Ud)
        )
    }

    /// Returns whether the queue pair has one peer, given by an address vector and a QPN.
    pub const fn is_connected(self) -> bool {
        matches!(self, QpType::Rc | QpType::Uc)
    }
}

impl TryFrom<u32> for QpType {
    type Error = ErrnoKind;

    /// Converts a number of `enum ib_qp_type`.
    ///
    /// # Errors
    ///
    /// [`ErrnoKind::Unsupported`] for a type that this driver does not support. Subnet management
    /// and raw InfiniBand packets do not exist on RoCE v2 over UDP. Extended reliable connections
    /// (XRC) and driver types are not implemented. Neither is reliable datagram (RD), which cannot
    /// be requested because it has no number in Linux verbs.
    ///
    /// [`ErrnoKind::Invalid`] for a number that names no type.
    fn try_from(ib: u32) -> Result<Self, ErrnoKind> {
        match ib {
            1 => Ok(QpType::Gsi),
            2 => Ok(QpType::Rc),
            3 => Ok(QpType::Uc),
            4 => Ok(QpType::Ud),
            8 => Ok(QpType::RawPacket),
            // SMI; RAW_IPV6, RAW_ETHERTYPE; XRC_INI, XRC_TGT; DRIVER.
            0 | 5 | 6 | 9 | 10 | 0xff => Err(ErrnoKind::Unsupported),
            _ => Err(ErrnoKind::Invalid),
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp))]
mod tests {
    use super::*;

    #[test]
    fn type_numbers_round_trip() {
        for ty in QpType::ALL {
            assert_eq!(QpType::try_from(ty.as_ib()), Ok(ty));
        }
    }

    #[test]
    fn qp_type_accepts_only_its_transport() {
        for ty in QpType::ALL {
            for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
                let own = ty != QpType::RawPacket && ty.transport() == transport;
                assert_eq!(ty.takes(transport), own);
            }
        }
    }

    #[test]
    fn other_type_numbers_are_refused() {
        for ib in [0, 5, 6, 9, 10, 0xff] {
            assert_eq!(QpType::try_from(ib), Err(ErrnoKind::Unsupported));
        }
        for ib in [7, 11, 0xfe, 0x100, 0x1000, u32::MAX] {
            assert_eq!(QpType::try_from(ib), Err(ErrnoKind::Invalid));
        }
    }

    #[test]
    fn only_rc_and_uc_are_connected() {
        for ty in QpType::ALL {
            assert_eq!(ty.is_connected(), matches!(ty, QpType::Rc | QpType::Uc));
        }
    }
}
