// SPDX-License-Identifier: GPL-2.0

//! Memory regions and the checks of their keys.

mod target;

pub(crate) use target::Target;

use crate::{
    device::Ferroce,
    globals, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        mr::{
            Keys,
            UserRange, //
        },
        object::{
            Pd,
            PdId, //
        },
        umem::{
            DmaMemory,
            Memory,
            Umem, //
        },
        Access, //
    },
    sync::{
        Number,
        Owned, //
    }, //
};
use roce::wr::MemError;

/// Rights that a region of user memory may have.
const SUPPORTED: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::OPTIONAL);

/// A memory region.
pub(crate) struct Mr {
    number: Number<Mr>,
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

impl Mr {
    /// Pins a part of the calling process' memory.
    pub(crate) fn user(pd: &Pd<Ferroce>, range: UserRange, access: Access) -> Result<Self> {
        if !access.is_within(SUPPORTED) {
            return Err(EOPNOTSUPP);
        }
        range.iova.checked_add(range.len).ok_or(EINVAL)?;
        let umem = Umem::new(pd.device(), range.start, range.len, access)?;
        let number = globals::mrs()?.reserve()?;
        Ok(Self {
            key: key(&number),
            number,
            pd: pd.id(),
            access,
            iova: range.iova,
            len: range.len,
            memory: Memory::User(umem),
        })
    }

    /// Gives access to all of the kernel's memory.
    pub(crate) fn dma(pd: &Pd<Ferroce>, memory: DmaMemory, access: Access) -> Result<Self> {
        let number = globals::mrs()?.reserve()?;
        Ok(Self {
            key: key(&number),
            number,
            pd: pd.id(),
            access,
            iova: 0,
            len: u64::MAX,
            memory: Memory::Dma(memory),
        })
    }

    /// Makes the region visible.
    pub(crate) fn publish(this: &Owned<Self>) -> Keys {
        this.number.publish(this);
        Keys {
            lkey: this.key,
            rkey: this.key,
        }
    }

    /// Takes the region away from the data path.
    pub(crate) fn hide(&self) {
        self.number.hide();
    }
}

/// The low bits of a key, which are not part of the number.
const KEY_BITS: u32 = 8;

/// Returns the key of a number.
fn key(number: &Number<Mr>) -> u32 {
    // Numbers are used again after a million registrations; these bits make an old key of such a
    // number wrong all the same, most of the time.
    (number.get() << KEY_BITS) | u32::from(rdma::random::byte())
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
