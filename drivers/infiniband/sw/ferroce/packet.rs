// SPDX-License-Identifier: GPL-2.0

//! Received packets, the allocation of packets to send, and the CRC of both.

use crate::{
    ah,
    counters::Counter,
    gids::Address,
    module_parameters, //
};
use kernel::prelude::*;
use rdma::{
    crc32::crc32_le,
    net::{
        namespace::NetId,
        netdevice::NetDevice,
        skbuff::{
            IpHeader,
            PacketPools,
            SkBuff,
            SkBuffList, //
        }, //
    },
    sync::Global, //
};
use roce::{
    congestion::Ecn,
    icrc::{
        Crc32,
        Icrc,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    ids::{
        Pkey,
        Qpn, //
    },
    opcode::{
        Opcode,
        Transport, //
    },
    psn::Psn,
    wire::{
        Packet,
        ParseError,
        BTH_LEN,
        ICRC_LEN,
        MAX_PACKET_LEN, //
    }, //
};

/// The CRC-32 of the ICRC, by `crc32_le()`.
pub(crate) struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        crc32_le(crc, bytes)
    }
}

/// A received packet, linear, from the BTH to the ICRC.
pub(crate) struct Incoming {
    skb: SkBuff,
    about: About,
}

/// Properties of a packet that are not in its data.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// The VLAN of the net device that it was received on; of its destination address, if it is for
    /// queue pair 1.
    vlan: Option<u16>,
    sport: u16,
    /// True if the ICRC is not checked.
    is_trusted: bool,
}

impl Incoming {
    /// Wraps a linear packet that was received on `dev`, and returns its origin, too; `None` if its
    /// headers cannot be read.
    #[inline]
    fn new(skb: SkBuff, dev: &NetDevice, about: About) -> Option<(Self, Origin)> {
        let mut incoming = Self { skb, about };
        let origin = incoming.origin(dev.net_id())?;
        incoming.about.sport = origin.sport;
        Some((incoming, origin))
    }

    /// Takes the packet apart, to keep it in a queue.
    pub(crate) fn into_parts(self) -> (SkBuff, About) {
        (self.skb, self.about)
    }

    /// Puts a packet together again.
    pub(crate) fn from_parts(skb: SkBuff, about: About) -> Self {
        Self { skb, about }
    }

    /// Returns the UDP source port.
    pub(crate) fn sport(&self) -> u16 {
        self.about.sport
    }

    /// Returns the VLAN of the net device that the packet was received on, or that of its
    /// destination address, if it is for queue pair 1.
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.about.vlan
    }

    /// Sets the VLAN.
    pub(crate) fn set_vlan(&mut self, vlan: Option<u16>) {
        self.about.vlan = vlan;
    }

    /// Returns a copy that shares the data.
    #[cold]
    pub(crate) fn copy(&self) -> Option<Self> {
        Some(Self {
            skb: self.skb.try_clone()?,
            about: self.about,
        })
    }

    /// Returns the maximum amount of memory, in bytes, that the packet occupies.
    pub(crate) fn footprint(&self) -> u32 {
        self.skb.footprint()
    }

    /// Frees a packet that was handled (`consume_skb()`).
    pub(crate) fn consume(self) {
        self.skb.consume();
    }

    /// Parses the headers.
    #[inline]
    pub(crate) fn packet(&self) -> Result<Packet<'_>, ParseError> {
        Packet::parse(self.skb.data())
    }

    /// Returns whether it is a READ request with PSN `psn`.
    #[inline]
    pub(crate) fn is_read(&self, psn: Psn) -> bool {
        self.packet()
            .is_ok_and(|packet| packet.opcode() == Opcode::RcReadRequest && packet.psn() == psn)
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
        Some(self.skb.received_headers()?.0)
    }

    /// Returns whether the ICRC is correct, or need not be checked.
    #[inline]
    pub(crate) fn is_intact(&self) -> bool {
        self.about.is_trusted || self.has_correct_icrc()
    }

    /// Returns whether the ICRC is correct.
    fn has_correct_icrc(&self) -> bool {
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

    /// Returns whether it is an intact packet of `flow`.
    #[inline]
    fn is_of(&self, flow: Flow) -> bool {
        self.packet()
            .is_ok_and(|packet| packet.pkey().matches(Pkey::DEFAULT) && Flow::of(&packet) == flow)
            && self.is_intact()
    }

    /// Returns the source and the destination.
    #[inline]
    fn origin(&self, net: NetId) -> Option<Origin> {
        let (ip, udp) = self.skb.received_headers()?;
        let [sport_hi, sport_lo, ..] = *udp;
        let (saddr, daddr, traffic_class, ip_len) = match ip {
            IpHeader::V4(ip) => {
                let [s0, s1, s2, s3, d0, d1, d2, d3] = *ip.last_chunk()?;
                let (saddr, daddr) = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
                let [_, tos, ..] = *ip;
                (ah::mapped(saddr), ah::mapped(daddr), tos, IPV4_LEN)
            }
            IpHeader::V6(ip) => {
                let (saddr, daddr) = ip.last_chunk::<32>()?.split_first_chunk::<16>()?;
                let [_, low, ..] = *ip;
                // The low half of the traffic class, with the bits of ECN.
                (*saddr, *daddr.first_chunk()?, low >> 4, IPV6_LEN)
            }
        };
        Some(Origin {
            net,
            saddr,
            daddr,
            sport: u16::from_be_bytes([sport_hi, sport_lo]),
            ip_len,
            bytes: total(self.skb.len(), ip_len),
            ecn: Ecn::of(traffic_class),
        })
    }
}

/// A packet that was taken from a [`Batch`], or the drop counter and the length of one that is not
/// usable.
type Taken = Result<(Incoming, Origin), (Counter, usize)>;

/// Packets that were received together.
pub(crate) struct Batch<'a> {
    packets: SkBuffList,
    dev: &'a NetDevice,
    /// The properties of the packets, but for the source port.
    about: About,
    /// The next packet, if [`Batch::pop_like`] has examined and left it.
    next: Option<Taken>,
    /// The counter to increment for a train that was not counted yet.
    train: Option<Counter>,
}

impl<'a> Batch<'a> {
    /// Wraps packets that were received on `dev`.
    ///
    /// The ICRC of packets that have not left this kernel is not checked, like a TCP checksum,
    /// unless the module parameter `check_local_icrc` is set.
    #[inline]
    pub(crate) fn new(packets: SkBuffList, dev: &'a NetDevice) -> Self {
        let train = if packets.is_whole() {
            Some(Counter::TrainsReceived)
        } else {
            packets.is_split().then_some(Counter::TrainsSplit)
        };
        let is_trusted = packets.is_whole() && !*module_parameters::check_local_icrc.value_ref();
        Self {
            train,
            packets,
            dev,
            about: About {
                vlan: dev.vlan_id(),
                sport: 0,
                is_trusted,
            },
            next: None,
        }
    }

    /// Returns the net device.
    #[inline]
    pub(crate) fn dev(&self) -> &'a NetDevice {
        self.dev
    }

    /// Returns the counter of the train once, if the packets are one.
    #[inline]
    pub(crate) fn take_train(&mut self) -> Option<Counter> {
        self.train.take()
    }

    /// Removes the next packet.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        if self.next.is_some() {
            return self.next.take();
        }
        let mut skb = self.packets.pop()?;
        let len = skb.len();
        // Check the length before the packet is copied or kept.
        if len > MAX_PACKET_LEN {
            return Some(Err((Counter::Malformed, len)));
        }
        if !skb.is_linear() && skb.linearize().is_err() {
            return Some(Err((Counter::NoMemory, len)));
        }
        Some(Incoming::new(skb, self.dev, self.about).ok_or((Counter::Malformed, len)))
    }

    /// Removes the next packet if it is intact, of `flow`, and from `origin`, and so for the same
    /// half. Otherwise it is left. `origin` is set to that of the packet.
    ///
    /// Packets for queue pair 1, which are never in a whole train, are left: the caller sets the
    /// VLAN of each.
    #[inline]
    pub(crate) fn pop_like(&mut self, flow: Flow, origin: &mut Origin) -> Option<Incoming> {
        if self.packets.is_whole() {
            return self.pop_behind(origin);
        }
        if flow.qpn == Qpn::GSI {
            return None;
        }
        match self.pop()? {
            Ok((incoming, from)) if from.is_same(origin) && incoming.is_of(flow) => {
                *origin = from;
                Some(incoming)
            }
            other => {
                self.next = Some(other);
                None
            }
        }
    }

    /// Removes the next packet of a whole train, behind one from `origin`. One half sent all of
    /// them together, so only the first one's headers are examined.
    #[inline]
    fn pop_behind(&mut self, origin: &mut Origin) -> Option<Incoming> {
        let skb = self.packets.pop()?;
        origin.bytes = total(skb.len(), origin.ip_len);
        // A network marks only the first one.
        origin.ecn = Ecn::NotCapable;
        let about = About {
            sport: origin.sport,
            ..self.about
        };
        let incoming = Incoming { skb, about };
        if !incoming.is_intact() {
            self.next = Some(Ok((incoming, *origin)));
            return None;
        }
        Some(incoming)
    }
}

/// The fields that the packets for one half of a queue pair have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    qpn: Qpn,
    transport: Transport,
    is_request: bool,
}

impl Flow {
    #[inline]
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        Self {
            qpn: packet.dest_qpn(),
            transport: packet.opcode().transport(),
            is_request: packet.opcode().is_request(),
        }
    }
}

/// The source and the destination of a packet.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The namespace that it was received in.
    pub(crate) net: NetId,
    /// The source, as a GID.
    pub(crate) saddr: [u8; 16],
    /// The destination, as a GID.
    pub(crate) daddr: [u8; 16],
    /// The UDP source port.
    pub(crate) sport: u16,
    /// Bytes of the IP header.
    ip_len: usize,
    /// Bytes of the packet, from the IP header on.
    pub(crate) bytes: u32,
    /// The ECN codepoint of the packet.
    pub(crate) ecn: Ecn,
}

impl Origin {
    /// Returns whether source and destination are the same.
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        (self.net, self.saddr, self.daddr, self.sport)
            == (other.net, other.saddr, other.daddr, other.sport)
    }

    /// Returns whether a congested network has marked the packet.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.ecn == Ecn::Congested
    }

    /// Returns the destination.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address {
            net: self.net,
            gid: self.daddr,
        }
    }
}

/// Returns the length of an IP packet with `len` bytes of UDP payload.
#[inline]
pub(crate) fn total(len: usize, ip_len: usize) -> u32 {
    // CAST: `len` is at most that of an IP datagram, 64 KiB.
    len.saturating_add(UDP_LEN).saturating_add(ip_len) as u32
}

static POOLS: Global<PacketPools> = Global::new();

/// Constructs the pools. Called once, before any device exists.
pub(crate) fn init() -> Result {
    POOLS.init(PacketPools::new())
}

/// Frees the pages in the pools. Called when nothing allocates packets any more.
pub(crate) fn shut_down() {
    if let Some(pools) = POOLS.get() {
        pools.shut_down();
    }
}

/// Allocates an empty packet with at least `headroom` bytes in front and room for `size`. Does not
/// sleep.
///
/// The payload, behind `front` bytes of headers, is aligned to a word. `rep movsq` would take two
/// to three times as long if one side were not (4 KiB on an Intel Xeon: 120 ns, and 220 to 390 ns).
#[inline]
pub(crate) fn alloc(headroom: usize, front: usize, size: usize) -> Option<SkBuff> {
    const WORD: usize = size_of::<u64>();

    let pad = headroom.wrapping_add(front).wrapping_neg() & (WORD - 1);
    POOLS.get()?.alloc(headroom.saturating_add(pad), size)
}
