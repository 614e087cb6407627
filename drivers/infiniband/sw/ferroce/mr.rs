// SPDX-License-Identifier: GPL-2.0

//! Memory regions and the checks of their keys.

mod bound;
mod cache;
mod fast;
mod fetch;
mod prefetch;
mod region;
mod target;
pub(crate) mod window;

pub(crate) use self::{
    cache::RegionCache,
    fast::Registration,
    fetch::{
        OdpFault,
        Started, //
    },
    prefetch::prefetch,
    region::{
        Region,
        MAX_FAST_PAGES,
        MAX_LEN, //
    },
    target::Target, //
};

use self::{
    bound::BoundWindows,
    fast::Fast, //
};
use crate::{
    owner::Owner,
    pool::{
        KERNEL_OBJECTS,
        MAX_OBJECTS, //
    }, //
};
use core::convert::Infallible;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::{
        object::PdId,
        resource::ResourceEntry,
        umem::Memory,
        Access, //
    },
    sync::{
        Global,
        Ref,
        Table, //
    }, //
};
use roce::wr::MemError;

/// A memory region as the data path finds it.
pub(crate) struct Mr {
    /// Both keys: the number in the table of regions, and eight bits that change. None that exists
    /// if `fast` is set.
    key: u32,
    pd: PdId,
    bound_windows: BoundWindows,
    access: Access,
    /// The address that requests use for the first byte.
    iova: u64,
    /// Bytes.
    len: u64,
    memory: Memory,
    /// The process that has the memory, unless it is a kernel consumer's.
    owner: Option<Arc<Owner>>,
    /// Set if the memory and the keys come from requests.
    fast: Option<Pin<KBox<Fast>>>,
}

/// Bits of the number of a region or a window: those of a key that its consumer does not choose.
const KEY_NUMBER_BITS: u32 = 24;

/// The low bits of a key, which are not part of the number.
const KEY_BITS: u32 = u32::BITS - KEY_NUMBER_BITS;

/// The first number of a window. Regions have those below, so a key shows whether it is of a region
/// or a window.
///
/// The numbers are random, and there are at least eight times as many as may be in use. So a key
/// has as many unpredictable bits as fit: 31 if its low bits are random, too.
const FIRST_MW: u32 = 1 << (KEY_NUMBER_BITS - 1);

/// The regions, by number.
static TABLE: Global<Table<Mr>> = Global::new();

/// Constructs the tables of regions and windows. Once, before any device exists.
pub(crate) fn init() -> Result {
    TABLE.init::<Infallible>(Table::new_random(
        1..=FIRST_MW - 1,
        MAX_OBJECTS + KERNEL_OBJECTS,
        KERNEL_OBJECTS,
    ))?;
    window::init()
}

/// Returns the region that has a number.
#[inline]
fn get(number: u32) -> Option<Ref<Mr>> {
    TABLE.get()?.get(number)
}

/// Returns a key of a number.
///
/// The number is random and the tag is, where the consumer does not choose it. So a guessed key is
/// that of one of a million regions with a probability of one in 2000, and that of one of ten
/// regions with one in 200 million.
fn key(number: u32, tag: u8) -> u32 {
    (number << KEY_BITS) | u32::from(tag)
}

/// Returns the number that a key has.
#[inline]
fn number(key: u32) -> u32 {
    key >> KEY_BITS
}

/// Finds the region that a request of the own side names, with at least these rights.
///
/// # Errors
///
/// [`MemError::Protection`] if the key is not one of this protection domain with these rights.
#[inline]
pub(crate) fn find(key: u32, pd: PdId, access: Access) -> Result<Target, MemError> {
    let mr = get(number(key)).ok_or(MemError::Protection)?;
    if mr.pd != pd {
        return Err(MemError::Protection);
    }
    if mr.key != key {
        return fast::find(mr, key, access);
    }
    if !mr.access.contains(access) {
        return Err(MemError::Protection);
    }
    Ok(Target::region(mr))
}

/// Adds the kind of the region with a local key, and the access that it allows.
pub(crate) fn describe(lkey: u32, out: &mut ResourceEntry<'_>) {
    // Not there while it changes.
    let Some(mr) = get(number(lkey)) else {
        return;
    };
    let memory = match (&mr.fast, &mr.memory) {
        (Some(_), _) | (None, Memory::Mapped(_)) => "by-request",
        (None, Memory::User(_)) => "pinned",
        (None, Memory::Paged(_)) => "on-demand",
        (None, Memory::Dma(_)) => "kernel",
    };
    out.text(c"memory", fmt!("{memory}"));
    match &mr.fast {
        Some(fast) => fast.describe(out),
        None => {
            out.hex(c"access", mr.access.raw())
                .number(c"windows", mr.bound_windows.count());
        }
    }
}

/// Finds the memory that a peer of queue pair `qpn` names, with at least these rights.
///
/// # Errors
///
/// As [`find`].
#[inline]
pub(crate) fn find_remote(
    rkey: u32,
    pd: PdId,
    qpn: u32,
    access: Access,
) -> Result<Target, MemError> {
    if window::is_window(rkey) {
        return window::find(rkey, pd, qpn, access);
    }
    find(rkey, pd, access)
}

/// Invalidates a key of this protection domain (LOCAL_INV); `qpn` is the queue pair of the request.
///
/// # Errors
///
/// [`MemError::Protection`] if the key is not one that may be invalidated so. That of a region
/// which was registered by a verb is not.
pub(crate) fn invalidate_local(key: u32, pd: PdId, qpn: u32) -> Result<(), MemError> {
    if window::is_window(key) {
        return window::invalidate(key, pd, qpn);
    }
    with_fast(key, pd, |fast| fast.invalidate(key, false))
}

/// Invalidates a key on request of the peer of queue pair `qpn` (SEND with invalidate).
///
/// # Errors
///
/// As [`invalidate_local`]; besides, the peer must have been allowed to use the key.
pub(crate) fn invalidate_remote(rkey: u32, pd: PdId, qpn: u32) -> Result<(), MemError> {
    if window::is_window(rkey) {
        return window::invalidate(rkey, pd, qpn);
    }
    with_fast(rkey, pd, |fast| fast.invalidate(rkey, true))
}

/// Makes the memory that was mapped to a region available under a key.
///
/// # Errors
///
/// [`MemError::Protection`]; the region is as it was then.
pub(crate) fn register(registration: &Registration, pd: PdId) -> Result<(), MemError> {
    with_fast(registration.key, pd, |fast| fast.register(registration))
}

/// Does something with the region of a key, if it is one for requests to register.
fn with_fast<R>(
    key: u32,
    pd: PdId,
    f: impl FnOnce(&Fast) -> Result<R, MemError>,
) -> Result<R, MemError> {
    let mr = get(number(key)).ok_or(MemError::Protection)?;
    match &mr.fast {
        Some(fast) if mr.pd == pd => f(fast),
        _ => Err(MemError::Protection),
    }
}
