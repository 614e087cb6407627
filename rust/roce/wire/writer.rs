// SPDX-License-Identifier: GPL-2.0

//! Writing of the headers of a packet.

use zerocopy::{
    Immutable,
    IntoBytes, //
};

use super::Bth;

/// The headers of one packet in a buffer. Headers that do not fit are refused.
pub(crate) struct HeaderWriter<'b> {
    rest: &'b mut [u8],
    written: usize,
}

impl<'b> HeaderWriter<'b> {
    /// Starts a packet with its BTH.
    #[inline]
    pub(crate) fn new(buf: &'b mut [u8], bth: &Bth) -> Option<HeaderWriter<'b>> {
        let writer = HeaderWriter {
            rest: buf,
            written: 0,
        };
        writer.put(bth)
    }

    /// Appends a header as it is on the wire.
    #[inline]
    pub(crate) fn put<T: IntoBytes + Immutable>(self, header: &T) -> Option<HeaderWriter<'b>> {
        let (place, rest) = self.rest.split_at_mut_checked(size_of::<T>())?;
        header.write_to(place).ok()?;
        Some(HeaderWriter {
            rest,
            written: self.written.wrapping_add(size_of::<T>()),
        })
    }

    /// Appends a header, if there is one.
    #[inline]
    pub(crate) fn put_some<T>(self, header: Option<T>) -> Option<HeaderWriter<'b>>
    where
        T: IntoBytes + Immutable,
    {
        match header {
            Some(header) => self.put(&header),
            None => Some(self),
        }
    }

    /// Returns the number of bytes that were written.
    #[inline]
    pub(crate) fn finish(self) -> usize {
        self.written
    }
}
