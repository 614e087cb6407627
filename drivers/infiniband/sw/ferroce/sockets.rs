// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets that packets come in through.
//!
//! One for each IP version and each network namespace that has a device, shared by the devices
//! there and closed after the last. A namespace that ends takes its sockets with it, whoever still
//! counts on them.
//!
//! Locking: the lock of the list of namespaces (`pernet_ops_rwsem`), then RTNL, then the lock of
//! the core's GID table, then the mutex of this registry, then the lock of a socket. The mutex is
//! held while a socket is opened or closed, so that both sleep, and that who opens after the last
//! one closed finds the port free. Nothing is called back under it.

use crate::{
    qp::path::ROCE_PORT,
    receive::Receiver, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use rdma::{
    list,
    net::{
        Family,
        NetDevice,
        NetId,
        PernetHandler,
        UdpTunnel, //
    },
    sync::Global, //
};

static REGISTRY: Global<Mutex<KVec<Entry>>> = Global::new();

/// The sockets of one namespace.
struct Entry {
    net: NetId,
    users: usize,
    _v4: UdpTunnel<Receiver>,
    // A kernel may have no IPv6.
    _v6: Option<UdpTunnel<Receiver>>,
}

impl Entry {
    fn open(dev: &NetDevice) -> Result<Self> {
        let (v4, net) = UdpTunnel::open(dev, Family::V4, ROCE_PORT)?;
        let v6 = match UdpTunnel::open(dev, Family::V6, ROCE_PORT) {
            Ok((v6, net6)) if net6 == net => Some(v6),
            // The device has moved to another namespace meanwhile.
            Ok(_) => return Err(ENODEV),
            Err(e) if e == EAFNOSUPPORT => None,
            Err(e) => return Err(e),
        };

        Ok(Self {
            net,
            users: 0,
            _v4: v4,
            _v6: v6,
        })
    }
}

/// A share in the sockets of a namespace. Dropping the last one closes them, which sleeps.
pub(crate) struct SocketRef {
    net: NetId,
}

/// Prepares the registry. Called once, when the module is loaded.
pub(crate) fn init() -> Result {
    REGISTRY.init(new_mutex!(KVec::new(), "ferroce::sockets"))
}

impl SocketRef {
    /// Opens the sockets of the namespace of `dev`, or shares them. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if somebody else has the port; otherwise as [`UdpTunnel::open`].
    pub(crate) fn acquire(dev: &NetDevice) -> Result<Self> {
        let mut registry = REGISTRY.get().ok_or(ENODEV)?.lock();
        let net = dev.net_id();

        if let Some(entry) = registry.iter_mut().find(|entry| entry.net == net) {
            entry.users = entry.users.checked_add(1).ok_or(EOVERFLOW)?;
            return Ok(Self { net });
        }

        let mut entry = Entry::open(dev)?;
        // The device may have moved since its namespace was asked for.
        if entry.net != net {
            return Err(ENODEV);
        }
        entry.users = 1;
        list::push(&mut registry, entry, GFP_KERNEL)?;
        Ok(Self { net })
    }
}

impl Drop for SocketRef {
    fn drop(&mut self) {
        let Some(registry) = REGISTRY.get() else {
            return;
        };
        let mut registry = registry.lock();

        // The end of the namespace may have closed them already. Its identity is never used again.
        if let Some(entry) = registry.iter_mut().find(|entry| entry.net == self.net) {
            entry.users = entry.users.saturating_sub(1);
        }
        list::retain(&mut registry, |entry| entry.users != 0);
    }
}

/// Closes the sockets of namespaces that end.
pub(crate) struct Sockets;

impl PernetHandler for Sockets {
    fn exit(net: NetId) {
        if let Some(registry) = REGISTRY.get() {
            list::retain(&mut registry.lock(), |entry| entry.net != net);
        }
    }
}
