// SPDX-License-Identifier: GPL-2.0

//! The memory that a key grants access to, for one packet.

use super::{
    fetch::OdpFault,
    window::WindowRef,
    Mr, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::{
        umem::{
            Memory,
            Paged, //
        },
        Access, //
    },
    net::skbuff::SkBuff,
    sync::Ref, //
};
use roce::wr::MemError;

/// The memory that a key names: a whole region, or the part in a window.
///
/// Destroying the region or the window waits for it, so it lives for one packet, or for one run of
/// a half ([`RegionCache`](super::RegionCache)).
pub(crate) struct Target {
    mr: Ref<Mr>,
    key: KeyKind,
    /// The address of the first byte.
    va: u64,
    /// Bytes.
    len: u64,
    /// The offset of the first byte in the memory of the region.
    skip: u64,
}

/// The ways in which a key can become invalid while the region exists.
enum KeyKind {
    /// No.
    Region,
    /// That of a window can.
    Window(WindowRef),
    /// That of a registration by a request can, of which this is the number.
    Fast(u64),
}

impl Target {
    /// The whole region.
    #[inline]
    pub(super) fn region(mr: Ref<Mr>) -> Self {
        Self {
            key: KeyKind::Region,
            va: mr.iova,
            len: mr.len,
            skip: 0,
            mr,
        }
    }

    /// The binding of a window.
    #[inline]
    pub(super) fn window(mr: Ref<Mr>, window: WindowRef, va: u64, len: u64, skip: u64) -> Self {
        Self {
            mr,
            key: KeyKind::Window(window),
            va,
            len,
            skip,
        }
    }

    /// A registration by a request.
    pub(super) fn fast(mr: Ref<Mr>, epoch: u64, va: u64, len: u64) -> Self {
        Self {
            mr,
            key: KeyKind::Fast(epoch),
            va,
            len,
            skip: 0,
        }
    }

    /// Returns the region.
    #[inline]
    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Returns whether the key is that of a region, and so valid as long as this exists.
    #[inline]
    pub(super) fn is_region(&self) -> bool {
        matches!(self.key, KeyKind::Region)
    }

    /// Returns where `len` bytes at `va` are in [`memory`](Self::memory).
    ///
    /// # Errors
    ///
    /// [`MemError::Protection`] if the key does not cover all of them.
    #[inline]
    pub(crate) fn offset(&self, va: u64, len: u64) -> Result<u64, MemError> {
        let offset = va.checked_sub(self.va).ok_or(MemError::Protection)?;
        let end = offset.checked_add(len).ok_or(MemError::Protection)?;
        if end > self.len {
            return Err(MemError::Protection);
        }
        offset.checked_add(self.skip).ok_or(MemError::Protection)
    }

    /// Returns whether it allows all of `access`.
    #[inline]
    pub(super) fn allows(&self, access: Access) -> bool {
        self.mr.access.contains(access)
    }

    /// Returns whether the memory is fetched when it is used.
    pub(super) fn is_on_demand(&self) -> bool {
        self.mr.memory.paged().is_some()
    }

    /// Returns the memory if it is fetched when it is used, to be used when the target is gone.
    /// Dropping it may sleep.
    pub(super) fn on_demand(&self) -> Option<Arc<Paged>> {
        self.mr.memory.paged().cloned()
    }

    /// Returns the fault to resolve before `len` bytes at `at` can be accessed, for writing if
    /// `write`; `None` if they are present.
    ///
    /// It includes up to `ahead` bytes behind them.
    #[cold]
    pub(crate) fn odp_fault(self, at: u64, len: u64, ahead: u64, write: bool) -> Option<OdpFault> {
        let memory = self.mr.memory.paged()?.clone();
        if memory.is_there(at, len, write) {
            return None;
        }
        let rest = self.mr.len.saturating_sub(at.saturating_add(len));
        Some(OdpFault {
            target: self,
            memory,
            at,
            len,
            ahead: ahead.min(rest),
            write,
        })
    }

    /// Returns the memory.
    #[inline]
    pub(crate) fn memory(&self) -> View<'_> {
        View(self)
    }
}

/// The memory of a [`Target`]. Offsets come from [`Target::offset`].
///
/// All of it fails with [`MemError::Absent`] if the memory has to be fetched first, and with
/// [`MemError::Protection`] if the key has become invalid meanwhile. Nothing sleeps.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(&'a Target);

impl View<'_> {
    /// Appends `len` bytes at `at` to a packet, which is unchanged if this fails.
    #[inline]
    pub(crate) fn append_to(self, at: u64, len: usize, skb: &mut SkBuff) -> Result<(), MemError> {
        self.with(|memory| memory.append_to(at, len, skb))
    }

    /// Copies bytes in at `at`.
    #[inline]
    pub(crate) fn write(self, at: u64, bytes: &[u8]) -> Result<(), MemError> {
        self.with(|memory| memory.write(at, bytes))
    }

    /// Does something with the memory while the key cannot become invalid.
    ///
    /// So no access to the memory follows the return of an invalidation.
    #[inline]
    fn with<R>(self, f: impl FnOnce(&Memory) -> Result<R>) -> Result<R, MemError> {
        let mr = &self.0.mr;
        let result = match &self.0.key {
            KeyKind::Region => f(&mr.memory),
            KeyKind::Window(window) => {
                let _valid = window.lock()?;
                f(&mr.memory)
            }
            KeyKind::Fast(epoch) => {
                let fast = mr.fast.as_ref().ok_or(MemError::Protection)?;
                fast.with(*epoch, f)?
            }
        };
        result.map_err(mem_error)
    }

    /// Stores `swap` at `at` if the value there is `compare`; returns the original value. Host byte
    /// order, aligned to eight bytes, in one step.
    pub(crate) fn compare_swap(self, at: u64, compare: u64, swap: u64) -> Result<u64, MemError> {
        self.with(|memory| memory.compare_swap(at, compare, swap))
    }

    /// Adds to the number at `at`; returns the original value. As
    /// [`compare_swap`](Self::compare_swap).
    pub(crate) fn fetch_add(self, at: u64, add: u64) -> Result<u64, MemError> {
        self.with(|memory| memory.fetch_add(at, add))
    }

    /// Stores a number at `at` in one step, after all that was written before. As
    /// [`compare_swap`](Self::compare_swap).
    pub(crate) fn store(self, at: u64, value: u64) -> Result<(), MemError> {
        self.with(|memory| memory.store(at, value))
    }
}

/// Returns what an errno of the memory means to the protocol.
#[cold]
pub(super) fn mem_error(error: Error) -> MemError {
    if error == EAGAIN {
        MemError::Absent
    } else if error == EINVAL || error == EFAULT {
        // Not aligned; or nothing that may be accessed so, which for pinned memory was found out
        // when the region was made.
        MemError::Protection
    } else {
        MemError::Fault
    }
}
