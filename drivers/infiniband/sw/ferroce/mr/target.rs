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
/// Accesses take offsets from [`offset`](Self::offset). They fail with [`MemError::NotPresent`] if
/// the memory has to be fetched first, and with [`MemError::Protection`] if the key has become
/// invalid meanwhile. None of them sleeps.
///
/// Destroying the region or the window waits for this, so it lives for one packet only, or for one
/// run of a half ([`RegionCache`](super::RegionCache)).
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

/// The kind of a key, which determines when the key becomes invalid.
enum KeyKind {
    /// The key is valid as long as the region exists.
    Region,
    /// The key is valid until the window is invalidated, or bound again.
    Window(WindowRef),
    /// The key is valid until the registration with this number, made by a request, is invalidated.
    Fast(u64),
}

impl Target {
    /// Returns the whole region as a target.
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

    /// Returns the binding of a window as a target.
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

    /// Returns a registration by a request as a target.
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

    /// Returns whether the key is that of a region, and therefore valid as long as this exists.
    #[inline]
    pub(super) fn is_region(&self) -> bool {
        matches!(self.key, KeyKind::Region)
    }

    /// Returns the offset of `len` bytes at `va` in the memory.
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

    /// Returns whether the region allows all of `access`.
    #[inline]
    pub(super) fn allows(&self, access: Access) -> bool {
        self.mr.access.contains(access)
    }

    /// Returns memory on demand, for use after the target is dropped. Dropping the result may
    /// sleep.
    pub(super) fn on_demand(&self) -> Option<Arc<Paged>> {
        self.mr.memory.paged().cloned()
    }

    /// Returns the fault to resolve before `len` bytes at `at` can be accessed, for writing if
    /// `write`; `None` if they are present.
    ///
    /// The fault includes up to `ahead` bytes behind them, none that the key does not cover.
    #[cold]
    pub(crate) fn odp_fault(self, at: u64, len: u64, ahead: u64, write: bool) -> Option<OdpFault> {
        let memory = self.mr.memory.paged()?.clone();
        if memory.is_present(at, len, write) {
            return None;
        }
        let end = self.skip.saturating_add(self.len);
        let rest = end.saturating_sub(at.saturating_add(len));
        Some(OdpFault {
            target: self,
            memory,
            at,
            len,
            ahead: ahead.min(rest),
            write,
        })
    }

    /// Appends `len` bytes at `at` to a packet, which is unchanged if this fails.
    #[inline]
    pub(crate) fn append_to(&self, at: u64, len: usize, skb: &mut SkBuff) -> Result<(), MemError> {
        self.with(|memory| memory.append_to(at, len, skb))
    }

    /// Copies bytes in at `at`.
    #[inline]
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MemError> {
        self.with(|memory| memory.write(at, bytes))
    }

    /// Calls `f` with the memory, while the key cannot become invalid.
    ///
    /// So there is no access to the memory after an invalidation has returned.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&Memory) -> Result<R>) -> Result<R, MemError> {
        let mr = &self.mr;
        // The locks are held until the end of the access.
        let (_window, active);
        let memory = match &self.key {
            KeyKind::Region => &mr.memory,
            KeyKind::Window(window) => {
                _window = window.lock()?;
                &mr.memory
            }
            KeyKind::Fast(epoch) => {
                let fast = mr.fast.as_ref().ok_or(MemError::Protection)?;
                active = fast.lock(*epoch)?;
                &active.memory
            }
        };
        f(memory).map_err(mem_error)
    }

    /// Stores `swap` at `at` if the value there is `compare`; returns the original value. The
    /// values are in host byte order, and the access is atomic. Fails with [`MemError::Misaligned`]
    /// if the word is not aligned in memory. An aligned address in the request does not ensure
    /// this, because the first byte of a region may have any address.
    pub(crate) fn compare_swap(&self, at: u64, compare: u64, swap: u64) -> Result<u64, MemError> {
        self.with(|memory| memory.compare_swap(at, compare, swap))
    }

    /// Adds to the number at `at`; returns the original value. As
    /// [`compare_swap`](Self::compare_swap).
    pub(crate) fn fetch_add(&self, at: u64, add: u64) -> Result<u64, MemError> {
        self.with(|memory| memory.fetch_add(at, add))
    }

    /// Stores a number at `at` after everything that was written before. As
    /// [`compare_swap`](Self::compare_swap).
    pub(crate) fn store(&self, at: u64, value: u64) -> Result<(), MemError> {
        self.with(|memory| memory.store(at, value))
    }
}

/// Converts an errno of a memory access to an error of the protocol.
#[cold]
pub(super) fn mem_error(error: Error) -> MemError {
    if error == EAGAIN {
        MemError::NotPresent
    } else if error == EINVAL {
        MemError::Misaligned
    } else if error == EFAULT {
        // The process may not access the memory in this way. For pinned memory, this was checked
        // when the region was registered.
        MemError::Protection
    } else {
        MemError::Fault
    }
}
