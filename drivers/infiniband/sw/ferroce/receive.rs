// SPDX-License-Identifier: GPL-2.0

//! Packets from the UDP sockets: checks, and to the half that they are for.
//!
//! Everything wrong with a packet is a silent drop: whoever sent it may be anybody.

use crate::{
    ah,
    counters::Counter,
    crc32::KernelCrc32,
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
    net::{
        namespace::NetId,
        netdevice::NetDevice,
        skbuff::{
            IpHeader,
            SkBuff, //
        },
        udp_tunnel::UdpReceive, //
    }, //
};
use roce::{
    icrc::{
        Icrc,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
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
    fn receive(mut skb: SkBuff, dev: &NetDevice) {
        let len = skb.len();
        let refuse = |reason| refuse_unknown(None, dev, reason, total(len, IPV4_LEN), &None);

        // Before it is copied, or waits for something.
        if len > MAX_PACKET_LEN {
            return refuse(Counter::Malformed);
        }
        if !skb.is_linear() && skb.linearize().is_err() {
            return refuse(Counter::NoMemory);
        }
        let mut incoming = Incoming {
            skb,
            vlan: dev.vlan_id(),
            sport: 0,
        };
        let Some(origin) = incoming.origin(dev.net_id()) else {
            return refuse(Counter::Malformed);
        };
        incoming.sport = origin.sport;
        let mut kept = None;
        if let Err(reason) = dispatch(incoming, &origin, dev, &mut kept) {
            refuse_unknown(Some(origin.address()), dev, reason, origin.bytes, &kept);
        }
    }
}

/// A packet, linear, of which the BTH comes first and the ICRC last.
pub(crate) struct Incoming {
    skb: SkBuff,
    /// The VLAN of the net device that it came in through.
    vlan: Option<u16>,
    sport: u16,
}

impl Incoming {
    /// Returns the UDP port that the packet comes from.
    pub(crate) fn sport(&self) -> u16 {
        self.sport
    }

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
            sport: self.sport,
        })
    }

    /// Returns how much memory nobody else can use because of the packet, in bytes, at most.
    pub(crate) fn footprint(&self) -> usize {
        self.skb.footprint()
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
            let (ip, udp) = self.skb.received_headers()?;
            let (covered, icrc) = self.skb.data().split_last_chunk::<ICRC_LEN>()?;
            let (bth, rest) = covered.split_first_chunk::<BTH_LEN>()?;
            let mut computed = match ip {
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
        let (ip, udp) = self.skb.received_headers()?;
        let [sport_hi, sport_lo, ..] = *udp;
        let (saddr, daddr, below) = match ip {
            IpHeader::V4(ip) => {
                let [s0, s1, s2, s3, d0, d1, d2, d3] = *ip.last_chunk()?;
                let (saddr, daddr) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
                (ah::mapped(saddr), ah::mapped(daddr), IPV4_LEN)
            }
            IpHeader::V6(ip) => {
                let (saddr, daddr) = ip.last_chunk::<32>()?.split_first_chunk::<16>()?;
                (*saddr, *daddr.first_chunk()?, IPV6_LEN)
            }
        };
        Some(Origin {
            net,
            saddr,
            daddr,
            sport: u16::from_be_bytes([sport_hi, sport_lo]),
            bytes: total(self.skb.len(), below),
        })
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
    /// The UDP port that it comes from.
    pub(crate) sport: u16,
    /// Bytes of the packet, from the IP header on.
    pub(crate) bytes: u32,
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

/// Returns the length of a packet that has `len` bytes behind its UDP header.
#[inline]
fn total(len: usize, ip_len: usize) -> u32 {
    // CAST: A packet is never that long.
    len.saturating_add(UDP_LEN).saturating_add(ip_len) as u32
}

/// Checks a packet and hands it to the half that it is for.
///
/// # Errors
///
/// What to count if it is dropped, and nobody has counted it.
fn dispatch(
    incoming: Incoming,
    origin: &Origin,
    dev: &NetDevice,
    kept: &mut Option<Kept>,
) -> Result<(), Counter> {
    let packet = incoming.packet().map_err(|_| Counter::Malformed)?;
    traces::keep(&packet, kept);
    if !packet.pkey().matches(Pkey::DEFAULT) {
        return Err(Counter::BadPkey);
    }
    if packet.dest_qpn() == Qpn::MULTICAST {
        // There may be many, so that each looks only at what may differ from one to another.
        if packet.opcode().transport() != Transport::Ud {
            return Err(Counter::BadOpcode);
        }
        if !incoming.is_intact() {
            return Err(Counter::BadIcrc);
        }
        return mcast::deliver(incoming, origin, &link(dev));
    }
    let qp = find(packet.dest_qpn(), origin).ok_or(Counter::NoQp)?;
    let result = if !qp.ty.takes(packet.opcode().transport()) {
        Err(Counter::BadOpcode)
    } else if !incoming.is_intact() {
        Err(Counter::BadIcrc)
    } else {
        traces::received(&qp, &packet);
        if packet.opcode().is_request() {
            recv::request(&qp, origin, incoming)
        } else {
            send::respond(&qp, origin, incoming)
        }
    };
    if let Err(reason) = result {
        refuse(&qp, reason, origin.bytes);
        traces::was_dropped(Some(qp.device()), kept, reason);
    }
    Ok(())
}

/// Counts a packet that is dropped, for the device of a queue pair.
///
/// Not for the queue pair, though the packet may name it: whoever sent it may be anybody.
#[cold]
fn refuse(qp: &QpRef, reason: Counter, bytes: u32) {
    let counters = qp.device().counters();

    counters.received(bytes);
    counters.dropped(reason, 1);
}

/// Counts a packet that is dropped and names no queue pair, for the device that has the address, or
/// an address of the net device.
#[cold]
fn refuse_unknown(
    address: Option<Address>,
    dev: &NetDevice,
    reason: Counter,
    bytes: u32,
    kept: &Option<Kept>,
) {
    let gsi = address
        .and_then(|address| gids::gsi(&address))
        .or_else(|| gids::gsi_at(&link(dev)));

    let qp = gsi.and_then(|number| globals::qps().ok()?.get(number));

    if let Some(qp) = &qp {
        refuse(qp, reason, bytes);
    }
    traces::was_dropped(qp.as_ref().map(|qp| qp.device()), kept, reason);
}

/// Returns a net device as packets name it.
fn link(dev: &NetDevice) -> Link {
    Link {
        net: dev.net_id(),
        ifindex: dev.ifindex(),
    }
}

/// Finds the queue pair that a packet names.
#[inline]
fn find(qpn: Qpn, origin: &Origin) -> Option<QpRef> {
    let number = if qpn == Qpn::GSI {
        gids::gsi(&origin.address())?
    } else {
        qpn.get()
    };
    globals::qps().ok()?.get(number)
}
