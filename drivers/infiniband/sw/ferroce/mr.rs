// SPDX-License-Identifier: GPL-2.0

//! Memory regions and the checks of their keys.

mod bound;
mod by_qp;
mod cache;
mod fast;
mod fetch;
mod prefetch;
mod region;
mod target;
pub(crate) mod window;

pub(crate) use self::{
    cache::RegionCache,
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
use roce::{
    requester::Local,
    wr::MemError, //
};

/// A memory region as the data path finds it.
pub(crate) struct Mr {
    /// A number that is never used again.
    id: u64,
    /// The L_Key and the R_Key: the number in the table of regions, and a tag of eight bits. 0
    /// (never a valid key) if `fast` is set.
    key: u32,
    pd: PdId,
    bound_windows: BoundWindows,
    access: Access,
    /// The address that requests use for the first byte.
    iova: u64,
    /// Bytes.
    len: u64,
    memory: Memory,
    /// The process that has the memory; `None` for a kernel consumer.
    owner: Option<Arc<Owner>>,
    /// Set if requests determine the memory and the keys.
    fast: Option<Pin<KBox<Fast>>>,
}

/// The bits of the number of a region or a window in a key, which the consumer cannot choose.
const KEY_NUMBER_BITS: u32 = 24;

/// The low bits of a key: the tag, which is not part of the number.
const KEY_BITS: u32 = u32::BITS - KEY_NUMBER_BITS;

/// The first number of a window. Regions have lower numbers, so a key shows whether it is of a
/// region or of a window.
///
/// The numbers are random, and there are at least seven times as many as may be in use. So a key
/// has 23 unpredictable bits; 31 if the tag of a region is random, too, and 30 for a new window.
const FIRST_MW: u32 = 1 << (KEY_NUMBER_BITS - 1);

/// The regions, by number.
static TABLE: Global<Table<Mr>> = Global::new();

/// Constructs the tables of regions and windows. Called once, before any device exists.
pub(crate) fn init() -> Result {
    TABLE.init(Table::new_random(
        1..=FIRST_MW - 1,
        MAX_OBJECTS + KERNEL_OBJECTS,
    ))?;
    window::init()
}

/// Returns the region that has a number.
#[inline]
fn get(number: u32) -> Option<Ref<Mr>> {
    TABLE.get()?.get(number)
}

/// Returns the key with a number and a tag.
///
/// The number is random. The tag is random, too, unless the consumer chooses it. So the probability
/// that a guessed key is valid is one in 2000 if there are a million regions, and one in 200
/// million if there are ten.
fn key(number: u32, tag: u8) -> u32 {
    (number << KEY_BITS) | u32::from(tag)
}

/// Returns the number in a key.
#[inline]
fn number(key: u32) -> u32 {
    key >> KEY_BITS
}

/// Returns whether two keys name the same region or window: they differ at most in the tag.
pub(crate) fn is_same_region(key: u32, other: u32) -> bool {
    number(key) == number(other)
}

/// Finds the region that a key names, and checks its protection domain and rights.
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

/// Adds the kind of memory of the region with a local key, and the access that it allows.
pub(crate) fn fill_res(lkey: u32, out: &mut ResourceEntry<'_>) {
    // A region that `rereg_user_mr` changes at this moment is not found.
    let Some(mr) = get(number(lkey)) else {
        return;
    };
    let memory = match (&mr.fast, &mr.memory) {
        (Some(_), _) | (None, Memory::Mapped(_)) => c"by-request",
        (None, Memory::User(_)) => c"pinned",
        (None, Memory::Paged(_)) => c"on-demand",
        (None, Memory::Dma(_)) => c"kernel",
    };
    out.string(c"memory", memory);
    match &mr.fast {
        Some(fast) => fast.fill_res(out),
        None => {
            out.hex(c"access", mr.access.raw())
                .number(c"windows", mr.bound_windows.count());
        }
    }
}

/// Finds the memory that an R_Key of the peer of queue pair `qpn` names, and checks its rights.
///
/// # Errors
///
/// See [`find`].
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

/// Invalidates a key of this protection domain, for a request of queue pair `qpn` (LOCAL_INV), or
/// of its peer if `by_peer` (SEND with invalidate).
///
/// # Errors
///
/// [`MemError::Protection`] if a request may not invalidate the key, such as that of a region that
/// a verb registered, or if the peer may not use it.
pub(crate) fn invalidate(key: u32, pd: PdId, qpn: u32, by_peer: bool) -> Result<(), MemError> {
    if window::is_window(key) {
        return window::invalidate(key, pd, qpn);
    }
    with_fast(key, pd, |fast| fast.invalidate(key, by_peer))
}

/// Makes the memory that was mapped to a region available under a key (REG_MR).
///
/// # Errors
///
/// [`MemError::Protection`]; the region is unchanged then.
pub(crate) fn register(local: &Local, pd: PdId) -> Result<(), MemError> {
    with_fast(local.key.get(), pd, |fast| fast.register(local))
}

/// Calls `f` with the region of a key, if it is one that requests may register.
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
