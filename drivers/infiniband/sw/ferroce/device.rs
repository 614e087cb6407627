// SPDX-License-Identifier: GPL-2.0

//! Devices: the state of one, and its objects as the RDMA core has them.

use crate::{
    counters::{
        Counter,
        Counters, //
    },
    gids::{
        Address,
        Link, //
    },
    owner::Kind,
    pool::Pool,
    senders::Senders,
    sockets::SocketRef,
    speed::Speed, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use rdma::{
    ib,
    net::{
        netdevice::NetDevice,
        NetId, //
    },
    sync::Ref, //
};
use roce::qp::attr::Mtu;

/// The most scatter or gather entries of a request.
pub(crate) const MAX_SGE: u32 = 32;
/// The most requests of a queue.
pub(crate) const MAX_WR: u32 = 1 << 14;
/// The most bytes of inline data.
pub(crate) const MAX_INLINE: u32 = 512;
/// The most READs, atomics and their like outstanding of a queue pair, as requester and as
/// responder.
pub(crate) const MAX_RD_ATOMIC: u8 = roce::responder::MAX_RD_ATOMIC as u8;

/// The most multicast groups of a device.
pub(crate) const MAX_GROUPS: u32 = 8192;
/// The most memberships of queue pairs in groups of a device.
pub(crate) const MAX_MEMBERSHIPS: u32 = 16384;

/// A queue pair as the core has it.
pub(crate) type IbQp = ib::qp::Qp<Ferroce>;
/// A completion queue as the core has it.
pub(crate) type IbCq = ib::cq::Cq<Ferroce>;
/// A shared receive queue as the core has it.
pub(crate) type IbSrq = ib::srq::Srq<Ferroce>;

/// A queue pair as lookups return it.
pub(crate) type QpRef = Ref<IbQp>;
/// A completion queue as lookups return it.
pub(crate) type CqRef = Ref<IbCq>;
/// A shared receive queue as lookups return it.
pub(crate) type SrqRef = Ref<IbSrq>;

/// The state of a device.
pub(crate) struct Ferroce {
    /// Distinguishes devices; never used again.
    number: u32,
    /// The GUID of the node and of its port.
    pub(crate) guid: [u8; 8],
    /// The counters of the port, without queue pairs that are bound to a counter.
    counters: Arc<Counters>,
    /// The counters of queue pairs that are or were bound to a counter.
    pub(crate) bound_counters: Arc<Counters>,
    /// True if the port was active at the last event of its net device. Under RTNL.
    active: Atomic<bool>,
    /// The MTU of the port, in bytes, which follows that of its net device. Written under RTNL.
    mtu: Atomic<u32>,
    /// The net device.
    pub(crate) link: Link,
    /// That of the net device, which bounds rates.
    pub(crate) speed: Speed,
    /// The multicast groups in use. Not charged to any memcg: the last queue pair to leave a group
    /// need not be the one that joined it first. A user is in no more groups than it has
    /// memberships, so the share of those is what counts.
    pub(crate) groups: Pool,
    /// The memberships of queue pairs in multicast groups.
    pub(crate) memberships: Pool,
    /// Halves of queue pairs that send: they share the queues below.
    pub(crate) senders: Senders,
    /// Keeps the sockets of the namespace open.
    _sockets: SocketRef,
}

impl Ferroce {
    /// Makes the state of a device on a net device in namespace `net`. Sleeps.
    ///
    /// # Errors
    ///
    /// As [`SocketRef::acquire`]; `ENOMEM`.
    pub(crate) fn new(netdev: &NetDevice, net: NetId) -> Result<Self> {
        static NEXT: Atomic<u32> = Atomic::new(1);

        let sockets = SocketRef::acquire(netdev)?;
        Ok(Self {
            link: Link {
                net,
                ifindex: netdev.ifindex(),
            },
            number: NEXT.fetch_add(1, Relaxed),
            guid: guid(netdev),
            counters: Counters::new(None)?,
            bound_counters: Counters::new(None)?,
            active: Atomic::new(netdev.port_active()),
            mtu: Atomic::new(Mtu::B256.bytes()),
            speed: Speed::new(),
            groups: Pool::new(Kind::Membership, MAX_GROUPS),
            memberships: Pool::new(Kind::Membership, MAX_MEMBERSHIPS),
            senders: Senders::new(),
            _sockets: sockets,
        })
    }

    /// Returns the counters of what happens but to bound queue pairs.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Takes note of whether the port is active. Under RTNL.
    pub(crate) fn note_port(&self, active: bool) {
        if self.active.xchg(active, Relaxed) && !active {
            self.counters.count(Counter::LinkDowned);
        }
    }

    /// Takes note of the MTU of the port. Under RTNL.
    pub(crate) fn note_mtu(&self, mtu: Mtu) {
        self.mtu.store(mtu.bytes(), Relaxed);
    }

    /// Returns the MTU of the port, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Relaxed)
    }

    /// Returns a GID as an address in the namespace of the net device.
    pub(crate) fn address(&self, gid: [u8; 16]) -> Address {
        Address {
            net: self.link.net,
            gid,
        }
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

/// Returns the GUID: the modified EUI-64 of the MAC address, or a random one for a net device that
/// has none.
fn guid(netdev: &NetDevice) -> [u8; 8] {
    let [a, b, c, d, e, f] = netdev.mac().unwrap_or_else(rdma::random::mac);
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
