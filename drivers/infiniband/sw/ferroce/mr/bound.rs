// SPDX-License-Identifier: GPL-2.0

//! Ranges of regions that memory windows are bound to.

use super::{
    window::WindowRef,
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
use rdma::ib::{
    object::PdId,
    Access, //
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

    /// Refuses further bindings, and returns whether any exist. Called once, when the region is
    /// aborted.
    pub(super) fn shut(&self) -> bool {
        self.0.fetch_add(Self::SHUT, Full) != 0
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
    /// Number of the region.
    mr: u32,
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
            offset,
        })
    }

    /// Releases the range.
    pub(crate) fn give_back(self) {
        // The region exists: it is not destroyed while a window is bound to it.
        if let Some(mr) = super::get(self.mr) {
            mr.bound_windows.sub();
        }
    }

    /// Returns whether this is a range of the region with number `mr`.
    pub(crate) fn is_of(self, mr: u32) -> bool {
        self.mr == mr
    }

    /// Returns the range as a target.
    #[inline]
    pub(crate) fn target(self, window: WindowRef, va: u64, len: u64) -> Result<Target, MemError> {
        let mr = super::get(self.mr).ok_or(MemError::Protection)?;
        Ok(Target::window(mr, window, va, len, self.offset))
    }
}
