// SPDX-License-Identifier: GPL-2.0

//! Trains: packets of one flow that cross the network stack as one GSO packet.
//!
//! The head has the others in its fragment list, each with headers and ICRC of its own
//! (`SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST`). So they may be shorter than the head, but not longer, and
//! no byte changes when they are unlinked: by a device without the feature, in front of a socket
//! that does not take them, or by [`SkBuffList`](super::SkBuffList).
//!
//! ```text
//!   head     [ IP | UDP | payload ]                    frag_list -----.
//!   others   [ IP | UDP | payload ] -> [ IP | UDP | payload ] -> ...  <'
//!                        ^ data
//! ```
//!
//! On the way, the lengths in the headers of the head are those of the whole train. When the stack
//! unlinks IPv4 packets, it numbers them consecutively from the identification of the head, so they
//! must be built with these numbers.
//!
//! Only trains of this module are received whole. The stack passes a fragment list to a socket with
//! `encap_rcv` only if it also has `SKB_GSO_UDP_TUNNEL`. A process (tun, packet sockets) cannot
//! create this combination. GRO creates it only for packets in a tunnel. Their linear part has
//! inner headers as well, so `unlink()` refuses them, and the stack segments them.
//!
//! lo does not carry GSO packets of tunnels, but it carries datagrams of any length. So on lo a
//! train is sent as a plain datagram: `gso_size` is zero, its value is kept in `inner_protocol`,
//! and `gso_type` has a combination of bits that no GSO packet has.

use super::{
    raw,
    SkBuff, //
};
use crate::{
    bindings,
    net::Dst, //
};
use core::{
    mem::ManuallyDrop,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

pub(super) const IPV4_LEN: usize = 20;
pub(super) const IPV6_LEN: usize = 40;
pub(super) const UDP_LEN: usize = 8;

/// The type of the GSO packet.
// CAST: Two bits of many.
pub(super) const TYPE: u32 = (bindings::SKB_GSO_UDP_L4 | bindings::SKB_GSO_FRAGLIST) as u32;

/// The type of packets of UDP tunnels. With it, a socket of a tunnel receives the train whole, and
/// a device that adds headers gets the packets one by one: only the first has room for them.
// CAST: As above.
pub(super) const TUNNEL: u32 = bindings::SKB_GSO_UDP_TUNNEL as u32;

/// The `gso_type` that marks such a datagram. No GSO packet has both bits. Between lo and a socket
/// with `encap_rcv`, the stack looks at neither bit if `gso_size` is zero.
// CAST: As above.
pub(super) const DATAGRAM: u32 = (bindings::SKB_GSO_SCTP | bindings::SKB_GSO_UDP_L4) as u32;

/// One packet or more, to be sent as one.
///
/// # Invariants
///
/// - All packets are linear, share their data with no clone, and begin with an IP header of
///   `ip_len` bytes and a UDP header. Beyond the first, `data` is behind these, the offsets of both
///   headers are set, and nothing else refers to the packet.
/// - The fragment list of `head` is the packets beyond the first, and `last` is the last of all.
/// - `payload` and `truesize` are the sums over the packets beyond the first, and the length of an
///   IP packet with the payload of all does not exceed 65535.
/// - No packet is longer than `head`.
/// - Packets beyond the first have [`Train::HEADROOM`] in front of their IP header.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::net::{Dst, SkBuff, Train};
/// fn send(first: SkBuff, second: SkBuff, dst: Dst<'_>) -> Result {
///     let mut train = Train::new(first);
///     match train.push(second) {
///         Ok(()) => train.transmit(dst),
///         // It does not fit, and follows alone.
///         Err(second) => {
///             train.transmit(dst)?;
///             second.transmit(dst)
///         }
///     }
/// }
/// ```
pub struct Train {
    head: SkBuff,
    last: NonNull<bindings::sk_buff>,
    packets: u16,
    /// 0 unless there is more than one packet.
    ip_len: usize,
    payload: u32,
    truesize: u32,
}

impl Train {
    /// The most packets of a train.
    pub const MOST: u16 = 60;

    /// The room in front of the IP header that each packet beyond the first needs, in bytes. A net
    /// device that splits a train adds the header of its link to each packet, without a check.
    ///
    /// Enough for Ethernet with VLAN tags, and `LL_MAX_HEADER` on common kernels.
    pub const HEADROOM: usize = 128;

    /// The longest IP packet.
    const MAX_LEN: usize = 65535;

    /// Makes a train of one packet.
    #[inline]
    pub fn new(skb: SkBuff) -> Self {
        // INVARIANT: There is no packet beyond the first.
        Self {
            last: skb.0,
            head: skb,
            packets: 1,
            ip_len: 0,
            payload: 0,
            truesize: 0,
        }
    }

    /// Returns the number of packets, at least one.
    #[inline]
    pub fn packets(&self) -> u16 {
        self.packets
    }

    /// Returns the length of all packets together, from the IP headers on, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        let others = usize::from(self.packets.wrapping_sub(1));
        let headers = self.ip_len.wrapping_add(UDP_LEN).wrapping_mul(others);

        // CAST: Widening.
        self.head
            .len()
            .wrapping_add(self.payload as usize)
            .wrapping_add(headers)
    }

    /// Returns the first packet.
    #[inline]
    pub(in crate::net) fn head(&self) -> &SkBuff {
        &self.head
    }

    /// Makes room for the headers that the device of a route adds, unless there is enough.
    ///
    /// Otherwise the IP layer would clone the first packet to make room, and the clone would not be
    /// charged to a [`TxInFlight`](crate::net::TxInFlight). Few devices need more room than most
    /// packets have.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub fn reserve_headers(&mut self, dst: &Dst<'_>) -> Result {
        // SAFETY: The packet is owned, and no pointer to its data is kept.
        to_result(unsafe { bindings::skb_cow_head(self.head.as_raw(), dst.reserved_space()) })
    }

    /// Adds a packet of the same flow, with the next IPv4 identification.
    ///
    /// # Errors
    ///
    /// Returns the packet if the train is full, or the packet cannot be part of one, is longer than
    /// the first, or has less than [`Train::HEADROOM`] in front.
    pub fn push(&mut self, skb: SkBuff) -> Result<(), SkBuff> {
        match self.room_for(&skb) {
            Some((ip_len, payload)) => {
                self.link(skb, ip_len, payload);
                Ok(())
            }
            None => Err(skb),
        }
    }

    /// Returns the length of the IP header and of the UDP payload of a packet that can be added.
    #[inline]
    fn room_for(&self, skb: &SkBuff) -> Option<(usize, usize)> {
        let ip_len = match self.packets {
            1 => self.head_ip_len()?,
            _ => self.ip_len,
        };
        let headers = ip_len.checked_add(UDP_LEN)?;
        let total = self
            .head
            .len()
            // CAST: Widening.
            .checked_add(self.payload as usize)?
            .checked_add(skb.len().checked_sub(headers)?)?;
        // The stack compares only the length of the head with the MTU of a route or a device, and
        // with the burst of a qdisc.
        let fits = self.packets < Self::MOST
            && skb.len() <= self.head.len()
            && self::ip_len(skb) == Some(ip_len)
            && total <= Self::MAX_LEN
            && skb.headroom() >= Self::HEADROOM
            && skb.is_linear()
            && skb.check_writable().is_ok();
        fits.then_some((ip_len, skb.len().saturating_sub(headers)))
    }

    /// Returns the length of the IP header of the first packet, if others can follow it.
    #[inline]
    fn head_ip_len(&self) -> Option<usize> {
        let fits = self.head.is_linear() && self.head.check_writable().is_ok();
        ip_len(&self.head).filter(|_| fits)
    }

    fn link(&mut self, skb: SkBuff, ip_len: usize, payload: usize) {
        let raw = ManuallyDrop::new(skb).0;
        let headers = ip_len.wrapping_add(UDP_LEN);

        // SAFETY: `raw` is a packet that this function owns; it begins with both headers, as
        // `room_for` has checked, close enough to `head` by the invariant of `SkBuff`. `last` is
        // the last packet by the type invariant; the only field of it that is written is the link,
        // or the list of the head, which is empty then.
        unsafe {
            // CAST: 20 or 40.
            raw::set_headers(raw.as_ptr(), ip_len as u16);
            raw::__skb_pull(raw.as_ptr(), headers);
            raw::set_next(raw.as_ptr(), null_mut());
            if self.packets == 1 {
                (*bindings::skb_shinfo(self.head.as_raw())).frag_list = raw.as_ptr();
            } else {
                raw::set_next(self.last.as_ptr(), raw.as_ptr());
            }
            self.truesize = self.truesize.wrapping_add((*raw.as_ptr()).truesize);
        }
        // INVARIANT: The packet is linked behind the last one, its data is behind its headers, and
        // `room_for` has checked all else.
        self.last = raw;
        self.packets = self.packets.wrapping_add(1);
        self.ip_len = ip_len;
        // CAST: At most 65535.
        self.payload = self.payload.wrapping_add(payload as u32);
    }

    /// Sends the packets along a route, as [`SkBuff::transmit`] does.
    ///
    /// They are sent one by one if the route adds headers.
    ///
    /// # Errors
    ///
    /// See [`SkBuff::transmit`]; on error all packets are gone. Without an error, some packets may
    /// be lost, too: a queue that takes them one by one does not report how many it took.
    /// `EMSGSIZE` if a packet is longer than the MTU of the route.
    #[inline]
    pub fn transmit(self, dst: Dst<'_>) -> Result {
        if self.packets == 1 {
            return self.head.transmit(dst);
        }
        if dst.encapsulates() {
            return self.transmit_each(dst);
        }
        let packets = u32::from(self.packets);
        let mut skb = self.assemble()?;
        if dst.is_bare_loopback() && packets <= dst.gso_max_segs() && skb.len() <= dst.mtu() {
            gso_to_datagram(&mut skb);
        }
        skb.transmit(dst)
    }

    /// Sends the packets one by one. The stack has no room to add headers to packets beyond the
    /// first, and mistakes the type of a train that it encapsulates for that of an outer header.
    ///
    /// # Errors
    ///
    /// The error for the first packet; then all packets are gone. Later packets may be lost without
    /// an error.
    #[cold]
    fn transmit_each(self, dst: Dst<'_>) -> Result {
        let Self { head, ip_len, .. } = self;
        // CAST: 28 or 48.
        let headers = ip_len.wrapping_add(UDP_LEN) as u32;
        // SAFETY: The packet is owned, and its `skb_shared_info` is not shared.
        let mut next = unsafe {
            let info = bindings::skb_shinfo(head.as_raw());
            core::mem::replace(&mut (*info).frag_list, null_mut())
        };
        let result = head.transmit(dst);
        // SAFETY: The packets of the list are owned.
        while let Some(raw) = unsafe { raw::take_first(&mut next) } {
            // SAFETY: The packet is owned. `data` is behind both headers.
            let skb = unsafe {
                bindings::__skb_push(raw.as_ptr(), headers);
                SkBuff::from_raw(raw)
            };
            if result.is_ok() {
                let _ = skb.transmit(dst);
            }
        }
        result
    }

    /// Makes one GSO packet of the packets.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the data of the head is shared with a clone.
    pub(super) fn assemble(self) -> Result<SkBuff> {
        let Self {
            mut head,
            packets,
            ip_len,
            payload,
            truesize,
            ..
        } = self;
        let own = head.len().saturating_sub(ip_len).saturating_sub(UDP_LEN);
        let udp_len = own
            .saturating_add(UDP_LEN)
            // CAST: Widening.
            .saturating_add(payload as usize);
        // CAST: At most 65535 by the type invariant.
        let field = (udp_len as u16).to_be_bytes();
        let data = head.data_mut()?;
        let at = data.get_mut(ip_len.saturating_add(4)..);
        if let Some(at) = at.and_then(<[u8]>::first_chunk_mut) {
            *at = field;
        }
        let raw = head.as_raw();
        // SAFETY: The packet is owned; its data, and thus its `skb_shared_info`, is not shared. The
        // list has `payload` bytes in `packets - 1` packets by the type invariant.
        unsafe {
            let info = bindings::skb_shinfo(raw);
            // CAST: At most 65535.
            (*info).gso_size = own as u16;
            (*info).gso_segs = packets;
            (*info).gso_type = TYPE | TUNNEL;
            (*raw).len = (*raw).len.wrapping_add(payload);
            (*raw).data_len = payload;
            (*raw).truesize = (*raw).truesize.wrapping_add(truesize);
            let headers = (*raw).__bindgen_anon_4.headers.as_mut();
            // The checksums are zero. Any other value makes the stack segment the packet.
            // CAST: 1.
            headers.set_ip_summed(bindings::CHECKSUM_UNNECESSARY as u8);
        }
        Ok(head)
    }
}

/// Makes a datagram for lo of a train that was just assembled.
#[inline]
fn gso_to_datagram(train: &mut SkBuff) {
    // SAFETY: `assemble` has checked that the `skb_shared_info` is not shared.
    unsafe {
        let info = bindings::skb_shinfo(train.as_raw());
        bindings::sk_buff_set_inner_protocol(train.as_raw(), (*info).gso_size);
        (*info).gso_size = 0;
        (*info).gso_type = DATAGRAM;
    }
}

/// Returns the length of the IP header of a packet that begins with one.
#[inline]
fn ip_len(skb: &SkBuff) -> Option<usize> {
    match skb.data().first()? {
        0x45 => Some(IPV4_LEN),
        version if version >> 4 == 6 => Some(IPV6_LEN),
        _ => None,
    }
}
