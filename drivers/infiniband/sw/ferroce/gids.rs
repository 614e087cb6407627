// SPDX-License-Identifier: GPL-2.0

//! The addresses of all devices, as the core reports them.
//!
//! They are needed for datagrams. A datagram for queue pair 1 names no device: the destination
//! address identifies it. A datagram for any other queue pair is accepted only if its destination
//! is an address of the device of that queue pair. A multicast datagram is accepted only if the
//! device has an address of the net device that received it.
//!
//! Addresses are added and removed under the mutex of the GID table of their device. Each table
//! here has its own lock for changes, and is read under RCU.

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    }, //
};
use rdma::{
    ib::gid::GidAttr,
    net::{
        namespace::NetId,
        netdevice::NetDevice, //
    },
    siphash,
    sync::{
        multi_table::Key,
        Global,
        MultiTable, //
    }, //
};

/// The buckets of a table. A host has some dozens of addresses, rarely hundreds.
const BUCKETS: usize = 256;

static GIDS: Global<Gids> = Global::new();

/// All addresses of all devices.
#[pin_data]
struct Gids {
    /// The entries of GID tables, by address.
    #[pin]
    addresses: MultiTable<Address, Entry, BUCKETS>,
    /// The entries of GID tables, by the net device that has the address.
    #[pin]
    links: MultiTable<Link, Entry, BUCKETS>,
    /// The contents of an entry of a GID table, needed when it is removed.
    #[pin]
    contents: MultiTable<GidIndex, (Address, Link), BUCKETS>,
    /// The management queue pair of each device.
    #[pin]
    gsi_qps: MultiTable<u32, u32, BUCKETS>,
}

/// An address, which is unique only within a namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) net: NetId,
    pub(crate) gid: [u8; 16],
}

impl Key for Address {
    #[inline]
    fn words(&self) -> [u64; 3] {
        let [low, high] = siphash::words(self.gid);
        [self.net.cookie(), low, high]
    }
}

/// A net device, by namespace and index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) net: NetId,
    pub(crate) ifindex: i32,
}

impl Link {
    /// Returns the key of a net device.
    pub(crate) fn of(netdev: &NetDevice) -> Self {
        Self {
            net: netdev.net_id(),
            ifindex: netdev.ifindex(),
        }
    }

    /// Returns the key of the net device that has an address.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the net device is gone.
    pub(crate) fn of_gid(gid: &GidAttr) -> Result<Self> {
        gid.with_netdev(|netdev| Ok(Self::of(netdev)))
    }
}

impl Key for Link {
    #[inline]
    fn words(&self) -> [u64; 3] {
        // CAST: Only to be hashed.
        [self.net.cookie(), self.ifindex as u64, 0]
    }
}

/// An index in the GID table of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GidIndex {
    device: u32,
    index: u32,
}

impl Key for GidIndex {
    #[inline]
    fn words(&self) -> [u64; 3] {
        [u64::from(self.device), u64::from(self.index), 0]
    }
}

/// An entry of a GID table that has an address.
#[derive(Clone, Copy)]
struct Entry {
    at: GidIndex,
    /// The index of the net device that has the address.
    ifindex: i32,
    /// True for an address of the device's own net device, false for one of a net device above it.
    own: bool,
}

/// Constructs the tables. Called once, before any device exists.
pub(crate) fn init() -> Result {
    GIDS.init(try_pin_init!(Gids {
        addresses <- MultiTable::new(),
        links <- MultiTable::new(),
        contents <- MultiTable::new(),
        gsi_qps <- MultiTable::new(),
    }? Error))
}

/// Adds an address. May sleep.
pub(crate) fn add(device: u32, index: u32, address: Address, link: Link, own: bool) -> Result {
    let gids = GIDS.get().ok_or(ENODEV)?;
    let at = GidIndex { device, index };
    let entry = Entry {
        at,
        ifindex: link.ifindex,
        own,
    };

    gids.contents.insert(at, (address, link), GFP_KERNEL)?;
    gids.links
        .insert(link, entry, GFP_KERNEL)
        .and_then(|()| gids.addresses.insert(address, entry, GFP_KERNEL))
        .inspect_err(|_| {
            let _ = remove(device, index);
        })
}

/// Changes whenever an address is removed, or a device joins or leaves a multicast group.
static GENERATION: Atomic<u32> = Atomic::new(1);

/// Returns a number that changes whenever an address is removed, or a device joins or leaves a
/// multicast group. The result of an earlier lookup is valid as long as the number is the same.
#[inline]
pub(crate) fn generation() -> u32 {
    // Pairs with `invalidate`: a reader of the new number does not find a removed address.
    GENERATION.load(Acquire)
}

/// Invalidates all cached routes.
pub(crate) fn invalidate() {
    // Pairs with `generation`: orders the removal of an address before the change.
    GENERATION.fetch_add(1, Release);
}

/// Removes and returns an address.
pub(crate) fn remove(device: u32, index: u32) -> Option<Address> {
    let gids = GIDS.get()?;
    let at = GidIndex { device, index };
    let (address, link) = gids.contents.remove(&at, |_| true)?;

    gids.addresses.remove(&address, |entry| entry.at == at);
    gids.links.remove(&link, |entry| entry.at == at);
    invalidate();
    Some(address)
}

/// Returns whether a device has an address.
pub(crate) fn contains(device: u32, address: &Address) -> bool {
    let find = |entry: &Entry| (entry.at.device == device).then_some(());

    GIDS.get()
        .is_some_and(|gids| gids.addresses.find_map(address, find).is_some())
}

/// Returns the index of an address of a net device in the GID table of a device.
pub(crate) fn index_of(device: u32, gid: [u8; 16], link: &Link) -> Option<u32> {
    let address = Address { net: link.net, gid };
    let find = |entry: &Entry| {
        // VLANs on one net device may have the same address.
        let is_it = entry.at.device == device && entry.ifindex == link.ifindex;
        is_it.then_some(entry.at.index)
    };

    GIDS.get()?.addresses.find_map(&address, find)
}

/// Returns whether a device has an address of a net device: its own net device, or one above it.
pub(crate) fn reaches(device: u32, link: &Link) -> bool {
    let find = |entry: &Entry| (entry.at.device == device).then_some(());

    GIDS.get()
        .is_some_and(|gids| gids.links.find_map(link, find).is_some())
}

/// The registration of the management queue pair of a device, until this is dropped.
pub(crate) struct GsiQp {
    device: u32,
    qp: u32,
}

impl GsiQp {
    /// Registers queue pair `qp` as the management queue pair of a device.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the device already has one.
    pub(crate) fn new(device: u32, qp: u32) -> Result<Self> {
        let gids = GIDS.get().ok_or(ENODEV)?;

        // The core creates only one for each device, so this check does not race.
        if gsi_of(gids, device).is_some() {
            return Err(EBUSY);
        }
        gids.gsi_qps.insert(device, qp, GFP_KERNEL)?;
        Ok(Self { device, qp })
    }
}

impl Drop for GsiQp {
    fn drop(&mut self) {
        if let Some(gids) = GIDS.get() {
            gids.gsi_qps.remove(&self.device, |qp| *qp == self.qp);
        }
    }
}

/// Returns the management queue pair of a device.
fn gsi_of(gids: &Gids, device: u32) -> Option<u32> {
    gids.gsi_qps.find_map(&device, |qp| Some(*qp))
}

/// Finds the management queue pair of a device that has an address of a net device.
pub(crate) fn gsi_at(link: &Link) -> Option<u32> {
    let gids = GIDS.get()?;

    gids.links
        .find_map(link, |entry| gsi_of(gids, entry.at.device))
}

/// A management queue pair that an address identifies.
#[derive(Clone, Copy)]
pub(crate) struct Gsi {
    /// The number of the queue pair.
    pub(crate) qp: u32,
    /// The index of the address in the GID table of the device.
    pub(crate) gid_index: u32,
}

/// Finds the management queue pair for a packet to `address` that was received on `link`.
///
/// Several net devices may have the same address, for instance a link-local one. That of `link` is
/// preferred. An address of a net device is also an address of each device on a net device below
/// it. A device on that net device itself is preferred.
pub(crate) fn gsi(address: &Address, link: &Link) -> Option<Gsi> {
    let gids = GIDS.get()?;
    let mut best = None;

    gids.addresses.find_map(address, |entry| {
        let rank = (entry.ifindex == link.ifindex, entry.own);
        if best.is_none_or(|(other, _)| other < rank) {
            if let Some(qp) = gsi_of(gids, entry.at.device) {
                let gid_index = entry.at.index;
                best = Some((rank, Gsi { qp, gid_index }));
            }
        }
        None::<()>
    });
    best.map(|(_, gsi)| gsi)
}
