// SPDX-License-Identifier: GPL-2.0

//! Memory regions, as objects of the RDMA core.

use super::{
    BoundWindows,
    Fast,
    Mr, //
};
use crate::{
    device::Ferroce,
    pool::{
        self,
        Charge, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::{
    ib::{
        mr::{
            Change,
            SgList,
            UserRange, //
        },
        object::Pd,
        umem::{
            DmaMemory,
            Mapped,
            Memory,
            Paged,
            Umem, //
        },
        Access,
        Device, //
    },
    sync::{
        Number,
        Owned, //
    }, //
};

/// The maximum length of a region of pinned memory, in bytes. The list of its pages is one
/// allocation, which must be smaller than 2 GiB. The length is one page less than this allows,
/// because a region may begin in the middle of a page.
pub(crate) const MAX_LEN: u64 = (1 << 40) - (2 << 12);

/// Rights that a region of user memory may have.
const SUPPORTED: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::FLUSH_GLOBAL)
    .or(Access::MW_BIND)
    .or(Access::ZERO_BASED)
    .or(Access::ON_DEMAND)
    .or(Access::OPTIONAL);

/// Rights that require pages to be pinned for writing, as in `ib_access_writable()`.
const WRITES: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::MW_BIND);

/// The maximum number of pages of a region that the device advertises.
pub(crate) const MAX_FAST_PAGES: u32 = 512;

/// The maximum number of pages of a region: 512 MiB, the largest buffer of SMC-R, which does not
/// look at the number that is advertised.
const MOST_FAST_PAGES: u32 = 1 << 17;

/// The driver's part of a memory region.
///
/// Dropping it hides the region from the data path, and waits for the packets that use it.
pub(crate) struct Region {
    mr: Owned<Mr>,
    number: Number<Mr>,
    _charge: Option<Charge>,
}

impl Region {
    /// Pins a part of the calling process' memory, or makes it available on demand.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a right that is not supported, or memory on demand in the protection domain
    /// of a kernel consumer; `EINVAL` if the range wraps around or is too long, or the error of
    /// pinning.
    pub(crate) fn user(pd: &Pd<Ferroce>, range: UserRange, access: Access) -> Result<Self> {
        check(access)?;
        if access.contains(Access::ON_DEMAND) && pd.owner.is_none() {
            // RDS registers memory of processes in a domain of its own, where fetches are neither
            // counted nor limited.
            return Err(EOPNOTSUPP);
        }
        let iova = first_address(range, access)?;
        // Charge before memory is pinned.
        let charge = Charge::new(&pool::MRS, pd.owner.as_ref())?;
        let memory = memory(pd.device(), range, access)?;
        Self::publish(pd, access, iova, range.len, memory, None, charge)
    }

    /// Grants access to all of the kernel's memory.
    pub(crate) fn dma(pd: &Pd<Ferroce>, memory: DmaMemory, access: Access) -> Result<Self> {
        Self::publish(pd, access, 0, u64::MAX, Memory::Dma(memory), None, None)
    }

    /// Creates a region to which up to `max_pages` pages can be mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no page, or more than [`MOST_FAST_PAGES`]; `ENOMEM`.
    pub(crate) fn fast(pd: &Pd<Ferroce>, max_pages: u32) -> Result<Self> {
        if max_pages == 0 || max_pages > MOST_FAST_PAGES {
            return Err(EINVAL);
        }
        // CAST: Widening.
        let fast = Fast::new(max_pages as usize)?;
        // No request can access this memory: no key of a request equals that of the region.
        let memory = Memory::Mapped(Mapped::new(0)?);
        Self::publish(pd, Access::NONE, 0, 0, memory, Some(fast), None)
    }

    /// Maps memory to a region of [`fast`](Self::fast).
    ///
    /// # Errors
    ///
    /// `EINVAL` for a region of another kind, or the error of mapping the list.
    pub(crate) fn map(&self, list: SgList<'_>) -> Result<i32> {
        self.mr.fast.as_ref().ok_or(EINVAL)?.map(list)
    }

    /// Makes memory visible under a new key.
    fn publish(
        pd: &Pd<Ferroce>,
        access: Access,
        iova: u64,
        len: u64,
        memory: Memory,
        fast: Option<Pin<KBox<Fast>>>,
        charge: Option<Charge>,
    ) -> Result<Self> {
        static NEXT_ID: Atomic<u64> = Atomic::new(0);

        let number = super::TABLE.get().ok_or(ENODEV)?.reserve()?;
        let key = match fast {
            // Numbers begin at one, so no key is zero.
            Some(_) => 0,
            None => super::key(number.get(), rdma::random::byte()),
        };
        let mr = Owned::new(Ok(Mr {
            id: NEXT_ID.fetch_add(1, Relaxed),
            key,
            pd: pd.id(),
            bound_windows: BoundWindows::new(),
            access,
            iova,
            len,
            memory,
            owner: pd.owner.clone(),
            fast,
        }))?;
        number.publish(&mr);
        Ok(Self {
            mr,
            number,
            _charge: charge,
        })
    }

    /// Returns the key of a new region.
    pub(crate) fn key(&self) -> u32 {
        match self.mr.fast {
            // The first key has a random low byte, from which most consumers count up.
            Some(_) => super::key(self.number.get(), rdma::random::byte()),
            None => self.mr.key,
        }
    }

    /// Changes memory, protection domain or rights. Requests that use the keys meanwhile fail.
    ///
    /// # Errors
    ///
    /// See [`user`](Self::user) and [`close`](Self::close). Without new memory also `EACCES` if the
    /// rights require memory that is pinned for writing and it is not, and `EINVAL` if they would
    /// change the address of the first byte, or change between pinned memory and memory on demand.
    pub(crate) fn change(&mut self, change: Change<'_, Ferroce>) -> Result {
        let access = change.access.unwrap_or(self.mr.access);
        check(access)?;
        let new = match change.range {
            Some(range) => {
                let iova = first_address(range, access)?;
                let memory = memory(change.device, range, access)?;
                Some((iova, range.len, memory))
            }
            None => {
                if access.intersects(WRITES) && !self.mr.memory.is_writable() {
                    return Err(EACCES);
                }
                for fixed in [Access::ZERO_BASED, Access::ON_DEMAND] {
                    if access.contains(fixed) != self.mr.access.contains(fixed) {
                        return Err(EINVAL);
                    }
                }
                None
            }
        };
        self.mr.bound_windows.close()?;
        self.number.hide();
        let old = self.mr.exclusive(|mr| {
            mr.bound_windows = BoundWindows::new();
            mr.access = access;
            mr.pd = change.pd.map_or(mr.pd, Pd::id);
            let (iova, len, memory) = new?;
            mr.iova = iova;
            mr.len = len;
            Some(core::mem::replace(&mut mr.memory, memory))
        });
        self.number.publish(&self.mr);
        drop(old);
        Ok(())
    }

    /// Prepares the deregistration: no window can be bound any more.
    ///
    /// # Errors
    ///
    /// `EBUSY` if windows are bound.
    pub(crate) fn close(&self) -> Result {
        self.mr.bound_windows.close()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.number.hide();
    }
}

/// Checks that rights are supported.
fn check(access: Access) -> Result {
    // Memory on demand is looked up page by page, so the size of its pages has no effect.
    let hints = if access.contains(Access::ON_DEMAND) {
        Access::HUGETLB
    } else {
        Access::NONE
    };
    if access.is_within(SUPPORTED.or(hints)) {
        Ok(())
    } else {
        Err(EOPNOTSUPP)
    }
}

/// Pins a part of the calling process' memory, or prepares to fetch it on demand.
fn memory(dev: &Device<Ferroce>, range: UserRange, access: Access) -> Result<Memory> {
    if access.contains(Access::ON_DEMAND) {
        let paged = Paged::new(range.start, range.len, access.intersects(WRITES))?;
        return Ok(Memory::Paged(paged));
    }
    if range.len > MAX_LEN {
        return Err(EINVAL);
    }
    let umem = Umem::new(dev, range.start, range.len, access)?;
    Ok(Memory::User(umem))
}

/// Returns the address that requests use for the first byte.
fn first_address(range: UserRange, access: Access) -> Result<u64> {
    if access.contains(Access::ZERO_BASED) {
        return Ok(0);
    }
    range.iova.checked_add(range.len).ok_or(EINVAL)?;
    Ok(range.iova)
}
