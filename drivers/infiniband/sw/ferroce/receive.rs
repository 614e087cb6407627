// SPDX-License-Identifier: GPL-2.0

//! Packets from the UDP sockets: checks, and to the half that they are for.
//!
//! Everything wrong with a packet is a silent drop: whoever sent it may be anybody.

use crate::{
    ah,
    counters::Counter,
    device::Ferroce,
    gids::{
        self,
        Address,
        Link, //
    },
    globals::{
        self,
        QpRef, //
    },
    mcast,
    qp::{
        recv,
        send, //
    },
    traces::{
        self,
        Kept, //
    }, //
};
use kernel::prelude::*;
use rdma::{
    ib::Device,
    net::{
        namespace::NetId,
        netdevice::NetDevice,
        skbuff::{
            IpHeader,
            SkBuff, //
        },
        udp_tunnel::UdpReceive, //
    },
    KernelCrc32, //
};
use roce::{
    icrc::Icrc,
    ids::{
        Pkey,
        Qpn, //
    },
    opcode::Transport,
    wire::{
        Packet,
        ParseError,
        BTH_LEN,
        ICRC_LEN,
        MAX_PACKET_LEN, //
    }, //
};

/// What takes packets from the sockets.
pub(crate) struct Receiver;

impl UdpReceive for Receiver {
    fn receive(skb: SkBuff, dev: &NetDevice) {
        let mut kept = None;
        if let Err(counter) = receive(skb, dev, &mut kept) {
            let device = Device::<Ferroce>::by_netdev(dev);
            if let Some(device) = &device {
                device.count(counter);
            }
            traces::was_dropped(device.as_deref(), &kept, counter);
        }
    }
}

/// A packet, linear, of which the BTH comes first and the ICRC last.
pub(crate) struct Incoming {
    skb: SkBuff,
    /// The VLAN of the net device that it came in through.
    vlan: Option<u16>,
}

impl Incoming {
    /// Returns the VLAN of the net device that the packet came in through.
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// Returns a copy, of which the bytes are shared.
    #[cold]
    pub(crate) fn copy(&self) -> Option<Self> {
        Some(Self {
            skb: self.skb.try_clone()?,
            vlan: self.vlan,
        })
    }

    /// Frees the packet, which did what it came for.
    pub(crate) fn consume(self) {
        self.skb.consume();
    }

    /// Returns the view of the headers.
    #[inline]
    pub(crate) fn packet(&self) -> Result<Packet<'_>, ParseError> {
        Packet::parse(self.skb.data())
    }

    /// Returns the payload.
    #[inline]
    pub(crate) fn payload(&self, packet: &Packet<'_>) -> &[u8] {
        let from = packet.payload_offset();
        // CAST: Widening.
        let to = from.saturating_add(packet.payload_len() as usize);
        self.skb.data().get(from..to).unwrap_or(&[])
    }

    /// Returns the IP header.
    #[inline]
    pub(crate) fn ip(&self) -> Option<IpHeader<'_>> {
        self.skb.network_header()
    }

    /// Returns whether the ICRC is right.
    #[inline]
    fn is_intact(&self) -> bool {
        let check = || {
            let udp = self.skb.udp_header()?;
            let (covered, icrc) = self.skb.data().split_last_chunk::<ICRC_LEN>()?;
            let (bth, rest) = covered.split_first_chunk::<BTH_LEN>()?;
            let mut computed = match self.ip()? {
                IpHeader::V4(ip) => Icrc::<KernelCrc32>::ipv4(ip, udp, bth),
                IpHeader::V6(ip) => Icrc::<KernelCrc32>::ipv6(ip, udp, bth),
            };
            computed.update(rest);
            (computed.finish() == *icrc).then_some(())
        };
        check().is_some()
    }

    /// Returns where the packet comes from and goes to.
    #[inline]
    fn origin(&self, net: NetId) -> Option<Origin> {
        let (saddr, daddr) = match self.ip()? {
            IpHeader::V4(ip) => {
                let [s0, s1, s2, s3, d0, d1, d2, d3] = *ip.last_chunk()?;
                (ah::mapped([s0, s1, s2, s3]), ah::mapped([d0, d1, d2, d3]))
            }
            IpHeader::V6(ip) => {
                let (saddr, daddr) = ip.last_chunk::<32>()?.split_first_chunk::<16>()?;
                (*saddr, *daddr.first_chunk()?)
            }
        };
        Some(Origin { net, saddr, daddr })
    }
}

/// Where a packet comes from and goes to.
pub(crate) struct Origin {
    /// The namespace that it came in through.
    pub(crate) net: NetId,
    /// The source, as a GID.
    pub(crate) saddr: [u8; 16],
    /// The destination, as a GID.
    pub(crate) daddr: [u8; 16],
}

impl Origin {
    /// Returns the destination.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address {
            net: self.net,
            gid: self.daddr,
        }
    }
}

/// Checks a packet and hands it to the half that it is for, or says how to count that it is
/// dropped.
fn receive(mut skb: SkBuff, dev: &NetDevice, kept: &mut Option<Kept>) -> Result<(), Counter> {
    // Before it is copied, or waits for something.
    if skb.len() > MAX_PACKET_LEN {
        return Err(Counter::Malformed);
    }
    if !skb.is_linear() {
        skb.linearize().map_err(|_| Counter::Malformed)?;
    }
    let incoming = Incoming {
        skb,
        vlan: dev.vlan_id(),
    };
    let packet = incoming.packet().map_err(|_| Counter::Malformed)?;
    traces::keep(&packet, kept);
    if !packet.pkey().matches(Pkey::DEFAULT) {
        return Err(Counter::BadPkey);
    }
    let origin = incoming.origin(dev.net_id()).ok_or(Counter::Malformed)?;
    if packet.dest_qpn() == Qpn::MULTICAST {
        // There may be many, so that each looks only at what may differ from one to another.
        if packet.opcode().transport() != Transport::Ud {
            return Err(Counter::Refused);
        }
        if !incoming.is_intact() {
            return Err(Counter::BadIcrc);
        }
        let link = Link {
            net: origin.net,
            ifindex: dev.ifindex(),
        };
        return mcast::deliver(incoming, &origin, &link);
    }
    let qp = find(packet.dest_qpn(), &origin).ok_or(Counter::NoQp)?;
    let result = if !qp.ty.takes(packet.opcode().transport()) {
        Err(Counter::Refused)
    } else if !incoming.is_intact() {
        Err(Counter::BadIcrc)
    } else {
        traces::received(&qp, &packet);
        if packet.opcode().is_request() {
            recv::request(&qp, &origin, incoming)
        } else {
            send::respond(&qp, &origin, incoming)
        }
    };
    if let Err(counter) = result {
        qp.device().count(counter);
        traces::was_dropped(Some(qp.device()), kept, counter);
    }
    Ok(())
}

/// Finds the queue pair that a packet names.
#[inline]
fn find(qpn: Qpn, origin: &Origin) -> Option<QpRef> {
    let number = if qpn == Qpn::GSI {
        gids::manager(&origin.address())?
    } else {
        qpn.get()
    };
    globals::qps().ok()?.get(number)
}
