// SPDX-License-Identifier: GPL-2.0

//! The path to a peer: addresses, route, and the headers below the BTH.

use crate::{
    ah::{
        self,
        Av, //
    },
    clock,
    counters::{
        Counter,
        Counters, //
    },
    device::{
        Ferroce,
        IbQp, //
    },
    gids::{
        self,
        Link, //
    },
    packet::{
        self,
        KernelCrc32,
        Origin, //
    },
    sockets::ROCE_PORT,
    work::WakeQp, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};
use rdma::{
    ib::{
        gid::{
            udp_sport,
            GidAttr,
            GidTable,
            Path, //
        },
        Device, //
    },
    net::{
        route::{
            CachedRoute,
            Dst,
            RouteAddresses,
            RouteKey, //
        },
        skbuff::{
            SkBuff,
            Train, //
        },
        tx_in_flight::TxInFlight, //
    }, //
};
use roce::{
    congestion::Congestion,
    icrc::{
        self,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    pace::{
        Rate,
        FRAME_OVERHEAD, //
    },
    source_port::SourcePort,
    wire::{
        pad_for,
        TxPacket,
        ICRC_LEN,
        MAX_HEADER_LEN, //
    }, //
};

/// Room in front of a packet, for the headers that net devices add.
pub(super) const HEADROOM: usize = Train::HEADROOM;

/// The most bytes of all headers, from the IP header on.
const MAX_HEADERS: usize = IPV6_LEN + UDP_LEN + MAX_HEADER_LEN;

const IPPROTO_UDP: u8 = 17;

/// The reason for not sending a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The payload could not be gathered.
    Memory(roce::wr::MemError),
    /// There is no memory for the packet. Counted.
    NoMemory,
    /// A queue below is full: the half will be run again to retry. Not counted.
    NoRoom,
    /// There is no route, or the stack refused the packet: it counts as lost on the wire.
    /// Counted.
    Lost,
}

impl SendError {
    /// Counts lost packets, and returns [`Self::Lost`].
    #[cold]
    pub(super) fn lost(counters: &Counters, reason: Counter, packets: u16) -> Self {
        counters.lost(reason, packets);
        Self::Lost
    }

    /// Counts a packet for which there is no memory, and returns [`Self::NoMemory`].
    #[cold]
    pub(super) fn no_memory(counters: &Counters) -> Self {
        counters.count(Counter::NoPacket);
        Self::NoMemory
    }
}

/// Returns whether packets go to a group.
#[inline]
fn is_multicast(addresses: &RouteAddresses) -> bool {
    match addresses {
        RouteAddresses::V4 { daddr, .. } => matches!(daddr, [224..=239, ..]),
        RouteAddresses::V6 { daddr, .. } => matches!(daddr, [0xff, ..]),
    }
}

/// The path to a peer.
///
/// Belongs to one half of a queue pair and is used under its lock, with the cached route of the
/// half. The route is checked at each use, and looked up again after a change of the routing
/// tables, of the address, or of the path of the half.
pub(crate) struct TxPath {
    /// The number of the device.
    device: u32,
    path: Path,
    gids: GidTable,
    /// The net device that has the source address, and its namespace, in which the packets of the
    /// peer must arrive.
    link: Link,
    is_v4: bool,
    sport: u16,
    /// The UDP source port of the peer.
    peer_port: SourcePort,
    /// Congestion on the way to the peer and back.
    congestion: Congestion,
    /// The static rate of the address vector, if it is a limit.
    rate: Option<Rate>,
    /// The [`gids::generation`] of the last lookup of the route, or an old one before the first.
    generation: u32,
    /// The identification of the next IPv4 packet. The ICRC covers it, and it must be consecutive
    /// in a train.
    ip_id: u16,
}

impl TxPath {
    /// Creates the path to a peer, in the namespace of `link`, the net device that has the source
    /// address. `gids` is the table of `device`. `has_ecn` is true if the half reacts to congestion
    /// marks.
    pub(crate) fn new(
        device: &Device<Ferroce>,
        path: Path,
        link: Link,
        gids: GidTable,
        sport: u16,
        has_ecn: bool,
    ) -> Self {
        Self {
            device: device.number,
            path,
            gids,
            link,
            is_v4: ah::is_v4(&path.sgid) && ah::is_v4(&path.dgid),
            sport,
            peer_port: SourcePort::default(),
            congestion: Congestion::new(has_ecn),
            rate: device.rate_limit(path.static_rate),
            generation: gids::generation().wrapping_sub(1),
            ip_id: 0,
        }
    }

    /// Returns the addresses.
    #[inline]
    fn addresses(&self) -> RouteAddresses {
        if self.is_v4 {
            let [.., s0, s1, s2, s3] = self.path.sgid;
            let [.., d0, d1, d2, d3] = self.path.dgid;
            RouteAddresses::V4 {
                saddr: [s0, s1, s2, s3],
                daddr: [d0, d1, d2, d3],
            }
        } else {
            RouteAddresses::V6 {
                saddr: self.path.sgid,
                daddr: self.path.dgid,
            }
        }
    }

    /// Returns whether the static rate of the address vector is a limit.
    #[inline]
    pub(crate) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns the time that a packet of `ip_len` bytes, from the IP header on, takes at the static
    /// rate of the address vector, in nanoseconds; `None` if the rate is not a limit.
    #[inline]
    pub(crate) fn gap(&self, ip_len: usize) -> Option<u64> {
        // CAST: At most 65535.
        let bytes = (ip_len as u32).saturating_add(FRAME_OVERHEAD);
        Some(self.rate?.time_of(bytes))
    }

    /// Returns the path of the address vector.
    #[inline]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the path is that of an address vector. The net device is compared, too: two
    /// of them may have the same address, and exchange their entries in the GID table.
    #[inline]
    pub(super) fn is_of(&self, av: &Av) -> bool {
        self.path == av.path && Some(self.link) == av.link
    }

    /// Checks that a packet is from the address and the UDP source port of the peer, and to the
    /// address that the peer knows.
    ///
    /// # Errors
    ///
    /// The drop counter, if it is not.
    #[inline]
    pub(crate) fn admits(&mut self, origin: &Origin) -> Result<(), Counter> {
        if origin.net != self.link.net
            || origin.saddr != self.path.dgid
            || origin.daddr != self.path.sgid
        {
            return Err(Counter::BadAddress);
        }
        if !self.peer_port.admits(origin.sport, clock::monotonic) {
            return Err(Counter::BadSourcePort);
        }
        self.congestion.heard(origin.ecn);
        Ok(())
    }

    /// Returns whether the half reacts to congestion marks.
    #[inline]
    pub(super) fn has_ecn(&self) -> bool {
        self.congestion.is_on()
    }

    /// Returns whether a CNP is to be sent for a marked packet of the peer.
    pub(super) fn is_cnp_due(&mut self) -> bool {
        self.congestion.is_cnp_due(clock::monotonic())
    }

    /// Records the UDP source port of an expected packet.
    #[inline]
    pub(crate) fn heard(&mut self, sport: u16) {
        self.peer_port.heard(sport);
    }

    /// Builds a packet, from the IP header to the ICRC. The packets of a train must be built one
    /// after the other, because their IPv4 identifications must be consecutive.
    ///
    /// `gather` appends the payload.
    #[inline]
    pub(crate) fn build(
        &mut self,
        packet: &impl TxPacket,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), roce::wr::MemError>,
        counters: &Counters,
    ) -> Result<SkBuff, SendError> {
        let len = packet.payload_len();
        let pad = usize::from(pad_for(len));
        // CAST: A payload is at most an MTU long.
        let rest = (len as usize).saturating_add(pad).saturating_add(ICRC_LEN);
        let no_memory = |_| SendError::no_memory(counters);
        let front = self
            .ip_header_len()
            .saturating_add(UDP_LEN)
            .saturating_add(packet.opcode().header_len());
        let mut skb = packet::alloc(HEADROOM, front, MAX_HEADERS.saturating_add(rest))
            .ok_or_else(|| SendError::no_memory(counters))?;

        let traffic_class = self.congestion.traffic_class(self.path.traffic_class, len);
        let room = skb.append_array::<MAX_HEADERS>().map_err(no_memory)?;
        let written = self
            .write_headers(room, packet, rest, traffic_class)
            .ok_or_else(|| SendError::lost(counters, Counter::Rejected, 1))?;
        skb.truncate(written).map_err(no_memory)?;
        if len > 0 {
            gather(&mut skb).map_err(SendError::Memory)?;
        }
        if pad > 0 {
            skb.append_zeros(pad).map_err(no_memory)?;
        }
        let data = skb.data_mut().map_err(no_memory)?;
        let icrc = if self.is_v4 {
            icrc::of_ipv4::<KernelCrc32>(data)
        } else {
            icrc::of_ipv6::<KernelCrc32>(data)
        };
        let icrc = icrc.ok_or_else(|| SendError::lost(counters, Counter::Rejected, 1))?;
        skb.append(&icrc).map_err(no_memory)?;
        self.ip_id = self.ip_id.wrapping_add(1);
        Ok(skb)
    }

    /// Hands packets that were built to the IP layer, either all or none. Softirq or process
    /// context, bottom halves off. The packets are charged to `account`, and counted.
    pub(crate) fn transmit(
        &mut self,
        route: &mut CachedRoute,
        mut train: Train,
        account: Option<&TxInFlight<WakeQp>>,
        counters: &Counters,
    ) -> Result<(), SendError> {
        let (packets, bytes) = (train.packets(), train.bytes());
        let rcu = rcu::read_lock();
        let dst = self
            .route(route, &rcu)
            .ok_or_else(|| SendError::lost(counters, Counter::NoRoute, packets))?;
        if let Some(account) = account {
            train
                .reserve_headers(&dst)
                .map_err(|_| SendError::no_memory(counters))?;
            account
                .charge(&mut train)
                .map_err(|_| SendError::lost(counters, Counter::Rejected, packets))?;
        }
        train.transmit(dst).map_err(|error| match error {
            ENOBUFS => SendError::NoRoom,
            _ => SendError::lost(counters, Counter::Rejected, packets),
        })?;
        counters.sent(packets, bytes);
        if is_multicast(&self.addresses()) {
            counters.count(Counter::SentMulticast);
        }
        Ok(())
    }

    /// Returns the length of the IP header in bytes.
    #[inline]
    fn ip_header_len(&self) -> usize {
        if self.is_v4 {
            IPV4_LEN
        } else {
            IPV6_LEN
        }
    }

    /// Writes all headers of a packet to `room`, of which `rest` bytes follow, and returns their
    /// length.
    #[inline]
    fn write_headers(
        &self,
        room: &mut [u8; MAX_HEADERS],
        packet: &impl TxPacket,
        rest: usize,
        traffic_class: u8,
    ) -> Option<usize> {
        let ip_len = self.ip_header_len();
        let (ip, room) = room.split_at_mut_checked(ip_len)?;
        let (udp, room) = room.split_first_chunk_mut()?;
        let written = packet.write_headers(room)?;
        let len = written.checked_add(rest)?.checked_add(UDP_LEN)?;

        *udp = self.udp_header(len)?;
        match self.addresses() {
            RouteAddresses::V4 { saddr, daddr } => {
                *ip.first_chunk_mut()? = self.ipv4_header(len, traffic_class, saddr, daddr)?;
            }
            RouteAddresses::V6 { saddr, daddr } => {
                *ip.first_chunk_mut()? = self.ipv6_header(len, traffic_class, saddr, daddr)?;
            }
        }
        written.checked_add(UDP_LEN)?.checked_add(ip_len)
    }

    /// Returns the cached route, or looks the route up if the cached one is no longer valid.
    /// Returns `None` if there is no route.
    #[inline]
    fn route<'rcu>(&mut self, route: &mut CachedRoute, rcu: &'rcu rcu::Guard) -> Option<Dst<'rcu>> {
        if self.generation == gids::generation() {
            if let Some(dst) = route.get(rcu) {
                return Some(dst);
            }
        }
        if self.look_up(route).is_err() {
            route.clear();
        }
        route.get(rcu)
    }

    /// Looks up the route.
    #[cold]
    fn look_up(&mut self, route: &mut CachedRoute) -> Result {
        // Read the generation before the address is used: it changes if the address is removed
        // meanwhile.
        self.generation = gids::generation();
        let key = RouteKey {
            addresses: self.addresses(),
            sport: self.sport,
            dport: ROCE_PORT,
            traffic_class: self.path.traffic_class,
            flow_label: self.path.flow_label,
        };
        // The address may have been removed and added again: a bond may have changed its active
        // link, or the net device may have got another MAC address or, with IPv6, may have been
        // down. The reference is not kept, because the address would then get another index.
        let gid = find_gid(self.device, self.path.sgid, &self.link, &self.gids)?;
        gid.with_netdev(|dev| route.look_up(dev, self.link.net, &key))
    }

    /// Returns the header of a UDP packet of `len` bytes. The checksum is zero, since the ICRC
    /// protects the packet. GRO does not merge such packets; it would discard the destructors of
    /// [`TxInFlight`].
    #[inline]
    fn udp_header(&self, len: usize) -> Option<[u8; UDP_LEN]> {
        let [sport_hi, sport_lo] = self.sport.to_be_bytes();
        let [dport_hi, dport_lo] = ROCE_PORT.to_be_bytes();
        let [len_hi, len_lo] = u16::try_from(len).ok()?.to_be_bytes();
        Some([sport_hi, sport_lo, dport_hi, dport_lo, len_hi, len_lo, 0, 0])
    }

    /// Returns the IPv4 header in front of a UDP packet of `len` bytes. The IP layer fills in the
    /// checksum.
    #[inline]
    fn ipv4_header(
        &self,
        len: usize,
        tos: u8,
        saddr: [u8; 4],
        daddr: [u8; 4],
    ) -> Option<[u8; IPV4_LEN]> {
        /// Version 4, and a header of five words.
        const V4_IHL5: u8 = 0x45;
        /// Routers must not fragment.
        const DF: u8 = 0x40;

        let total = u16::try_from(len.checked_add(IPV4_LEN)?).ok()?;
        let [len_hi, len_lo] = total.to_be_bytes();
        let [id_hi, id_lo] = self.ip_id.to_be_bytes();
        let [s0, s1, s2, s3] = saddr;
        let [d0, d1, d2, d3] = daddr;
        let (ttl, udp) = (self.hop_limit(), IPPROTO_UDP);
        Some([
            V4_IHL5, tos, len_hi, len_lo, id_hi, id_lo, DF, 0, ttl, udp, 0, 0, s0, s1, s2, s3, d0,
            d1, d2, d3,
        ])
    }

    /// Returns the IPv6 header in front of a UDP packet of `len` bytes.
    fn ipv6_header(
        &self,
        len: usize,
        traffic_class: u8,
        saddr: [u8; 16],
        daddr: [u8; 16],
    ) -> Option<[u8; IPV6_LEN]> {
        const VERSION: u32 = 6 << 28;

        let flow = VERSION | u32::from(traffic_class) << 20 | self.path.flow_label;
        let len = u16::try_from(len).ok()?;
        let mut ip = [0; IPV6_LEN];
        let (first, rest) = ip.split_first_chunk_mut::<4>()?;
        *first = flow.to_be_bytes();
        let (length, rest) = rest.split_first_chunk_mut::<2>()?;
        *length = len.to_be_bytes();
        let (next, rest) = rest.split_first_chunk_mut::<2>()?;
        *next = [IPPROTO_UDP, self.hop_limit()];
        let (source, rest) = rest.split_first_chunk_mut::<16>()?;
        *source = saddr;
        let (destination, _) = rest.split_first_chunk_mut::<16>()?;
        *destination = daddr;
        Some(ip)
    }

    /// Returns the hop limit. Programs that leave it at zero expect the default.
    fn hop_limit(&self) -> u8 {
        const DEFAULT: u8 = 64;

        match self.path.hop_limit {
            0 => DEFAULT,
            limit => limit,
        }
    }
}

/// Returns the path of datagrams to an address.
///
/// # Errors
///
/// `ENODEV` if the source address is gone.
pub(super) fn datagram_path(qp: &IbQp, av: &Av) -> Result<TxPath> {
    let device = qp.device();
    let gids = GidTable::of(device)?;
    let link = av.link.ok_or(ENODEV)?;
    let is_same = |gid: GidAttr| gid.gid() == av.path.sgid && Link::of_gid(&gid) == Ok(link);
    // The address may have been removed, and perhaps added again. If the address handle is gone,
    // the entry may be another one.
    if !gids.get(av.path.sgid_index).is_ok_and(is_same) {
        find_gid(device.number, av.path.sgid, &link, &gids)?;
    }
    // The port is a hash of the product of both numbers. That of the peer would not do: an address
    // handle has none, and one path serves many queue pairs of a peer.
    let sport = udp_sport(av.path.flow_label, qp.qpn, 1);
    Ok(TxPath::new(device, av.path, link, gids, sport, false))
}

/// Finds the entry of a source address, which may have been removed and added again to the same net
/// device. `gids` is the table of `device`.
///
/// # Errors
///
/// `ENODEV` if the address is gone; those of [`GidTable::get`].
#[cold]
fn find_gid(device: u32, sgid: [u8; 16], link: &Link, gids: &GidTable) -> Result<GidAttr> {
    let gid = gids.get(gids::index_of(device, sgid, link).ok_or(ENODEV)?)?;

    // The entry may have changed since it was found.
    if gid.gid() != sgid {
        return Err(ENODEV);
    }
    Ok(gid)
}
