// SPDX-License-Identifier: GPL-2.0

//! Passing a packet to the IP layer, and a frame to a net device.
//!
//! C headers: [`include/net/ip.h`](srctree/include/net/ip.h),
//! [`include/net/ipv6.h`](srctree/include/net/ipv6.h),
//! [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use super::{
    raw,
    SkBuff,
    ETHERNET_LEN, //
};
use crate::{
    bindings,
    net::{
        netdevice::NetDevice,
        Dst, //
    }, //
};
use core::{
    mem::ManuallyDrop,
    ptr::null_mut, //
};
use kernel::{
    ffi,
    prelude::*, //
};

/// The output function of an IP version.
type Output = unsafe extern "C" fn(
    *mut bindings::net,
    *mut bindings::sock,
    *mut bindings::sk_buff,
) -> ffi::c_int;

impl SkBuff {
    /// Sends a packet that begins with an IPv4 or IPv6 header.
    ///
    /// Lengths and header checksum are filled in. A packet that is longer than the MTU of the route
    /// is sent in fragments, even if its header forbids that: the kernel reduces this MTU when an
    /// ICMP message says so, and checks neither who sent that nor whether the quoted packet exists.
    ///
    /// # Errors
    ///
    /// - `ENOBUFS` if a queue was full.
    /// - `EINVAL` if the packet begins with something else, the header has options, or the route is
    ///   of the other version; `EBUSY` if the data is shared with a clone.
    /// - Others, if the stack has refused the packet.
    ///
    /// The packet is gone in any case.
    pub fn transmit(self, dst: Dst<'_>) -> Result {
        let data = self.data();
        let (len, output): (u16, Output) = match (data.first(), dst.is_ipv4()) {
            (Some(0x45), true) => (20, bindings::ip_local_out),
            (Some(version), false) if version >> 4 == 6 => (40, bindings::ip6_local_out),
            _ => return Err(EINVAL),
        };
        if data.len() < usize::from(len) {
            return Err(EINVAL);
        }
        // IP writes the length and the checksum into the header.
        self.check_writable()?;
        let skb = ManuallyDrop::new(self).as_raw();

        // The packet refers to the route without a reference; a queue that keeps it takes one.
        // SAFETY: The packet begins with a header of that length, and of the version of the route,
        // close enough to `head` by the type invariant. It is owned and given away here. By the
        // type invariant of `Dst` the RCU read lock is held, so the route, its device and the
        // namespace of that are alive. No socket is needed.
        let ret = unsafe {
            // IP expects the parsed options of the header here: there are none.
            (&raw mut (*skb).cb).write_bytes(0, 1);
            raw::allow_fragments(skb, dst.is_ipv4());
            raw::set_headers(skb, len);
            bindings::skb_dst_set_noref(skb, dst.as_raw());
            output(bindings::dst_dev_net_rcu(dst.as_raw()), null_mut(), skb)
        };
        sent(ret)
    }

    /// Sends a frame that begins with its Ethernet header through a device.
    ///
    /// A device that is down drops it.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if the frame is shorter than the header of the device; `ENODEV` if the device is
    ///   not registered.
    /// - `ENOBUFS` if a queue was full, or others; the frame is gone in any case.
    pub fn transmit_frame(self, dev: &NetDevice) -> Result {
        if self.data().len() < ETHERNET_LEN.max(dev.hard_header_len()) {
            return Err(EINVAL);
        }
        // Before it is registered, a device may lack its queues.
        if !dev.is_registered() {
            return Err(ENODEV);
        }
        let skb = ManuallyDrop::new(self).as_raw();

        // SAFETY: The frame is owned and given away here. It begins with an Ethernet header, and
        // the caller keeps the device, which has its queues, alive for the call; queues drop their
        // packets for a device that is removed.
        // CAST: The value is 14.
        let ret = unsafe {
            *raw::dev(skb) = dev.as_raw();
            bindings::skb_reset_mac_header(skb);
            bindings::skb_set_network_header(skb, ETHERNET_LEN as ffi::c_int);
            (*skb).__bindgen_anon_4.headers.as_mut().protocol =
                bindings::dev_parse_header_protocol(skb);
            bindings::dev_queue_xmit(skb)
        };
        sent(ret)
    }
}

/// Converts the result of sending a packet.
fn sent(ret: ffi::c_int) -> Result {
    match u32::try_from(ret) {
        // Congestion means that this packet, or one before it, may have been dropped.
        Ok(bindings::NET_XMIT_SUCCESS | bindings::NET_XMIT_CN) => Ok(()),
        Ok(_) => Err(ENOBUFS),
        Err(_) => Err(Error::from_errno(ret)),
    }
}
