// SPDX-License-Identifier: GPL-2.0

//! The datagram extended transport header.

use zerocopy::network_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::ids::{
    Qkey,
    Qpn, //
};

/// The DETH: the Q_Key and the sender of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The queue key that the sender presents.
    pub qkey: Qkey,
    /// The queue pair of the sender.
    pub src_qpn: Qpn,
}

/// The DETH on the wire.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDeth {
    qkey: U32,
    src_qpn: U32,
}

impl From<Deth> for RawDeth {
    #[inline]
    fn from(deth: Deth) -> RawDeth {
        RawDeth {
            qkey: U32::new(deth.qkey.get()),
            src_qpn: U32::new(deth.src_qpn.get()),
        }
    }
}

impl From<RawDeth> for Deth {
    #[inline]
    fn from(raw: RawDeth) -> Deth {
        Deth {
            qkey: Qkey::new(raw.qkey.get()),
            src_qpn: Qpn::new(raw.src_qpn.get()),
        }
    }
}
