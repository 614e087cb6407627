// SPDX-License-Identifier: GPL-2.0

//! The pages that are present, by page number in the address space of a process.

use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    }, //
};

/// Pages of a chunk: as many as one page table of the processor has.
const CHUNK: usize = 512;

/// The bit of an entry of a writable page. A `struct page` is aligned to more than that.
const WRITABLE: usize = 1;

/// The most chunks that one call of [`Table::remove`] looks at.
const REMOVE_AT_ONCE: u32 = 16;

/// A page that is present, with [`WRITABLE`] if it is writable, or null.
type Entry = *mut bindings::page;

/// The pages of one chunk.
///
/// # Invariants
///
/// Exactly `used` entries are not null. A chunk in a [`Table`] has at least one such entry.
struct Chunk {
    /// In an allocation of its own, which is a page.
    pages: KBox<[Entry; CHUNK]>,
    used: usize,
}

/// The pages that are present.
///
/// Chunks are allocated outside of the lock of the table, so that nothing is allocated under it. A
/// chunk is freed with its last page, so the table of a region takes about 1/512 of the memory that
/// the process has mapped there.
pub(super) struct Table(RBTree<usize, Chunk>);

// SAFETY: The table does not dereference its pointers. Each user proves that the page is present.
unsafe impl Send for Table {}

/// Room for the pages of a chunk.
pub(super) struct Room(RBTreeNode<usize, Chunk>);

impl Room {
    /// Allocates room for the chunk of a page. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(page: usize) -> Result<Self> {
        // INVARIANT: All entries are null.
        let chunk = Chunk {
            pages: KBox::init(pin_init::init_zeroed(), GFP_KERNEL_ACCOUNT)?,
            used: 0,
        };
        let node = RBTreeNode::new(page / CHUNK, chunk, GFP_KERNEL_ACCOUNT)?;
        Ok(Self(node))
    }
}

impl Chunk {
    /// Adds pages from `first` on.
    fn add(&mut self, first: usize, pages: &[Entry], writable: bool) {
        let entries = self.pages.get_mut(first..).unwrap_or_default();
        for (entry, page) in entries.iter_mut().zip(pages) {
            let marked = page.map_addr(|addr| addr | WRITABLE);
            // INVARIANT: A page that is there is not null.
            self.used = self.used.saturating_add(usize::from(entry.is_null()));
            if *entry != marked {
                *entry = if writable { marked } else { *page };
            }
        }
    }

    /// Removes the pages `from..=to`; returns whether none is left.
    fn clear(&mut self, from: usize, to: usize) -> bool {
        if from == 0 && to == CHUNK - 1 {
            return true;
        }
        for entry in self.pages.get_mut(from..=to).unwrap_or_default() {
            if !entry.is_null() {
                *entry = core::ptr::null_mut();
                // INVARIANT: One less is not null.
                self.used = self.used.saturating_sub(1);
            }
        }
        self.used == 0
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self(RBTree::new())
    }

    /// Returns how many pages from `page` on are in one chunk.
    pub(super) fn rest_of_chunk(page: usize) -> usize {
        CHUNK.wrapping_sub(page % CHUNK)
    }

    /// Returns whether there is room for a page.
    pub(super) fn has_room(&self, page: usize) -> bool {
        self.0.get(&(page / CHUNK)).is_some()
    }

    /// Returns a page that is present, and writable if `write`.
    #[inline]
    pub(super) fn get(&self, page: usize, write: bool) -> Option<NonNull<bindings::page>> {
        let entry = *self.0.get(&(page / CHUNK))?.pages.get(page % CHUNK)?;
        if write && entry.addr() & WRITABLE == 0 {
            return None;
        }
        NonNull::new(entry.map_addr(|addr| addr & !WRITABLE))
    }

    /// Adds pages, numbered from `first` on, all in one chunk; returns `false` if there is room
    /// neither here nor in `room`, which is for their chunk.
    ///
    /// A page that is writable stays so.
    pub(super) fn add(
        &mut self,
        first: usize,
        pages: &[*mut bindings::page],
        writable: bool,
        room: &mut Option<Room>,
    ) -> bool {
        if !self.has_room(first) {
            let Some(room) = room.take() else {
                return false;
            };
            // INVARIANT: It gets its pages below.
            self.0.insert(room.0);
        }
        let Some(chunk) = self.0.get_mut(&(first / CHUNK)) else {
            return false;
        };
        chunk.add(first % CHUNK, pages, writable);
        true
    }

    /// Removes the pages `first..=last`, and the room of chunks that have none left.
    ///
    /// Returns the page to continue with, if there were too many for one call.
    pub(super) fn remove(&mut self, first: usize, last: usize) -> Option<usize> {
        let (first_chunk, last_chunk) = (first / CHUNK, last / CHUNK);
        let mut next = first_chunk;
        for _ in 0..REMOVE_AT_ONCE {
            let chunk = *self.0.cursor_lower_bound(&next)?.current().0;
            if chunk > last_chunk {
                return None;
            }
            let from = if chunk == first_chunk {
                first % CHUNK
            } else {
                0
            };
            let to = if chunk == last_chunk {
                last % CHUNK
            } else {
                CHUNK - 1
            };
            if self
                .0
                .get_mut(&chunk)
                .is_some_and(|chunk| chunk.clear(from, to))
            {
                self.0.remove_node(&chunk);
            }
            next = chunk.checked_add(1)?;
        }
        next.checked_mul(CHUNK).filter(|page| *page <= last)
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_ib_umem_paged_table)]
mod tests {
    use super::*;

    /// The pointers are never dereferenced.
    fn page(number: usize) -> *mut bindings::page {
        core::ptr::without_provenance_mut(number << 6)
    }

    #[test]
    fn pages_are_found_until_removed() -> Result {
        let mut table = Table::new();
        let none = &mut None;
        assert!(!table.add(1000, &[page(1)], false, none));
        let room = &mut Some(Room::new(1000)?);
        assert!(table.add(1000, &[page(1), page(2)], false, room));
        assert!(table.has_room(1023) && !table.has_room(1024));
        assert_eq!(table.get(1001, false).map(NonNull::as_ptr), Some(page(2)));
        assert!(table.get(1001, true).is_none() && table.get(1002, false).is_none());
        // Adding the page again read-only keeps it writable; another page replaces it.
        assert!(table.add(1001, &[page(2)], true, none));
        assert!(table.add(1001, &[page(2)], false, none));
        assert_eq!(table.get(1001, true).map(NonNull::as_ptr), Some(page(2)));
        assert!(table.add(1001, &[page(3)], false, none));
        assert!(table.get(1001, true).is_none());

        assert_eq!(table.remove(1001, 1001), None);
        assert!(table.get(1001, false).is_none() && table.get(1000, false).is_some());
        assert!(table.has_room(1000));
        // The chunk is freed with its last page, or when all pages are removed.
        assert_eq!(table.remove(1000, 1000), None);
        assert!(!table.has_room(1000));
        assert!(table.add(1000, &[page(1)], false, &mut Some(Room::new(1000)?)));
        assert_eq!(table.remove(0, usize::MAX), None);
        assert!(!table.has_room(1000));
        Ok(())
    }

    #[test]
    fn removal_resumes_where_it_stopped() -> Result {
        const CHUNKS: usize = 40;

        let mut table = Table::new();
        for chunk in 0..CHUNKS {
            let room = &mut Some(Room::new(chunk * CHUNK)?);
            assert!(table.add(chunk * CHUNK + 7, &[page(chunk + 1)], true, room));
        }
        // All but the first and the last.
        let last = (CHUNKS - 1) * CHUNK + 6;
        let mut next = Some(8);
        let mut calls = 0;
        while let Some(first) = next {
            next = table.remove(first, last);
            calls += 1;
        }
        assert!(calls > 1);
        for chunk in 0..CHUNKS {
            let stays = chunk == 0 || chunk == CHUNKS - 1;
            assert_eq!(table.get(chunk * CHUNK + 7, true).is_some(), stays);
        }
        Ok(())
    }
}
