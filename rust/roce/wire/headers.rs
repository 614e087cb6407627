// SPDX-License-Identifier: GPL-2.0

//! The extended transport headers of datagrams, of remote memory and of atomic operations.

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

use crate::ids::{
    Qkey,
    Qpn,
    Rkey, //
};

/// Declares a header on the wire, and its conversions.
///
/// Lists the fields in the order on the wire, each with its type there, and with that of `$header`
/// if it is not just a number.
macro_rules! on_wire {
    ($raw:ident for $header:ident { $($field:ident: $wire:ident $(as $number:ident)?),* }) => {
        #[doc = concat!("[`", stringify!($header), "`] on the wire.")]
        #[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(crate) struct $raw {
            $($field: $wire,)*
        }

        impl From<$header> for $raw {
            #[inline]
            fn from(header: $header) -> $raw {
                $raw { $($field: $wire::new($($number::get)?(header.$field)),)* }
            }
        }

        impl From<$raw> for $header {
            #[inline]
            fn from(raw: $raw) -> $header {
                $header { $($field: $($number::new)?(raw.$field.get()),)* }
            }
        }
    };
}

/// The DETH: the Q_Key and the sender of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// The queue key that the sender presents.
    pub qkey: Qkey,
    /// The queue pair of the sender.
    pub src_qpn: Qpn,
}

on_wire!(RawDeth for Deth { qkey: U32 as Qkey, src_qpn: U32 as Qpn });

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

on_wire!(RawReth for Reth { va: U64, rkey: U32 as Rkey, len: U32 });

/// The AtomicETH: the word at the responder, and the operands of the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// The address of the word in the memory region.
    pub va: u64,
    /// The key of the memory region.
    pub rkey: Rkey,
    /// The value to store, or to add.
    pub swap_add: u64,
    /// The value to compare with. Compare and swap only.
    pub compare: u64,
}

on_wire!(RawAtomicEth for AtomicEth { va: U64, rkey: U32 as Rkey, swap_add: U64, compare: U64 });
