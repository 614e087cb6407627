// SPDX-License-Identifier: GPL-2.0

//! The addresses that devices have, as the core tells of them.
//!
//! For datagrams: a packet for queue pair 1 names no device, and one for any other datagram queue
//! pair is accepted only at an address of the device of that queue pair.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::{
    list,
    net::namespace::NetId,
    new_spinlock_bh,
    sync::{
        Global,
        SpinLockBh, //
    }, //
};

static GIDS: Global<Gids> = Global::new();

/// All addresses of all devices.
///
/// Written under the mutex of a GID table; read by softirqs.
#[pin_data]
struct Gids {
    #[pin]
    entries: SpinLockBh<KVec<Entry>>,
    /// The management queue pairs: device and number.
    #[pin]
    managers: SpinLockBh<KVec<(u32, u32)>>,
}

/// An address of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    device: u32,
    index: u32,
    net: NetId,
    gid: [u8; 16],
}

/// Constructs the table. Once, before any device exists.
pub(crate) fn init() -> Result {
    GIDS.init::<core::convert::Infallible>(pin_init!(Gids {
        entries <- new_spinlock_bh!(KVec::new(), "ferroce::Gids::entries"),
        managers <- new_spinlock_bh!(KVec::new(), "ferroce::Gids::managers"),
    }))
}

/// Adds an address. Callable under locks.
pub(crate) fn add(device: u32, index: u32, net: NetId, gid: [u8; 16]) -> Result {
    let gids = GIDS.get().ok_or(ENODEV)?;
    let entry = Entry {
        device,
        index,
        net,
        gid,
    };
    list::push(&mut gids.entries.lock(), entry, GFP_ATOMIC)
}

/// Changes whenever an address goes.
static GENERATION: Atomic<u32> = Atomic::new(1);

/// Returns a number that changes whenever an address goes: whoever has looked something up for an
/// address looks again then.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Removes an address.
pub(crate) fn remove(device: u32, index: u32) {
    GENERATION.add(1, Relaxed);
    if let Some(gids) = GIDS.get() {
        list::retain(&mut gids.entries.lock(), |e| {
            e.device != device || e.index != index
        });
    }
}

/// Removes everything of a device.
pub(crate) fn forget(device: u32) {
    if let Some(gids) = GIDS.get() {
        list::retain(&mut gids.entries.lock(), |e| e.device != device);
    }
}

/// Returns whether a device has an address.
pub(crate) fn contains(device: u32, net: NetId, gid: &[u8; 16]) -> bool {
    GIDS.get().is_some_and(|gids| {
        gids.entries
            .lock()
            .iter()
            .any(|e| e.device == device && e.net == net && e.gid == *gid)
    })
}

/// Says which queue pair is the management one of a device, for as long as this lives.
pub(crate) struct Manager {
    device: u32,
    qp: u32,
}

impl Manager {
    /// # Errors
    ///
    /// `EBUSY` if the device has one.
    pub(crate) fn new(device: u32, qp: u32) -> Result<Self> {
        let gids = GIDS.get().ok_or(ENODEV)?;
        let mut managers = gids.managers.lock();
        if managers.iter().any(|(d, _)| *d == device) {
            return Err(EBUSY);
        }
        list::push(&mut managers, (device, qp), GFP_ATOMIC)?;
        Ok(Self { device, qp })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(gids) = GIDS.get() {
            list::retain(&mut gids.managers.lock(), |m| *m != (self.device, self.qp));
        }
    }
}

/// Finds the management queue pair of the device with an address.
pub(crate) fn manager(net: NetId, gid: &[u8; 16]) -> Option<u32> {
    let gids = GIDS.get()?;
    let entries = gids.entries.lock();
    let managers = gids.managers.lock();
    // An address of an upper device is one of each device below it; only some have a manager.
    entries
        .iter()
        .filter(|e| e.net == net && e.gid == *gid)
        .find_map(|e| managers.iter().find(|(d, _)| *d == e.device))
        .map(|(_, qp)| *qp)
}
