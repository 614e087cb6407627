// SPDX-License-Identifier: GPL-2.0

//! Fast registration: `ib_map_mr_sg()` stages pages, REG_MR activates them.
//!
//! `ib_map_mr_sg()` fills one list of pages, while requests may still use the other. The request
//! that registers the region (REG_MR) exchanges the lists. The key is valid until it is
//! invalidated.

use super::{
    Mr,
    Target, //
};
use core::ops::Deref;
use kernel::prelude::*;
use rdma::{
    ib::{
        mr::SgList,
        resource::ResourceEntry,
        umem::{
            Mapped,
            Memory, //
        },
        Access, //
    },
    new_spinlock_bh,
    new_spinlock_irqsave,
    sync::{
        Ref,
        SpinLockBh,
        SpinLockIrqSave, //
    }, //
};
use roce::{
    requester::Local,
    wr::MemError, //
};

/// Rights that such a region may have.
const SUPPORTED: Access = Access::LOCAL_WRITE
    .or(Access::REMOTE_WRITE)
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::OPTIONAL);

/// Rights of a peer.
const REMOTE: Access = Access::REMOTE_WRITE
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC);

/// The additional state of such a region.
#[pin_data]
pub(super) struct Fast {
    #[pin]
    active: SpinLockBh<Active>,
    /// The pages that were mapped, but not registered yet.
    #[pin]
    staged: SpinLockIrqSave<Staged>,
}

/// The pages for the next registration.
struct Staged {
    mapped: Mapped,
    /// True if the consumer has mapped memory, or has failed to, since the last registration. If
    /// so, the next registration must not use the pages of the previous one.
    is_new: bool,
}

/// The pages that requests access.
pub(super) struct Active {
    /// Both keys, while they are valid.
    key: Option<u32>,
    access: Access,
    /// The address that requests use for the first byte.
    iova: u64,
    /// Changes with each registration.
    epoch: u64,
    pub(super) memory: Memory,
}

impl Fast {
    /// Allocates two lists of up to `max_pages` pages.
    pub(super) fn new(max_pages: usize) -> Result<Pin<KBox<Self>>> {
        let active = Active {
            key: None,
            access: Access::NONE,
            iova: 0,
            epoch: 0,
            memory: Memory::Mapped(Mapped::new(max_pages)?),
        };
        let staged = Staged {
            mapped: Mapped::new(max_pages)?,
            is_new: false,
        };
        KBox::try_pin_init(
            try_pin_init!(Self {
                active <- new_spinlock_bh!(active, "ferroce::Fast::active"),
                staged <- new_spinlock_irqsave!(staged, "ferroce::Fast::staged"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Maps memory for the next registration.
    ///
    /// The list of pages is filled without the lock, because it may be long, and interrupts are off
    /// under the lock. A registration meanwhile, which is an error of the consumer, finds no page.
    pub(super) fn map(&self, list: SgList<'_>) -> Result<i32> {
        let none = Mapped::new(0)?;
        let mut staged = self.staged.lock();
        staged.is_new = true;
        let mut mapped = core::mem::replace(&mut staged.mapped, none);
        drop(staged);
        let result = list.map_to(&mut mapped);
        let mut staged = self.staged.lock();
        let none = core::mem::replace(&mut staged.mapped, mapped);
        drop(staged);
        drop(none);
        result
    }

    /// Adds the state of the registration.
    pub(super) fn fill_res(&self, out: &mut ResourceEntry<'_>) {
        let active = self.active.lock();
        let (valid, access, count) = (active.key.is_some(), active.access, active.epoch);
        drop(active);
        out.number(c"valid", valid.into())
            .hex(c"access", access.raw())
            .large(c"registrations", count);
    }

    /// Makes the mapped memory available under a key.
    ///
    /// If nothing new was mapped, this is the memory of the last registration.
    pub(super) fn register(&self, local: &Local) -> Result<(), MemError> {
        let access = Access::from_raw(local.args.access);
        let iova = local.args.addr;
        let mut active = self.active.lock();
        let active = &mut *active;
        if active.key.is_some() || !access.is_within(SUPPORTED) {
            return Err(MemError::Protection);
        }
        let Memory::Mapped(mapped) = &mut active.memory else {
            return Err(MemError::Protection);
        };
        let mut staged = self.staged.lock();
        let staged = &mut *staged;
        let next = if staged.is_new {
            &staged.mapped
        } else {
            &*mapped
        };
        // The region must not extend beyond the address space, either.
        let end = iova.checked_add(next.len());
        if next.is_empty() || !next.fits(iova) || end.is_none() {
            return Err(MemError::Protection);
        }
        if staged.is_new {
            core::mem::swap(mapped, &mut staged.mapped);
            staged.mapped.forget();
            staged.is_new = false;
        }
        active.key = Some(local.key.get());
        active.access = access;
        active.iova = iova;
        active.epoch = active.epoch.wrapping_add(1);
        Ok(())
    }

    /// Ends a registration. When this returns, no access through the key is in progress: an access
    /// holds the lock.
    ///
    /// Without a registration it succeeds: a consumer and its peer may both invalidate the key.
    pub(super) fn invalidate(&self, key: u32, by_peer: bool) -> Result<(), MemError> {
        let mut active = self.active.lock();
        let Some(present) = active.key else {
            return Ok(());
        };
        if present != key || (by_peer && !active.access.intersects(REMOTE)) {
            return Err(MemError::Protection);
        }
        active.key = None;
        Ok(())
    }

    /// Keeps a registration from ending.
    ///
    /// # Errors
    ///
    /// [`MemError::Protection`] if it has ended.
    pub(super) fn lock(&self, epoch: u64) -> Result<impl Deref<Target = Active> + '_, MemError> {
        let active = self.active.lock();
        if active.key.is_none() || active.epoch != epoch {
            return Err(MemError::Protection);
        }
        Ok(active)
    }
}

/// Finds the registration of a key, with at least these rights. The caller has checked the
/// protection domain of the region.
///
/// # Errors
///
/// [`MemError::Protection`].
#[cold]
pub(super) fn find(mr: Ref<Mr>, key: u32, access: Access) -> Result<Target, MemError> {
    let fast = mr.fast.as_ref().ok_or(MemError::Protection)?;
    let (iova, len, epoch) = {
        let active = fast.active.lock();
        let Memory::Mapped(mapped) = &active.memory else {
            return Err(MemError::Protection);
        };
        if active.key != Some(key) || !active.access.contains(access) {
            return Err(MemError::Protection);
        }
        (active.iova, mapped.len(), active.epoch)
    };
    Ok(Target::fast(mr, epoch, iova, len))
}
