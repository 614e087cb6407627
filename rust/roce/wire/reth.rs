// SPDX-License-Identifier: GPL-2.0

//! The RDMA extended transport header.

use zerocopy::network_endian::{
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::ids::Rkey;

/// The RETH: the remote memory of a WRITE, READ or FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// The address of the first byte in the memory region.
    pub va: u64,
    /// The key of the memory region.
    pub rkey: Rkey,
    /// The length of the whole message in bytes. It is untrusted.
    pub len: u32,
}

/// The RETH on the wire.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawReth {
    va: U64,
    rkey: U32,
    len: U32,
}

impl From<Reth> for RawReth {
    #[inline]
    fn from(reth: Reth) -> RawReth {
        RawReth {
            va: U64::new(reth.va),
            rkey: U32::new(reth.rkey.get()),
            len: U32::new(reth.len),
        }
    }
}

impl From<RawReth> for Reth {
    #[inline]
    fn from(raw: RawReth) -> Reth {
        Reth {
            va: raw.va.get(),
            rkey: Rkey::new(raw.rkey.get()),
            len: raw.len.get(),
        }
    }
}
