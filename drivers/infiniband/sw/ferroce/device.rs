// SPDX-License-Identifier: GPL-2.0

//! The state of a device, and the types of its objects.

use crate::{
    clock,
    counters::{
        Counter,
        Counters, //
    },
    gids::Link,
    owner::Kind,
    pool::Pool,
    sockets::SocketRef, //
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
        Rtnl, //
    },
    sync::Ref, //
};
use roce::{
    pace::Rate,
    qp::Mtu,
    senders::{
        Period,
        Senders, //
    },
    tx_backoff::TxBackoff, //
};

/// The maximum number of scatter/gather entries of a request.
pub(crate) const MAX_SGE: u32 = 32;
/// The maximum number of requests of a queue.
pub(crate) const MAX_WR: u32 = 1 << 14;
/// The maximum number of bytes of inline data.
pub(crate) const MAX_INLINE: u32 = 512;
/// The maximum number of outstanding READs, atomics and ATOMIC WRITEs of a queue pair, as requester
/// and as responder. The requester also counts FLUSHes.
// CAST: 16.
pub(crate) const MAX_RD_ATOMIC: u8 = roce::responder::MAX_RD_ATOMIC as u8;

/// The maximum number of multicast groups of a device.
pub(crate) const MAX_GROUPS: u32 = 8192;
/// The maximum number of memberships of queue pairs in the groups of a device.
pub(crate) const MAX_MEMBERSHIPS: u32 = 16384;

/// A queue pair, as an object of the RDMA core.
pub(crate) type IbQp = ib::qp::Qp<Ferroce>;
/// A completion queue, as an object of the RDMA core.
pub(crate) type IbCq = ib::cq::Cq<Ferroce>;
/// A shared receive queue, as an object of the RDMA core.
pub(crate) type IbSrq = ib::srq::Srq<Ferroce>;

/// A reference to a queue pair, as lookups return it.
pub(crate) type QpRef = Ref<IbQp>;
/// A reference to a completion queue, as lookups return it.
pub(crate) type CqRef = Ref<IbCq>;
/// A reference to a shared receive queue, as lookups return it.
pub(crate) type SrqRef = Ref<IbSrq>;

/// The state of a device.
pub(crate) struct Ferroce {
    /// The number of the device, never used for another one.
    pub(crate) number: u32,
    /// The GUID of the node and of its port.
    pub(crate) guid: [u8; 8],
    /// The counters of the port, without those of queue pairs that are bound to a counter.
    pub(crate) counters: Arc<Counters>,
    /// The counters of queue pairs that are or were bound to a counter.
    pub(crate) bound_counters: Arc<Counters>,
    /// True if the port was active at the last event of its net device. Written under RTNL.
    active: Atomic<bool>,
    /// The MTU of the port, in bytes, which follows the MTU of its net device. Written under RTNL.
    mtu: Atomic<u32>,
    /// The net device.
    pub(crate) link: Link,
    /// The speed of the net device at the last query of the port, in Mb/s; 0 if it is not known.
    speed: Atomic<u32>,
    /// The multicast groups in use. They are not charged to a user, because the last queue pair to
    /// leave a group need not be the first that joined it. A user is in no more groups than it has
    /// memberships, so these are compared with the number of groups left. Memberships on all
    /// devices count.
    pub(crate) groups: Pool,
    /// The memberships of queue pairs in multicast groups.
    pub(crate) memberships: Pool,
    /// The number of halves that send, which share the queues below: a [`Senders`].
    senders: Atomic<u64>,
    /// Keeps the sockets of the namespace open.
    _sockets: SocketRef,
}

impl Ferroce {
    /// Creates the state of a device on a net device. Sleeps.
    ///
    /// # Errors
    ///
    /// See [`SocketRef::acquire`]; also `ENOMEM`.
    pub(crate) fn new(netdev: &NetDevice) -> Result<Self> {
        static NEXT: Atomic<u32> = Atomic::new(1);

        // First: if the net device moves to another namespace meanwhile, `port::enable` finds out.
        let link = Link::of(netdev);
        let sockets = SocketRef::acquire(netdev)?;
        Ok(Self {
            link,
            number: NEXT.fetch_add(1, Relaxed),
            guid: guid(netdev),
            counters: Counters::new(None)?,
            bound_counters: Counters::new(None)?,
            active: Atomic::new(netdev.port_active()),
            mtu: Atomic::new(Mtu::B256.bytes()),
            speed: Atomic::new(0),
            groups: Pool::new(Kind::Membership, MAX_GROUPS),
            memberships: Pool::new(Kind::Membership, MAX_MEMBERSHIPS),
            senders: Atomic::new(0),
            _sockets: sockets,
        })
    }

    /// Records whether the port is active; returns whether this is a change. Called under RTNL.
    pub(crate) fn note_port(&self, active: bool) -> bool {
        let changed = self.active.xchg(active, Relaxed) != active;

        if changed && !active {
            self.counters.count(Counter::LinkDowned);
        }
        changed
    }

    /// Records the MTU of the port. Called under RTNL.
    pub(crate) fn note_mtu(&self, mtu: Mtu) {
        self.mtu.store(mtu.bytes(), Relaxed);
    }

    /// Returns the MTU of the port, in bytes.
    #[inline]
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Relaxed)
    }

    /// Records the speed of the net device; returns whether it has one. Takes RTNL.
    pub(crate) fn note_speed(&self, netdev: &NetDevice) -> bool {
        let speed = netdev.speed(&Rtnl::lock());
        self.speed.store(speed.unwrap_or(0), Relaxed);
        speed.is_some()
    }

    /// Returns the static rate for a value of `enum ib_rate`, or `None` if it does not limit the
    /// net device ([`Rate::limits`]).
    pub(crate) fn rate_limit(&self, static_rate: u8) -> Option<Rate> {
        let rate = Rate::from_ib(static_rate).ok().flatten()?;
        rate.limits(self.speed.load(Relaxed)).then_some(rate)
    }

    /// Counts a half that sends, and returns the maximum number of packets that it may have in
    /// queues below. `in_trains` is true if they leave in trains. The lock of the half is held,
    /// which protects `tx_backoff`.
    #[inline]
    pub(crate) fn send_limit(&self, tx_backoff: &mut TxBackoff, in_trains: bool) -> u32 {
        let period = Period::of(clock::coarse());
        if tx_backoff.begins(period) {
            self.count_sender(period);
        }
        let senders = Senders::from_raw(self.senders.load(Relaxed)).count(period);
        tx_backoff.limit(senders, in_trains)
    }

    /// Counts another half. The loop terminates: it repeats only if a different half was counted
    /// concurrently, and each is counted only once in a period.
    #[cold]
    fn count_sender(&self, period: Period) {
        let mut raw = self.senders.load(Relaxed);
        loop {
            let next = Senders::from_raw(raw).with_another(period);
            match self.senders.cmpxchg(raw, next.to_raw(), Relaxed) {
                Ok(_) => return,
                Err(current) => raw = current,
            }
        }
    }
}

/// Returns the GUID of a device: the modified EUI-64 of the MAC address of its net device, or of a
/// random MAC address if the net device has none.
fn guid(netdev: &NetDevice) -> [u8; 8] {
    let [a, b, c, d, e, f] = netdev.mac().unwrap_or_else(rdma::random::mac);
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
