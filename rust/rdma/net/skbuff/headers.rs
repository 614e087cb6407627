// SPDX-License-Identifier: GPL-2.0

//! The headers that a packet came in with.

use super::SkBuff;
use crate::bindings;
use core::slice;

/// The header that a packet came in with, as it was on the wire.
pub enum IpHeader<'a> {
    /// An IPv4 header without options.
    V4(&'a [u8; 20]),
    /// The fixed IPv6 header.
    V6(&'a [u8; 40]),
}

impl SkBuff {
    /// Returns the IP header of a received packet, or [`None`] if it has IPv4 options or was not
    /// received.
    pub fn network_header(&self) -> Option<IpHeader<'_>> {
        let skb = self.as_raw();

        // SAFETY: The packet is alive by the type invariant.
        if !unsafe { bindings::skb_transport_header_was_set(skb) } {
            return None;
        }
        // SAFETY: As above. Both are offsets from `data`, most often negative.
        let (from, to) = unsafe {
            (
                bindings::skb_network_offset(skb) as isize,
                bindings::skb_transport_offset(skb) as isize,
            )
        };
        let header = self.bytes_at(from, usize::try_from(to.checked_sub(from)?).ok()?)?;

        match header.first()? {
            0x45 => Some(IpHeader::V4(header.first_chunk()?)),
            version if version >> 4 == 6 => Some(IpHeader::V6(header.first_chunk()?)),
            _ => None,
        }
    }

    /// Returns the UDP header of a received packet, or [`None`] if it was not received.
    pub fn udp_header(&self) -> Option<&[u8; 8]> {
        // SAFETY: The packet is alive by the type invariant.
        let from = unsafe {
            if !bindings::skb_transport_header_was_set(self.as_raw()) {
                return None;
            }
            bindings::skb_transport_offset(self.as_raw()) as isize
        };

        self.bytes_at(from, 8)?.first_chunk()
    }

    /// Returns `n` bytes from `offset`, relative to `data`, on, if they lie between the network
    /// header and the tail. The transport header must have been set.
    fn bytes_at(&self, offset: isize, n: usize) -> Option<&[u8]> {
        // SAFETY: The packet is alive by the type invariant.
        let first = unsafe { bindings::skb_network_offset(self.as_raw()) as isize };
        let end = offset.checked_add_unsigned(n)?;

        if offset < first || end > isize::try_from(self.linear_len()).ok()? {
            return None;
        }
        // SAFETY: `offset` is not before the network header, which lies within the buffer, and
        // `end` is not behind the tail. By the type invariant these bytes are initialised, and
        // nobody writes to them while `self` is borrowed.
        Some(unsafe { slice::from_raw_parts((*self.as_raw()).data.offset(offset), n) })
    }
}
