// SPDX-License-Identifier: GPL-2.0

//! Trains: packets of one flow that cross the network stack as one GSO packet.
//!
//! The head has the others in its fragment list, each with headers and ICRC of its own
//! (`SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST`). So they may differ in length, and no byte changes when
//! they are unlinked: by a device without the feature, in front of a socket that does not take
//! them, or by [`SkBuffList`].
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
//! create this combination. GRO creates it only for packets in a tunnel, whose inner headers are in
//! the way: such a packet is unlinked.

use super::SkBuff;
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
use kernel::prelude::*;

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

/// The type of the GSO packet.
// CAST: Two bits of many.
const TYPE: u32 = (bindings::SKB_GSO_UDP_L4 | bindings::SKB_GSO_FRAGLIST) as u32;

/// The type of packets of UDP tunnels. With it, a socket of a tunnel receives the train whole, and
/// a device that adds headers gets the packets one by one: only the first has room for them.
// CAST: As above.
const TUNNEL: u32 = bindings::SKB_GSO_UDP_TUNNEL as u32;

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
/// - `longest` is the length of the longest packet.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::net::{
///     Dst,
///     SkBuff,
///     Train, //
/// };
///
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
    longest: usize,
}

impl Train {
    /// The most packets of a train.
    pub const MOST: u16 = 16;

    /// The longest IP packet.
    const MAX_LEN: usize = 65535;

    /// Makes a train of one packet.
    #[inline]
    pub fn new(skb: SkBuff) -> Self {
        // INVARIANT: There is no packet beyond the first.
        Self {
            last: skb.0,
            longest: skb.len(),
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

    /// Adds a packet of the same flow, with the next IPv4 identification.
    ///
    /// # Errors
    ///
    /// Returns the packet if the train is full, or the packet cannot be part of one.
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
        let ip_len = ip_len(&self.head)?;
        let headers = ip_len.checked_add(UDP_LEN)?;
        let total = self
            .head
            .len()
            // CAST: Widening.
            .checked_add(self.payload as usize)?
            .checked_add(skb.len().checked_sub(headers)?)?;
        let fits = self.packets < Self::MOST
            && self::ip_len(skb) == Some(ip_len)
            && total <= Self::MAX_LEN
            && skb.is_linear()
            && self.head.is_linear()
            && skb.check_writable().is_ok()
            && self.head.check_writable().is_ok();
        fits.then_some((ip_len, skb.len().saturating_sub(headers)))
    }

    fn link(&mut self, skb: SkBuff, ip_len: usize, payload: usize) {
        let raw = ManuallyDrop::new(skb).0;
        // CAST: 20 or 40.
        let ip = ip_len as kernel::ffi::c_int;
        let headers = ip_len.wrapping_add(UDP_LEN);

        // SAFETY: `raw` is a packet that this function owns; it begins with both headers, as
        // `room_for` has checked. `last` is the last packet by the type invariant; the only field
        // of it that is written is the link, or the list of the head, which is empty then.
        unsafe {
            bindings::skb_reset_network_header(raw.as_ptr());
            bindings::skb_set_transport_header(raw.as_ptr(), ip);
            // CAST: 28 or 48.
            bindings::__skb_pull(raw.as_ptr(), headers as u32);
            bindings::sk_buff_set_next(raw.as_ptr(), null_mut());
            if self.packets == 1 {
                (*bindings::skb_shinfo(self.head.as_raw())).frag_list = raw.as_ptr();
            } else {
                bindings::sk_buff_set_next(self.last.as_ptr(), raw.as_ptr());
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
        self.longest = self.longest.max(payload.wrapping_add(headers));
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
        // The stack compares only the first packet with the MTU.
        if self.longest > self.head.len() && self.longest > dst.mtu() {
            return Err(EMSGSIZE);
        }
        if dst.encapsulates() {
            return self.transmit_each(dst);
        }
        self.assemble()?.transmit(dst)
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
        while let Some(raw) = NonNull::new(next) {
            // SAFETY: The packets of the list are owned. `data` is behind both headers.
            let skb = unsafe {
                next = bindings::sk_buff_next(raw.as_ptr());
                bindings::sk_buff_set_next(raw.as_ptr(), null_mut());
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
            // The checksums are zero. Any other value makes the stack segment the packet.
            // CAST: 1.
            bindings::sk_buff_set_ip_summed(raw, bindings::CHECKSUM_UNNECESSARY as u8);
        }
        Ok(head)
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

/// Packets in order, received together.
///
/// # Invariants
///
/// The list of `first` contains packets that fulfil the invariants of [`SkBuff`], and belongs to
/// this value.
///
/// # Examples
///
/// ```
/// use rdma::net::SkBuffList;
///
/// fn total_len(mut packets: SkBuffList) -> usize {
///     let mut total = 0;
///     while let Some(packet) = packets.pop() {
///         total += packet.len();
///         packet.consume();
///     }
///     total
/// }
/// ```
pub struct SkBuffList {
    first: *mut bindings::sk_buff,
    form: Form,
}

/// The form in which packets were received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// One packet.
    Single,
    /// A train that nothing on the way has split.
    Whole,
    /// A train that [`SkBuffList::segment`] has split.
    Split,
}

impl SkBuffList {
    /// Takes a received packet apart, if it is a train. `data` is at the UDP header.
    ///
    /// # Safety
    ///
    /// The caller must pass ownership of a packet of the UDP receive path, with its headers in the
    /// linear part. `sk` must be the socket.
    #[inline]
    pub(in crate::net) unsafe fn from_received(
        sk: *mut bindings::sock,
        skb: NonNull<bindings::sk_buff>,
    ) -> Self {
        // SAFETY: The packet is alive and owned, so no one else uses the link.
        let form = unsafe {
            if bindings::skb_is_gso(skb.as_ptr()) {
                if unlink(skb.as_ptr()).is_none() {
                    return Self::segment(sk, skb);
                }
                Form::Whole
            } else {
                bindings::sk_buff_set_next(skb.as_ptr(), null_mut());
                Form::Single
            }
        };
        // SAFETY: The packet is owned, and its UDP header in the linear part.
        unsafe { strip(skb.as_ptr()) };
        // INVARIANT: A list of one packet, by the requirement of this function, or of those that
        // were pushed into a train.
        Self {
            first: skb.as_ptr(),
            form,
        }
    }

    /// Lets the stack segment a packet of which some part is shared.
    ///
    /// # Safety
    ///
    /// See [`SkBuffList::from_received`].
    #[cold]
    unsafe fn segment(sk: *mut bindings::sock, skb: NonNull<bindings::sk_buff>) -> Self {
        // SAFETY: As the stack does it for sockets that take no GSO packets: from the MAC header,
        // which is in front of the UDP header. The packet is given away, and the result owned.
        unsafe {
            let offset = bindings::skb_mac_offset(skb.as_ptr());
            bindings::__skb_push(skb.as_ptr(), offset.unsigned_abs());
            // CAST: 2.
            let is_ipv4 = bindings::sock_family(sk) == bindings::AF_INET as u16;
            let first = bindings::udp_rcv_segment(sk, skb.as_ptr(), is_ipv4);
            let mut next = first;
            while !next.is_null() {
                let offset = bindings::skb_transport_offset(next);
                bindings::__skb_pull(next, offset.unsigned_abs());
                strip(next);
                next = bindings::sk_buff_next(next);
            }
            // INVARIANT: The list is owned.
            Self {
                first,
                form: Form::Split,
            }
        }
    }

    /// Returns whether the packets have not left the memory of this kernel since they were sent:
    /// they are an unsplit train.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.form == Form::Whole
    }

    /// Returns whether the packets are a train that was split only here, because another part of
    /// the kernel, such as a capture, shared some of its memory.
    #[inline]
    pub fn is_split(&self) -> bool {
        self.form == Form::Split
    }

    /// Removes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<SkBuff> {
        let first = NonNull::new(self.first)?;
        // SAFETY: The packet is owned by the type invariant.
        unsafe {
            self.first = bindings::sk_buff_next(first.as_ptr());
            bindings::sk_buff_set_next(first.as_ptr(), null_mut());
        }
        // SAFETY: By the type invariant; it is removed from the list.
        Some(unsafe { SkBuff::from_raw(first) })
    }

    /// Returns whether there is no packet left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

impl Drop for SkBuffList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: The packets are owned, and given away.
            unsafe { bindings::kfree_skb_list(self.first) };
        }
    }
}

/// Removes the UDP header of a received packet, and its references to the device, routes, sockets
/// and, in its extensions, IPsec states: these would delay the end of net devices, and the packet
/// may be kept for long. UDP has checked the IPsec policy, and dropped the conntrack entry.
///
/// # Safety
///
/// `skb` must be an owned packet with `data` at its UDP header, which is in the linear part.
#[inline]
unsafe fn strip(skb: *mut bindings::sk_buff) {
    // SAFETY: By the requirement of this function.
    // CAST: 8.
    unsafe {
        bindings::__skb_pull(skb, UDP_LEN as u32);
        bindings::sk_buff_set_dev(skb, null_mut());
        bindings::skb_dst_drop(skb);
        bindings::skb_ext_reset(skb);
        bindings::skb_orphan(skb);
    }
}

/// Makes a list of the packets of a [`Train`]. Returns `None` if the packet is not a train, or if
/// any part of it is shared.
///
/// Afterwards, `data` of the first packet is unchanged, and that of the others is behind their UDP
/// headers.
///
/// # Safety
///
/// `skb` must be an owned packet of the UDP receive path, with `data` at its UDP header and both
/// headers in the linear part.
unsafe fn unlink(skb: *mut bindings::sk_buff) -> Option<()> {
    // SAFETY: The packet and those of its fragment list are alive by the requirement of this
    // function. The list is only read.
    let (own, ip_len, mut rest) = unsafe {
        let info = bindings::skb_shinfo(skb);
        let list = (*info).frag_list;
        let own = UDP_LEN.checked_add(usize::from((*info).gso_size))?;
        let linear = bindings::skb_headlen(skb);
        // CAST: Widening.
        if (*info).gso_type & (TYPE | TUNNEL) != TYPE | TUNNEL
            || list.is_null()
            || (*info).nr_frags != 0
            || linear as usize != own
            || bindings::skb_cloned(skb) != 0
        {
            return None;
        }
        let mut next = list;
        while !next.is_null() {
            if bindings::skb_shared(next) != 0
                || bindings::skb_cloned(next) != 0
                || (*next).data_len != 0
            {
                return None;
            }
            next = bindings::sk_buff_next(next);
        }
        let from = bindings::skb_network_offset(skb);
        (own, usize::try_from(from.checked_neg()?).ok()?, list)
    };
    // The lengths that the packet had before `Train::assemble`.
    let (at, len) = match ip_len {
        IPV4_LEN => (2, ip_len.checked_add(own)?),
        IPV6_LEN => (4, own),
        _ => return None,
    };
    let len = u16::try_from(len).ok()?.to_be_bytes();
    let udp_len = u16::try_from(own).ok()?.to_be_bytes();

    // SAFETY: The data is shared with no clone. The IP header, of `ip_len` bytes, lies in front of
    // `data`, the UDP header behind it. The list is owned with the packet, and moves from its
    // shared information to its link. The packets of the list keep their data and lengths.
    unsafe {
        let data = (*skb).data;
        data.sub(ip_len).add(at).cast::<[u8; 2]>().write(len);
        data.add(4).cast::<[u8; 2]>().write(udp_len);

        let info = bindings::skb_shinfo(skb);
        (*info).frag_list = null_mut();
        (*info).gso_size = 0;
        (*info).gso_segs = 0;
        (*info).gso_type = 0;
        bindings::sk_buff_set_next(skb, rest);
        (*skb).len = (*skb).len.wrapping_sub((*skb).data_len);
        (*skb).data_len = 0;
        while !rest.is_null() {
            (*skb).truesize = (*skb).truesize.wrapping_sub((*rest).truesize);
            rest = bindings::sk_buff_next(rest);
        }
    }
    Some(())
}

#[cfg(CONFIG_KUNIT = "y")]
pub(super) mod tests {
    use super::*;

    /// Passes a packet that was assembled to [`SkBuffList::from_received`].
    ///
    /// # Safety
    ///
    /// The packet must begin with an IPv4 header and a UDP header, and be a whole train.
    pub(in super::super) unsafe fn deliver(skb: SkBuff) -> Result<SkBuffList> {
        let skb = ManuallyDrop::new(skb).0;
        // SAFETY: The headers are present by the requirement of this function. The socket is not
        // used for a train that can be unlinked.
        unsafe {
            bindings::skb_reset_network_header(skb.as_ptr());
            bindings::skb_set_transport_header(skb.as_ptr(), IPV4_LEN as kernel::ffi::c_int);
            bindings::__skb_pull(skb.as_ptr(), IPV4_LEN as u32);
            Ok(SkBuffList::from_received(null_mut(), skb))
        }
    }
}
