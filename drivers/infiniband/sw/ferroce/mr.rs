// SPDX-License-Identifier: GPL-2.0

//! Memory regions and the checks of their keys.

mod fetch;
mod prefetch;
mod region;
mod target;

pub(crate) use self::{
    fetch::Missing,
    prefetch::prefetch,
    region::{
        Region,
        MAX_LEN, //
    },
    target::Target, //
};

use crate::globals;
use rdma::ib::{
    object::PdId,
    umem::Memory,
    Access, //
};
use roce::wr::MemError;

/// A memory region as the data path finds it.
pub(crate) struct Mr {
    /// Both keys: the number in the table of regions, and eight bits that change.
    key: u32,
    pd: PdId,
    access: Access,
    /// The address that requests use for the first byte.
    iova: u64,
    /// Bytes.
    len: u64,
    memory: Memory,
}

/// The low bits of a key, which are not part of the number.
const KEY_BITS: u32 = 8;

/// Returns a key of a number.
///
/// Numbers are used again after a million registrations; the low bits make an old key of such a
/// number wrong all the same, most of the time.
fn key(number: u32) -> u32 {
    (number << KEY_BITS) | u32::from(rdma::random::byte())
}

/// Finds the region of a key of this protection domain, with at least these rights.
///
/// # Errors
///
/// [`MemError::Protection`] if the key is not one of this protection domain with these rights.
#[inline]
pub(crate) fn find(key: u32, pd: PdId, access: Access) -> Result<Target, MemError> {
    let mrs = globals::mrs().map_err(|_| MemError::Protection)?;
    let mr = mrs.get(key >> KEY_BITS).ok_or(MemError::Protection)?;
    if mr.key != key || mr.pd != pd || !mr.access.contains(access) {
        return Err(MemError::Protection);
    }
    Ok(Target::region(mr))
}

/// Makes a key of this protection domain useless for everybody (LOCAL_INV), `qpn` being the queue
/// pair that the request was posted to.
///
/// # Errors
///
/// [`MemError::Protection`] if the key is not one that may be invalidated so. None is yet: not that
/// of a region which was registered by a verb, which C rxe refuses as well.
pub(crate) fn invalidate_local(_key: u32, _pd: PdId, _qpn: u32) -> Result<(), MemError> {
    Err(MemError::Protection)
}

/// Makes a key useless because the peer of queue pair `qpn` asks for it (SEND with invalidate).
///
/// # Errors
///
/// As [`invalidate_local`]; besides, the peer must have been allowed to use the key.
pub(crate) fn invalidate_remote(_rkey: u32, _pd: PdId, _qpn: u32) -> Result<(), MemError> {
    Err(MemError::Protection)
}
