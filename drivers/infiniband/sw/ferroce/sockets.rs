// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets that receive packets.
//!
//! There is one socket for each IP version in each network namespace with a device, or with an
//! address of a device. It is closed when the last of these is removed. A device and its addresses
//! may be in different namespaces: a device also has the addresses of the net devices above its own
//! (VLAN, macvlan). The sockets of a namespace are closed when it ends, even if devices still use
//! them; their entry in [`OPEN`] stays until the last device or address there is removed.
//!
//! ```text
//!   add_gid, del_gid, a device     DEMAND: how many in which namespace
//!                                     |
//!                                  the work item, or `SocketRef::acquire`
//!                                     v
//!                                  OPEN: the sockets
//! ```
//!
//! Locking: addresses are added and removed under the mutex of the core's GID table, sometimes also
//! under RTNL. So these calls only count, under [`DEMAND`], inside which only the locks of
//! `queue_work()` are taken. [`OPEN`] is held while a socket is opened or closed, so that the port
//! is free after the last close. Only the end of a namespace closes sockets without it.

use crate::work;
use kernel::{
    new_mutex,
    pr_warn_once,
    prelude::*,
    sync::Mutex, //
};
use rdma::{
    list,
    net::{
        Family,
        Namespace,
        NetDevice,
        NetId,
        UdpTunnel, //
    },
    sync::Global,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// The UDP port of RoCE v2.
pub(crate) const ROCE_PORT: u16 = 4791;

/// Takes packets from the sockets: [`receive`](crate::receive).
pub(crate) struct Receiver;

static DEMAND: Global<Mutex<KVec<Demand>>> = Global::new();
static OPEN: Global<Mutex<KVec<Sockets>>> = Global::new();
static WORK: Global<Work<Settle>> = Global::new();

/// The number of devices and addresses in a namespace, at least one.
struct Demand {
    net: NetId,
    users: usize,
    /// The namespace to open sockets in, until this was tried. The reference delays the end of the
    /// namespace.
    namespace: Option<Namespace>,
}

/// The sockets of one namespace.
struct Sockets {
    net: NetId,
    _v4: UdpTunnel,
    // `None` if the kernel has no IPv6.
    _v6: Option<UdpTunnel>,
}

impl Sockets {
    fn open(namespace: &Namespace) -> Result<Self> {
        let v4 = UdpTunnel::open::<Receiver>(namespace, Family::V4, ROCE_PORT)?;
        let v6 = match UdpTunnel::open::<Receiver>(namespace, Family::V6, ROCE_PORT) {
            Ok(v6) => Some(v6),
            Err(e) if e == EAFNOSUPPORT => None,
            Err(e) => return Err(e),
        };

        Ok(Self {
            net: namespace.id(),
            _v4: v4,
            _v6: v6,
        })
    }
}

/// Initialises the lists. Called once, when the module is loaded.
pub(crate) fn init() -> Result {
    DEMAND.init(new_mutex!(KVec::new(), "ferroce::sockets::DEMAND"))?;
    OPEN.init(new_mutex!(KVec::new(), "ferroce::sockets::OPEN"))?;
    WORK.init(Work::new(Settle))
}

/// A reference to the sockets of the namespace of a device. The sockets are closed, which sleeps,
/// once neither a device nor an address uses them.
pub(crate) struct SocketRef {
    net: NetId,
}

impl SocketRef {
    /// Opens the sockets of the namespace of `dev`, unless they are open already. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if another socket has the port; `ENODEV` if the namespace is being dismantled;
    /// otherwise as [`UdpTunnel::open`].
    pub(crate) fn acquire(dev: &NetDevice) -> Result<Self> {
        let namespace = Namespace::of(dev).ok_or(ENODEV)?;
        let mut open = OPEN.get().ok_or(ENODEV)?.lock();

        if !open.iter().any(|sockets| sockets.net == namespace.id()) {
            list::push(&mut open, Sockets::open(&namespace)?, GFP_KERNEL)?;
        }
        if let Err(e) = count(&namespace, false) {
            close_unused(&mut open);
            return Err(e);
        }
        Ok(Self {
            net: namespace.id(),
        })
    }
}

impl Drop for SocketRef {
    fn drop(&mut self) {
        uncount(self.net);
        settle();
    }
}

/// Counts an address in a namespace, and queues the work item, which opens the sockets of the
/// namespace if necessary.
///
/// May sleep, but takes no lock for long: callable under RTNL and the mutex of the GID table.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn address_added(namespace: &Namespace) -> Result {
    count(namespace, true)?;
    defer();
    Ok(())
}

/// Undoes one call of [`address_added`].
pub(crate) fn address_removed(net: NetId) {
    uncount(net);
    defer();
}

/// Queues the work item, which runs `settle`.
fn defer() {
    if let Some(work) = WORK.get() {
        work::queue_setup(work);
    }
}

/// Counts a user of a namespace. If `open`, also passes the namespace to the work item, which opens
/// its sockets.
fn count(namespace: &Namespace, open: bool) -> Result {
    let mut demand = DEMAND.get().ok_or(ENODEV)?.lock();
    let net = namespace.id();
    let wanted = open.then(|| namespace.clone());

    if let Some(entry) = demand.iter_mut().find(|entry| entry.net == net) {
        entry.users = entry.users.checked_add(1).ok_or(EOVERFLOW)?;
        if wanted.is_some() {
            entry.namespace = wanted;
        }
        return Ok(());
    }
    let entry = Demand {
        net,
        users: 1,
        namespace: wanted,
    };
    list::push(&mut demand, entry, GFP_KERNEL)
}

/// Removes a user of a namespace.
fn uncount(net: NetId) {
    let Some(demand) = DEMAND.get() else {
        return;
    };
    let mut demand = demand.lock();

    if let Some(entry) = demand.iter_mut().find(|entry| entry.net == net) {
        entry.users = entry.users.saturating_sub(1);
    }
    list::retain(&mut demand, |entry| entry.users != 0);
}

/// The work item.
struct Settle;

impl WorkItem for Settle {
    fn run(&self) {
        settle();
    }
}

/// Opens missing sockets and closes unused ones. Sleeps.
fn settle() {
    let Some(open) = OPEN.get() else {
        return;
    };
    let mut open = open.lock();

    while let Some(namespace) = next_to_open() {
        if open.iter().any(|sockets| sockets.net == namespace.id()) {
            continue;
        }
        // Another socket may have the port. This is up to the owner of the namespace, so it is not
        // an error. The next address in the namespace tries again.
        let opened =
            Sockets::open(&namespace).and_then(|new| list::push(&mut open, new, GFP_KERNEL));
        if let Err(e) = opened {
            pr_warn_once!("no socket in a namespace: {e:?}. Is UDP port 4791 in use there?\n");
        }
    }
    close_unused(&mut open);
}

/// Takes a namespace whose sockets may be missing.
fn next_to_open() -> Option<Namespace> {
    let mut demand = DEMAND.get()?.lock();

    demand.iter_mut().find_map(|entry| entry.namespace.take())
}

/// Closes unused sockets.
fn close_unused(open: &mut KVec<Sockets>) {
    list::retain(open, |sockets| {
        DEMAND.get().is_some_and(|demand| {
            let demand = demand.lock();
            demand.iter().any(|entry| entry.net == sockets.net)
        })
    });
}
