// SPDX-License-Identifier: GPL-2.0

//! Received packets, and the memory of those to send.

use crate::{
    ah,
    crc32::KernelCrc32,
    gids::Address, //
};
use kernel::prelude::*;
use rdma::{
    net::{
        namespace::NetId,
        netdevice::NetDevice,
        skbuff::{
            IpHeader,
            PacketPools,
            SkBuff, //
        }, //
    },
    sync::Global, //
};
use roce::{
    icrc::{
        Icrc,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    wire::{
        Packet,
        ParseError,
        BTH_LEN,
        ICRC_LEN, //
    }, //
};

/// A linear packet, from the BTH to the ICRC.
pub(crate) struct Incoming {
    skb: SkBuff,
    /// The VLAN of the net device that it was received on.
    vlan: Option<u16>,
    sport: u16,
}

impl Incoming {
    /// Takes a linear packet that was received on `dev`, and returns its origin too; `None` if its
    /// headers cannot be read.
    #[inline]
    pub(crate) fn new(skb: SkBuff, dev: &NetDevice) -> Option<(Self, Origin)> {
        let mut incoming = Self {
            skb,
            vlan: dev.vlan_id(),
            sport: 0,
        };
        let origin = incoming.origin(dev.net_id())?;
        incoming.sport = origin.sport;
        Some((incoming, origin))
    }

    /// Returns the UDP source port.
    pub(crate) fn sport(&self) -> u16 {
        self.sport
    }

    /// Returns the VLAN of the net device that the packet was received on.
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

    /// Returns the most memory, in bytes, that the packet keeps from other uses.
    pub(crate) fn footprint(&self) -> usize {
        self.skb.footprint()
    }

    /// Frees a packet that was handled (`consume_skb()`).
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
    pub(crate) fn is_intact(&self) -> bool {
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

    /// Returns the source and the destination.
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

/// The source and the destination of a packet.
pub(crate) struct Origin {
    /// The namespace that it was received in.
    pub(crate) net: NetId,
    /// The source, as a GID.
    pub(crate) saddr: [u8; 16],
    /// The destination, as a GID.
    pub(crate) daddr: [u8; 16],
    /// The UDP source port.
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
pub(crate) fn total(len: usize, ip_len: usize) -> u32 {
    // CAST: A packet is never that long.
    len.saturating_add(UDP_LEN).saturating_add(ip_len) as u32
}

static POOLS: Global<PacketPools> = Global::new();

/// Constructs the pools. Once, before any device exists.
pub(crate) fn init() -> Result {
    POOLS.init(PacketPools::new())
}

/// Frees the pages in the pools. Nothing allocates any more.
pub(crate) fn shut_down() {
    if let Some(pools) = POOLS.get() {
        pools.shut_down();
    }
}

/// Allocates an empty packet with `headroom` bytes in front and room for `size`. Does not sleep.
#[inline]
pub(crate) fn alloc(headroom: usize, size: usize) -> Option<SkBuff> {
    POOLS.get()?.alloc(headroom, size)
}
