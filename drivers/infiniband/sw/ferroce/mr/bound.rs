// SPDX-License-Identifier: GPL-2.0

//! Ranges of regions that memory windows are bound to.

use super::{
    window::WindowRef,
    Mr,
    Target, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};
use rdma::{
    ib::{
        object::PdId,
        Access, //
    },
    sync::Ref, //
};
use roce::wr::{
    LocalArgs,
    MemError, //
};

/// Rights by which a peer changes memory.
const REMOTE_CHANGE: Access = Access::REMOTE_WRITE.or(Access::REMOTE_ATOMIC);

/// The number of windows bound to a region.
pub(super) struct BoundWindows(Atomic<u32>);

impl BoundWindows {
    /// The flag that no further window may be bound. There are far fewer windows than this.
    const SHUT: u32 = 1 << 31;

    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns the number of bound windows.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Relaxed) & !Self::SHUT
    }

    /// Counts another window.
    fn add(&self) -> Result<(), MemError> {
        let mut current = self.0.load(Relaxed);
        loop {
            if current >= Self::SHUT {
                return Err(MemError::Protection);
            }
            match self.0.cmpxchg(current, current.wrapping_add(1), Full) {
                Ok(_) => return Ok(()),
                Err(other) => current = other,
            }
        }
    }

    /// Counts one window less.
    fn sub(&self) {
        let _ = self.0.fetch_sub(1, Full);
    }

    /// Refuses further bindings.
    ///
    /// # Errors
    ///
    /// `EBUSY` if windows are bound (C10-77 and C11-14).
    pub(super) fn close(&self) -> Result {
        match self.0.cmpxchg(0, Self::SHUT, Full) {
            Ok(_) => Ok(()),
            Err(_) => Err(EBUSY),
        }
    }
}

/// The range of a region that a window is bound to, without its length.
#[derive(Clone, Copy)]
pub(crate) struct BoundRange {
    /// The number of the region. Another region may have it if the core has aborted the
    /// registration of this one.
    mr: u32,
    /// The [`Mr::id`] of the region.
    id: u64,
    /// Offset in the memory of the region.
    offset: u64,
}

impl BoundRange {
    /// Binds a window to a range of a region.
    ///
    /// # Errors
    ///
    /// [`MemError::Protection`] if the region does not allow it.
    pub(crate) fn bind(args: &LocalArgs, pd: PdId) -> Result<Self, MemError> {
        let target = super::find(args.mr_lkey, pd, Access::MW_BIND)?; // C10-73
        let mr = target.mr();
        // As in C rxe.
        if mr.access.contains(Access::ZERO_BASED) {
            return Err(MemError::Protection);
        }
        // C10-74
        let access = Access::from_raw(args.access);
        if access.intersects(REMOTE_CHANGE) && !mr.access.contains(Access::LOCAL_WRITE) {
            return Err(MemError::Protection);
        }
        let offset = target.offset(args.addr, args.length)?; // C10-75
        mr.bound_windows.add()?;
        Ok(Self {
            mr: super::number(args.mr_lkey),
            id: mr.id,
            offset,
        })
    }

    /// Releases the range.
    pub(crate) fn give_back(self) {
        if let Some(mr) = self.region() {
            mr.bound_windows.sub();
        }
    }

    /// Returns the region, unless its registration was aborted.
    #[inline]
    fn region(self) -> Option<Ref<Mr>> {
        super::get(self.mr).filter(|mr| mr.id == self.id)
    }

    /// Returns the range as a target.
    ///
    /// # Errors
    ///
    /// [`MemError::Protection`] if the registration of the region was aborted.
    #[inline]
    pub(crate) fn target(self, window: WindowRef, va: u64, len: u64) -> Result<Target, MemError> {
        let mr = self.region().ok_or(MemError::Protection)?;
        Ok(Target::window(mr, window, va, len, self.offset))
    }
}
