// SPDX-License-Identifier: GPL-2.0

//! The headers of a received packet.

use super::SkBuff;
use crate::bindings;
use core::slice;

/// Bytes of a UDP header.
const UDP_LEN: usize = size_of::<bindings::udphdr>();

/// The header of a received packet, as on the wire.
///
/// # Examples
///
/// ```
/// # use rdma::net::{IpHeader, SkBuff};
/// /// Returns the ECN bits of a received packet.
/// fn ecn(packet: &SkBuff) -> Option<u8> {
///     match packet.received_headers()? {
///         (IpHeader::V4(header), _) => Some(header[1] & 3),
///         (IpHeader::V6(header), _) => Some(header[1] >> 4 & 3),
///     }
/// }
/// ```
pub enum IpHeader<'a> {
    /// An IPv4 header without options.
    V4(&'a [u8; 20]),
    /// The fixed IPv6 header.
    V6(&'a [u8; 40]),
}

impl SkBuff {
    /// Returns the IP header and the UDP header of a received packet, or [`None`] if it has IPv4
    /// options or was not received.
    pub fn received_headers(&self) -> Option<(IpHeader<'_>, &[u8; UDP_LEN])> {
        let skb = self.as_raw();

        // SAFETY: The packet is alive by the type invariant.
        if !unsafe { bindings::skb_transport_header_was_set(skb) } {
            return None;
        }
        // SAFETY: As above. Both are offsets from `data`, most often negative.
        // CAST: Widening.
        let (from, to) = unsafe {
            (
                bindings::skb_network_offset(skb) as isize,
                bindings::skb_transport_offset(skb) as isize,
            )
        };
        let ip_len = usize::try_from(to.checked_sub(from)?).ok()?;
        let len = ip_len.checked_add(UDP_LEN)?;

        if from.checked_add_unsigned(len)? > isize::try_from(self.linear_len()).ok()? {
            return None;
        }
        // SAFETY: `from` is the network header, which lies within the buffer, and the end is not
        // behind the tail. By the type invariant these bytes are initialised, and they are not
        // written while `self` is borrowed.
        let bytes = unsafe { slice::from_raw_parts((*skb).data.offset(from), len) };
        let (ip, udp) = bytes.split_last_chunk()?;
        let ip = match ip.first()? {
            0x45 => IpHeader::V4(ip.first_chunk()?),
            version if version >> 4 == 6 => IpHeader::V6(ip.first_chunk()?),
            _ => return None,
        };

        Some((ip, udp))
    }
}
