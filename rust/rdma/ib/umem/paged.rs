// SPDX-License-Identifier: GPL-2.0

//! Memory of a process that is fetched when it is used, and that the kernel may take away again.
//!
//! `struct ib_umem_odp` does not fit: `hmm_range_fault()` writes to its list of pages before it is
//! known whether they are valid, under no lock, so that only the context that filled the list can
//! read it, under a mutex. Besides, `hmm_range_fault()` hands out pages of `memfd_secret(2)`, which
//! the kernel cannot access. So pages are fetched with `get_user_pages_remote()`, as in KVM, and
//! put into a table of our own once the MMU notifier says that they are still the right ones.
//!
//! C header: [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

mod table;

use self::table::{
    Room,
    Table, //
};
use crate::{
    bindings,
    new_spinlock_bh,
    sync::{
        cond_resched,
        is_killed,
        SpinLockBh, //
    }, //
};
use kernel::{
    container_of,
    error::to_result,
    ffi,
    mm::{
        Mm,
        MmWithUser, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

/// Pages that are fetched with one hold of the memory map's lock.
const BATCH: usize = 32;

/// The attempts to fetch pages that are invalidated before they are in the table.
const TRIES: u32 = 64;

/// The mode of a fetch.
///
/// # Examples
///
/// ```
/// use rdma::ib::umem::Fetch;
///
/// fn fetch_for(write: bool) -> Fetch {
///     if write {
///         Fetch::Write
///     } else {
///         Fetch::Read
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
    /// For reading, only pages that are present.
    Present,
}

/// A part of a process' memory, or all of it, of which pages are fetched when they are used.
///
/// The pages are neither pinned nor referenced. The table contains the pages that were fetched and
/// that the kernel has not invalidated since. Before the kernel takes a page away, it calls
/// `invalidate`, which removes the page from the table. An access holds the lock of the table.
///
/// # Invariants
///
/// `notifier` is registered for the address range of the memory, from the initialisation of `table`
/// until this is dropped. A page in `table` is mapped in the process at the address of its number,
/// writable if its entry is marked so, unless an invalidation of it is in progress.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use kernel::sync::Arc;
/// # use rdma::ib::{mr::UserRange, umem::{Fetch, Paged}};
///
/// /// Makes the start of a region present, which may sleep.
/// fn prefetch(range: &UserRange) -> Result<Arc<Paged>> {
///     let memory = Paged::new(range.start, range.len, false)?;
///     memory.fetch(0, range.len.min(4096), Fetch::Read)?;
///     Ok(memory)
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct Paged {
    #[pin]
    table: SpinLockBh<Table>,
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
    /// The address of the first byte.
    start: u64,
    /// Bytes.
    len: u64,
    writable: bool,
}

// SAFETY: The notifier is accessed by functions that synchronise; the rest is constant or locked.
unsafe impl Send for Paged {}
// SAFETY: As for `Send`.
unsafe impl Sync for Paged {}

static OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
    invalidate: Some(Paged::invalidate),
    ..pin_init::zeroed()
};

impl Paged {
    /// Grants access to `len` bytes of the calling process' memory at `start`. May sleep.
    ///
    /// `u64::MAX` bytes at 0 are the whole address space, including later mappings.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is empty or wraps, `ENOMEM`, `EINTR`.
    pub fn new(start: u64, len: u64, writable: bool) -> Result<Arc<Self>> {
        let last = len
            .checked_sub(1)
            .and_then(|rest| start.checked_add(rest))
            .ok_or(EINVAL)?;
        let task = kernel::current!();
        let mm = task.mm().ok_or(EINVAL)?.as_raw();
        // CAST: 64 bits.
        let first = start as usize & !(PAGE_SIZE - 1);
        // The address of the last byte of the last page.
        // CAST: As above.
        let end = last as usize | (PAGE_SIZE - 1);
        // Saturates for the whole address space, which leaves out its last byte.
        let bytes = end.wrapping_sub(first).saturating_add(1);
        Arc::pin_init(
            try_pin_init!(Self {
                table <- new_spinlock_bh!(Table::new(), "rdma::Paged"),
                start,
                len,
                writable,
                // Last, because from then on it refers to all of this.
                // INVARIANT: The table is initialised, and empty.
                // SAFETY: `raw` is valid for write and pinned. The process is the calling one, so
                // its memory map is in use.
                notifier <- unsafe {
                    Opaque::try_ffi_init(|raw| {
                        to_result(bindings::mmu_interval_notifier_insert(
                            raw,
                            mm,
                            first,
                            bytes,
                            &OPS,
                        ))
                    })
                },
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns whether the region allows writes.
    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether `len` bytes at `offset` can be accessed now.
    pub fn is_present(&self, offset: u64, len: u64, write: bool) -> bool {
        let Ok((first, last)) = self.pages(offset, len, write) else {
            return false;
        };
        let table = self.table.lock();
        (first..=last).all(|page| table.get(page, write).is_some())
    }

    /// Fetches `len` bytes at `offset`. May sleep forever, because a process may serve its memory
    /// itself: hold no lock, and let nothing wait for the call.
    ///
    /// Even after success, the memory may be absent again at the next access.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the process has no such memory, or may not access it in this way; `ESRCH` if the
    /// process is gone; `ENOMEM`, `EINTR`.
    pub fn fetch(&self, offset: u64, len: u64, how: Fetch) -> Result {
        self.fetch_pages(offset, len, how, true)
    }

    /// Fetches `len` bytes at `offset` as far as possible without waiting for a user process. May
    /// sleep, for memory of the kernel, and for a file system (`TODO[AHED]`).
    pub fn fetch_ahead(&self, offset: u64, len: u64, how: Fetch) {
        // A later access to an absent page fails.
        let _ = self.fetch_pages(offset, len, how, false);
    }

    fn fetch_pages(&self, offset: u64, len: u64, how: Fetch, wait: bool) -> Result {
        if len == 0 {
            return Ok(());
        }
        let (mut page, last) = self.pages(offset, len, how == Fetch::Write)?;
        while page <= last {
            let count = BATCH
                .min(Table::rest_of_chunk(page))
                .min(last.wrapping_sub(page).saturating_add(1));
            let done = match self.fetch_batch(page, count, how, wait) {
                // Pages that are not in memory are left out.
                Err(e) if how == Fetch::Present && e == EFAULT => 1,
                result => result?,
            };
            page = page.checked_add(done).ok_or(EFAULT)?;
            // The range may be long, and an unmapped range is walked page by page.
            cond_resched();
            if is_killed() {
                return Err(EINTR);
            }
        }
        Ok(())
    }

    /// Calls `f` with each contiguous range of the `len` bytes at `offset`, one for each page.
    ///
    /// `f` is not called if any of the pages is absent.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all within the memory, or it may not be written to; `EAGAIN` if
    /// they have to be fetched.
    #[inline(never)]
    pub(super) fn for_each_range(
        &self,
        offset: u64,
        len: usize,
        write: bool,
        mut f: impl FnMut(*mut u8, usize),
    ) -> Result {
        if len == 0 {
            return Ok(());
        }
        // CAST: Both fit into 64 bits.
        let (first, last) = self.pages(offset, len as u64, write)?;
        let table = self.table.lock();
        if !(first..=last).all(|page| table.get(page, write).is_some()) {
            return Err(EAGAIN);
        }
        // CAST: An offset in a page is less than 2^32.
        let mut in_page = (self.start.wrapping_add(offset) as usize) % PAGE_SIZE;
        let mut left = len;
        for number in first..=last {
            let page = table.get(number, write).ok_or(EAGAIN)?;
            let count = left.min(PAGE_SIZE.wrapping_sub(in_page));
            // SAFETY: By the type invariant the page is present while the lock of the table is
            // held, for writing if that was requested, and `in_page + count` is at most a page. The
            // mapping is used before it is undone.
            unsafe {
                let addr = bindings::kmap_local_page(page.as_ptr());
                f(addr.cast::<u8>().add(in_page), count);
                bindings::kunmap_local(addr);
            }
            in_page = 0;
            left = left.wrapping_sub(count);
        }
        Ok(())
    }

    /// Returns the numbers of the first and the last page of `len` bytes, not 0, at `offset`.
    ///
    /// # Errors
    ///
    /// `EFAULT` if they are not all within the memory, or it may not be written to.
    fn pages(&self, offset: u64, len: u64, write: bool) -> Result<(usize, usize)> {
        let end = offset.checked_add(len).ok_or(EFAULT)?;
        if end > self.len || (write && !self.writable) {
            return Err(EFAULT);
        }
        let first = self.start.checked_add(offset).ok_or(EFAULT)?;
        let last = len
            .checked_sub(1)
            .and_then(|rest| first.checked_add(rest))
            .ok_or(EFAULT)?;
        // CAST: 64 bits.
        Ok((first as usize >> PAGE_SHIFT, last as usize >> PAGE_SHIFT))
    }

    /// Fetches up to `count` pages, all in one chunk. Returns the number of pages to skip, at least
    /// one.
    fn fetch_batch(&self, first: usize, count: usize, how: Fetch, wait: bool) -> Result<usize> {
        // SAFETY: The notifier is registered by the type invariant, which keeps `mm` allocated.
        let mm = unsafe { Mm::from_raw((*self.notifier.get()).mm) };
        // Hold the address space for this batch only: a long range must not keep it alive after the
        // process has exited. This may be its last user, and tearing it down here would take long,
        // so drop it asynchronously.
        let mm = mm.mmget_not_zero().ok_or(ESRCH)?;
        let mm = MmWithUser::into_mmput_async(mm);
        let mut room = None;
        for _ in 0..TRIES {
            // SAFETY: The notifier is registered by the type invariant.
            let seq = unsafe { bindings::mmu_interval_read_begin(self.notifier.get()) };
            let pages = Pages::get(&mm, first, count, how, wait)?;
            // Allocate only now: nothing is kept for an address that does not exist.
            if room.is_none() && !self.table.lock().has_room(first) {
                let _charge = Charge::to(&mm);
                room = Some(Room::new(first)?);
            }
            let mut table = self.table.lock();
            // SAFETY: As above. `invalidate` sets the number under the same lock.
            let stale = unsafe { bindings::mmu_interval_read_retry(self.notifier.get(), seq) };
            // INVARIANT: The pages were mapped at their addresses after `seq` was read, and none
            // was invalidated since: an invalidation from now on waits for the lock.
            if !stale && table.add(first, pages.as_slice(), how == Fetch::Write, &mut room) {
                return Ok(pages.as_slice().len());
            }
        }
        // The process keeps changing its memory. The next access finds the pages absent, and tries
        // again.
        Ok(count)
    }

    /// `mmu_interval_notifier_ops.invalidate`: pages are about to be taken away, or to become
    /// read-only.
    ///
    /// The caller may hold any lock of the memory management, and may not be allowed to sleep.
    ///
    /// # Safety
    ///
    /// Only for the MMU notifiers, with the `notifier` of a [`Paged`].
    unsafe extern "C" fn invalidate(
        raw: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: ffi::c_ulong,
    ) -> bool {
        let this = container_of!(Opaque::cast_from(raw), Self, notifier);
        // SAFETY: `raw` is embedded in a `Paged`, whose drop waits for this; `range` is valid for
        // the call.
        let (this, range) = unsafe { (&*this, &*range) };
        let (start, end) = (range.start, range.end);
        // SAFETY: `range` is valid.
        let may_sleep = unsafe { bindings::mmu_notifier_range_blockable(range) };
        let last = end.saturating_sub(1) >> PAGE_SHIFT;
        let mut next = Some(start >> PAGE_SHIFT);
        while let Some(first) = next {
            let mut table = this.table.lock();
            // SAFETY: `raw` and `seq` are the arguments of this call. From here on no page that was
            // fetched before is added to the table, so the lock may be dropped.
            unsafe { bindings::mmu_interval_set_seq(raw, seq) };
            next = table.remove(first, last);
            drop(table);
            if may_sleep {
                cond_resched();
            }
        }
        true
    }
}

#[pinned_drop]
impl PinnedDrop for Paged {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The notifier is registered by the type invariant. After this call `invalidate`
        // neither runs nor will run.
        unsafe { bindings::mmu_interval_notifier_remove(self.notifier.get()) };
    }
}

/// Charges the allocations of this thread with `__GFP_ACCOUNT` to the memory cgroup of the process
/// for which it works, until it is dropped.
///
/// # Invariants
///
/// `group` is null or a group that this value owns a reference to, and is this thread's active one.
struct Charge {
    group: *mut bindings::mem_cgroup,
    before: *mut bindings::mem_cgroup,
    /// It belongs to the thread that made it.
    _not_send: NotThreadSafe,
}

impl Charge {
    fn to(mm: &MmWithUser) -> Self {
        // SAFETY: The memory map is alive.
        let group = unsafe { bindings::get_mem_cgroup_from_mm(mm.as_raw()) };
        // INVARIANT: `get_mem_cgroup_from_mm()` took the reference; this call makes the group
        // active.
        // SAFETY: The reference is held until `drop` has ended that.
        let before = unsafe { bindings::set_active_memcg(group) };
        Self {
            group,
            before,
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: `before` was active, and this value owns no reference to it. It owns that to
        // `group` by the type invariant.
        unsafe {
            bindings::set_active_memcg(self.before);
            bindings::mem_cgroup_put(self.group);
        }
    }
}

/// Pages of a process with a reference each.
///
/// # Invariants
///
/// The first `count` of `pages` are valid, and this value owns a reference to each.
struct Pages {
    pages: [*mut bindings::page; BATCH],
    count: usize,
}

impl Pages {
    /// Takes references to `count` pages, at most [`BATCH`], or to the first of them. May sleep; if
    /// `wait`, also until memory is available.
    fn get(mm: &MmWithUser, first: usize, count: usize, how: Fetch, wait: bool) -> Result<Self> {
        let mut this = Self {
            pages: [core::ptr::null_mut(); BATCH],
            count: 0,
        };
        let flags = match how {
            Fetch::Read => 0,
            Fetch::Write => bindings::FOLL_WRITE,
            Fetch::Present => bindings::FOLL_NOFAULT,
        };
        let flags = if wait {
            flags
        } else {
            flags | bindings::FOLL_NOWAIT
        };
        let count = count.min(BATCH);
        // SAFETY: The memory map is alive; the field is not changed after `execve()`.
        let limit = unsafe { (*mm.as_raw()).__bindgen_anon_1.task_size } >> PAGE_SHIFT;
        // The kernel would untag a tagged address, and the notifier does not cover the result.
        if first.checked_add(count).is_none_or(|end| end > limit) {
            return Err(EFAULT);
        }
        let mut locked: ffi::c_int = 1;
        let may_drop: *mut ffi::c_int = if wait {
            &mut locked
        } else {
            core::ptr::null_mut()
        };
        // SAFETY: The memory map is in use and its lock held; there is room for `count` pointers.
        // `locked` is cleared if the call drops the lock to wait.
        let got = unsafe {
            bindings::mmap_read_lock(mm.as_raw());
            let got = bindings::get_user_pages_remote(
                mm.as_raw(),
                first << PAGE_SHIFT,
                count,
                flags,
                this.pages.as_mut_ptr(),
                may_drop,
            );
            if locked != 0 {
                bindings::mmap_read_unlock(mm.as_raw());
            }
            got
        };
        if got <= 0 {
            // CAST: A negative errno.
            to_result(got as ffi::c_int)?;
            return Err(EFAULT);
        }
        // INVARIANT: `get_user_pages_remote()` has taken so many references.
        this.count = got.unsigned_abs();
        Ok(this)
    }

    fn as_slice(&self) -> &[*mut bindings::page] {
        self.pages.get(..self.count).unwrap_or(&[])
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for page in self.as_slice() {
            // SAFETY: This value owns a reference.
            unsafe { bindings::put_page(*page) };
        }
    }
}
