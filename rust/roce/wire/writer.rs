// SPDX-License-Identifier: GPL-2.0

//! Writing of the headers of a packet.

use zerocopy::{
    network_endian::{
        U32,
        U64, //
    },
    Immutable,
    IntoBytes, //
};

use super::{
    atomic::RawAtomicEth,
    bth::Bth,
    deth::RawDeth,
    reth::RawReth,
    Aeth,
    AtomicEth,
    BthFields,
    Deth,
    Feth,
    Reth,
    CNP_LEN, //
};
use crate::ids::{
    Qpn,
    Rkey, //
};

/// Writes a CNP up to its ICRC, and returns its length.
pub(crate) fn write_cnp(dest_qpn: Qpn, buf: &mut [u8]) -> Option<usize> {
    let writer = HeaderWriter {
        rest: buf,
        written: 0,
    };
    let writer = writer.put(&Bth::cnp(dest_qpn))?;
    Some(writer.put(&[0u8; CNP_LEN])?.finish())
}

/// The headers of one packet in a buffer. Headers that do not fit are refused.
pub(crate) struct HeaderWriter<'b> {
    rest: &'b mut [u8],
    written: usize,
}

impl<'b> HeaderWriter<'b> {
    /// Starts a packet with its BTH.
    #[inline]
    pub(crate) fn new(buf: &'b mut [u8], bth: &BthFields) -> Option<HeaderWriter<'b>> {
        let writer = HeaderWriter {
            rest: buf,
            written: 0,
        };
        writer.put(&Bth::new(bth))
    }

    /// Appends a DETH.
    #[inline]
    pub(crate) fn deth(self, deth: Deth) -> Option<HeaderWriter<'b>> {
        self.put(&RawDeth::from(deth))
    }

    /// Appends a FETH.
    #[inline]
    pub(crate) fn feth(self, feth: Feth) -> Option<HeaderWriter<'b>> {
        self.put(&U32::new(feth.bits()))
    }

    /// Appends an AtomicETH.
    #[inline]
    pub(crate) fn atomic(self, atomic: AtomicEth) -> Option<HeaderWriter<'b>> {
        self.put(&RawAtomicEth::from(atomic))
    }

    /// Appends the AtomicAckETH, if there is one.
    #[inline]
    pub(crate) fn found(self, found: Option<u64>) -> Option<HeaderWriter<'b>> {
        match found {
            Some(found) => self.put(&U64::new(found)),
            None => Some(self),
        }
    }

    /// Appends the key to invalidate.
    #[inline]
    pub(crate) fn ieth(self, rkey: Rkey) -> Option<HeaderWriter<'b>> {
        self.put(&U32::new(rkey.get()))
    }

    /// Appends a RETH, if there is one.
    #[inline]
    pub(crate) fn reth(self, reth: Option<Reth>) -> Option<HeaderWriter<'b>> {
        match reth {
            Some(reth) => self.put(&RawReth::from(reth)),
            None => Some(self),
        }
    }

    /// Appends an AETH, if there is one.
    #[inline]
    pub(crate) fn aeth(self, aeth: Option<Aeth>) -> Option<HeaderWriter<'b>> {
        match aeth {
            Some(aeth) => self.put(&U32::new(aeth.bits())),
            None => Some(self),
        }
    }

    /// Appends immediate data, if there is any.
    #[inline]
    pub(crate) fn imm(self, imm: Option<[u8; 4]>) -> Option<HeaderWriter<'b>> {
        match imm {
            Some(imm) => self.put(&imm),
            None => Some(self),
        }
    }

    /// Returns the number of bytes that were written.
    #[inline]
    pub(crate) fn finish(self) -> usize {
        self.written
    }

    #[inline]
    fn put<T: IntoBytes + Immutable>(self, header: &T) -> Option<HeaderWriter<'b>> {
        let (place, rest) = self.rest.split_at_mut_checked(size_of::<T>())?;
        header.write_to(place).ok()?;
        Some(HeaderWriter {
            rest,
            written: self.written.wrapping_add(size_of::<T>()),
        })
    }
}
