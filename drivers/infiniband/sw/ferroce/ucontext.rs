// SPDX-License-Identifier: GPL-2.0

//! User contexts: rings that wait to be mapped.

use crate::owner::Owner;
use kernel::{
    mm::virt::VmaNew,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use rdma::{
    list,
    mm::SharedMemory, //
};
use roce::uapi::resp::MmapInfo;

/// The maximum number of rings of a context that wait to be mapped. The library maps each ring as
/// soon as it is created.
const MAX_ENTRIES: usize = 1024;

/// The driver's part of a user context.
pub(crate) struct Ucontext {
    /// The process and user that objects of this context are charged to.
    pub(crate) owner: Arc<Owner>,
    pending: Arc<Mutex<List>>,
}

/// The entries of a context.
///
/// The verb that creates a ring adds an entry. One `mmap()` call takes it, or it is removed with
/// the ring. Its offset is not valid in another context, and only valid once.
struct List {
    next_offset: u64,
    entries: KVec<(u64, Arc<SharedMemory>)>,
}

/// Memory that one `mmap()` call may map, for as long as this lives.
pub(crate) struct MmapEntry {
    pending: Arc<Mutex<List>>,
    info: MmapInfo,
}

impl Ucontext {
    pub(crate) fn new() -> Result<Self> {
        let list = List {
            // Zero means that there is no ring.
            // CAST: Widening.
            next_offset: PAGE_SIZE as u64,
            entries: KVec::new(),
        };
        let pending = Arc::pin_init(
            new_mutex!(list, "ferroce::Ucontext::pending"),
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(Self {
            owner: Owner::of_caller()?,
            pending,
        })
    }

    /// Inserts an entry for one `mmap()` call.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if too many entries wait.
    pub(crate) fn insert_mmap_entry(&self, mem: &Arc<SharedMemory>) -> Result<MmapEntry> {
        let size = u32::try_from(mem.size()).map_err(|_| EINVAL)?;
        let mut list = self.pending.lock();
        if list.entries.len() >= MAX_ENTRIES {
            return Err(ENOMEM);
        }
        let offset = list.next_offset;
        let next = offset.checked_add(u64::from(size)).ok_or(ENOMEM)?;
        list::push(&mut list.entries, (offset, mem.clone()), GFP_KERNEL_ACCOUNT)?;
        list.next_offset = next;
        Ok(MmapEntry {
            pending: self.pending.clone(),
            info: MmapInfo {
                offset,
                size,
                pad: 0,
            },
        })
    }

    /// Maps the entry at `pgoff` pages.
    pub(crate) fn mmap(&self, vma: &VmaNew, pgoff: u64) -> Result {
        // CAST: Widening.
        let offset = pgoff.checked_mul(PAGE_SIZE as u64).ok_or(EINVAL)?;
        let len = vma.end().checked_sub(vma.start()).ok_or(EINVAL)?;
        let mem = self.pending.lock().take(offset, len);
        mem.ok_or(EINVAL)?.map(vma)
    }
}

impl List {
    /// Takes an entry of at least `len` bytes out of the list. One that is too short stays.
    fn take(&mut self, offset: u64, len: usize) -> Option<Arc<SharedMemory>> {
        let mut entries = self.entries.iter();
        let at = entries.position(|(start, mem)| *start == offset && len <= mem.size())?;
        self.entries.remove(at).ok().map(|(_, mem)| mem)
    }
}

impl MmapEntry {
    /// Returns the offset and the size that the library needs for `mmap()`.
    pub(crate) fn info(&self) -> MmapInfo {
        self.info
    }
}

impl Drop for MmapEntry {
    fn drop(&mut self) {
        // Usually, `mmap()` has taken the entry already.
        let mem = self.pending.lock().take(self.info.offset, 0);
        drop(mem);
    }
}
