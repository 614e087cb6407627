// SPDX-License-Identifier: GPL-2.0

//! Received packets: one, or those of a [`Train`](super::Train).

use super::{
    raw,
    train::{
        DATAGRAM,
        IPV4_LEN,
        IPV6_LEN,
        TUNNEL,
        TYPE,
        UDP_LEN, //
    },
    SkBuff, //
};
use crate::bindings;
use core::ptr::null_mut;
use kernel::{
    error::to_result,
    prelude::*, //
};

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
        skb: *mut bindings::sk_buff,
    ) -> Self {
        // SAFETY: The packet is alive and owned, so no one else uses the link.
        let form = unsafe {
            if datagram_to_gso(skb).is_err() {
                bindings::kfree_skb(skb);
                // INVARIANT: An empty list.
                return Self {
                    first: null_mut(),
                    form: Form::Split,
                };
            }
            if (*bindings::skb_shinfo(skb)).gso_size != 0 {
                if unlink(skb).is_none() {
                    return Self::segment(sk, skb);
                }
                Form::Whole
            } else {
                raw::set_next(skb, null_mut());
                Form::Single
            }
        };
        // SAFETY: The packet is owned, and its UDP header in the linear part.
        unsafe { strip(skb) };
        // INVARIANT: A list of one packet, by the requirement of this function, or of those that
        // were pushed into a train.
        Self { first: skb, form }
    }

    /// Lets the stack segment a packet of which some part is shared.
    ///
    /// # Safety
    ///
    /// See [`SkBuffList::from_received`].
    #[cold]
    unsafe fn segment(sk: *mut bindings::sock, skb: *mut bindings::sk_buff) -> Self {
        // SAFETY: As the stack does it for sockets that take no GSO packets: from the MAC header,
        // which is in front of the UDP header. The packet is given away, and the result owned.
        unsafe {
            let offset = bindings::skb_mac_offset(skb);
            bindings::__skb_push(skb, offset.unsigned_abs());
            // CAST: 2.
            let is_ipv4 = bindings::sock_family(sk) == bindings::AF_INET as u16;
            let first = bindings::udp_rcv_segment(sk, skb, is_ipv4);
            let mut next = first;
            while !next.is_null() {
                let offset = bindings::skb_transport_offset(next);
                // CAST: Widening.
                raw::__skb_pull(next, offset.unsigned_abs() as usize);
                strip(next);
                next = raw::next(next);
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
        // SAFETY: The packets are owned by the type invariant.
        let first = unsafe { raw::take_first(&mut self.first) }?;
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
        while self.pop().is_some() {}
    }
}

/// Makes a GSO packet of a train that was received as a datagram. Does nothing to other packets.
///
/// # Errors
///
/// `ENOMEM` if the data is shared with a clone, and there is no memory for a copy.
///
/// # Safety
///
/// `skb` must be an owned packet that was received from a device.
#[inline]
unsafe fn datagram_to_gso(skb: *mut bindings::sk_buff) -> Result {
    // SAFETY: The packet is owned by the requirement of this function. Its `skb_shared_info` is
    // written only if it is not shared.
    unsafe {
        let info = bindings::skb_shinfo(skb);
        if (*info).gso_type != DATAGRAM
            || (*info).gso_size != 0
            || !bindings::net_device_is_loopback(*raw::dev(skb))
        {
            return Ok(());
        }
        if raw::skb_cloned(skb) {
            let gfp = bindings::GFP_ATOMIC | bindings::__GFP_NOWARN;
            to_result(bindings::pskb_expand_head(skb, 0, 0, gfp))?;
        }
        // A copy of the data has moved it.
        let info = bindings::skb_shinfo(skb);
        (*info).gso_size = bindings::sk_buff_inner_protocol(skb);
        (*info).gso_type = TYPE | TUNNEL;
    }
    Ok(())
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
    unsafe {
        raw::__skb_pull(skb, UDP_LEN);
        *raw::dev(skb) = null_mut();
        bindings::skb_dst_drop(skb);
        bindings::skb_ext_reset(skb);
        bindings::skb_orphan(skb);
    }
}

/// Makes a list of the packets of a [`Train`](super::Train). Returns `None` if the packet is not a
/// train, or if any part of it is shared.
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
    let (own, ip_len, rest, truesize) = unsafe {
        let info = bindings::skb_shinfo(skb);
        let list = (*info).frag_list;
        let own = UDP_LEN.checked_add(usize::from((*info).gso_size))?;
        let linear = (*skb).len.wrapping_sub((*skb).data_len);
        // CAST: Widening.
        if (*info).gso_type & (TYPE | TUNNEL) != TYPE | TUNNEL
            || list.is_null()
            || (*info).nr_frags != 0
            || linear as usize != own
            || raw::skb_cloned(skb)
        {
            return None;
        }
        let (mut next, mut truesize) = (list, 0u32);
        while !next.is_null() {
            if bindings::skb_shared(next) != 0 || raw::skb_cloned(next) || (*next).data_len != 0 {
                return None;
            }
            truesize = truesize.wrapping_add((*next).truesize);
            next = raw::next(next);
        }
        let from = bindings::skb_network_offset(skb);
        let ip_len = usize::try_from(from.checked_neg()?).ok()?;
        (own, ip_len, list, truesize)
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
        raw::set_next(skb, rest);
        (*skb).len = (*skb).len.wrapping_sub((*skb).data_len);
        (*skb).data_len = 0;
        (*skb).truesize = (*skb).truesize.wrapping_sub(truesize);
    }
    Some(())
}

#[cfg(CONFIG_KUNIT = "y")]
pub(super) mod tests {
    use super::*;
    use core::mem::ManuallyDrop;

    /// Passes a packet that was assembled to [`SkBuffList::from_received`].
    ///
    /// # Safety
    ///
    /// The packet must begin with an IPv4 header and a UDP header, and be a whole train.
    pub(in super::super) unsafe fn deliver(skb: SkBuff) -> Result<SkBuffList> {
        let skb = ManuallyDrop::new(skb).as_raw();
        // SAFETY: The headers are present by the requirement of this function. The socket is not
        // used for a train that can be unlinked.
        unsafe {
            raw::set_headers(skb, IPV4_LEN as u16);
            raw::__skb_pull(skb, IPV4_LEN);
            Ok(SkBuffList::from_received(null_mut(), skb))
        }
    }
}
