// SPDX-License-Identifier: GPL-2.0

//! Lookup of plain values by a plain key under RCU.
//!
//! ```text
//!   buckets   +---+    +---------------+    +---------------+
//!             | o-|--->| key, value, o-|--->| key, value, o-|---> null
//!             +---+    +---------------+    +---------------+
//!             | o-|--->
//! ```

use crate::{
    bindings,
    siphash::HashKey, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::{
    alloc::Flags,
    new_spinlock,
    prelude::*,
    sync::{
        rcu,
        SpinLock, //
    },
    types::Opaque, //
};

/// The key of a [`MultiTable`].
///
/// # Examples
///
/// ```
/// # use rdma::{siphash, sync::multi_table::Key};
/// /// An address of a net device.
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// struct Address {
///     ifindex: u32,
///     gid: [u8; 16],
/// }
///
/// impl Key for Address {
///     fn words(&self) -> [u64; 3] {
///         let [low, high] = siphash::words(self.gid);
///         [self.ifindex.into(), low, high]
///     }
/// }
/// ```
pub trait Key: Copy + Eq {
    /// Returns all of the key, to be hashed. Keys with the same words share a bucket.
    fn words(&self) -> [u64; 3];
}

impl Key for u32 {
    #[inline]
    fn words(&self) -> [u64; 3] {
        [u64::from(*self), 0, 0]
    }
}

/// The link to the next node of a chain.
type Link<K, V> = AtomicPtr<Node<K, V>>;

/// A key, one of its values, and the state of the deferred free.
#[repr(C)]
struct Node<K, V> {
    // First, because `kvfree_call_rcu()` requires it within the first page.
    rcu: Opaque<bindings::callback_head>,
    next: Link<K, V>,
    key: K,
    value: V,
}

/// A node, and before it the pointer that leads to it.
type Found<'a, K, V> = (&'a Link<K, V>, &'a Node<K, V>);

/// A table of plain values by a plain key. A key may have several values.
///
/// Lookups take no lock and write nothing. There are no references to entries, so removing one does
/// not wait; a running lookup may still see it. The buckets are stored inline, so an empty table
/// owns no memory, even if it is never dropped.
///
/// Processes choose keys: the groups that they join. The hash has a secret key, so that an attacker
/// cannot fill one bucket.
///
/// # Invariants
///
/// Every pointer in `buckets` and in a node is null or came from `KBox::<Node<K, V>>::into_raw`,
/// and nodes are linked and unlinked under `lock`, freed a grace period after they were unlinked.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::sync::MultiTable;
///
/// // The members of groups.
/// let members = KBox::pin_init(MultiTable::<u32, u32, 64>::new(), GFP_KERNEL)?;
/// members.insert(1, 17, GFP_KERNEL)?;
/// members.insert(1, 18, GFP_KERNEL)?;
///
/// let mut count = 0;
/// members.find_map(&1, |_qpn| {
///     count += 1;
///     None::<()>
/// });
/// assert_eq!(count, 2);
/// assert_eq!(members.remove(&1, |qpn| *qpn == 17), Some(17));
/// # Ok::<(), Error>(())
/// ```
#[pin_data(PinnedDrop)]
pub struct MultiTable<K: Key, V: Copy, const BUCKETS: usize> {
    buckets: [Link<K, V>; BUCKETS],
    hash: HashKey,
    #[pin]
    lock: SpinLock<()>,
}

// SAFETY: Writers hold the lock, readers use RCU, and keys and values are plain data.
unsafe impl<K: Key + Send, V: Copy + Send, const N: usize> Send for MultiTable<K, V, N> {}
// SAFETY: As for `Send`.
unsafe impl<K, V, const N: usize> Sync for MultiTable<K, V, N>
where
    K: Key + Send + Sync,
    V: Copy + Send + Sync,
{
}

impl<K: Key, V: Copy, const BUCKETS: usize> MultiTable<K, V, BUCKETS> {
    /// Creates an empty table.
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no node yet.
        pin_init!(Self {
            buckets <- pin_init::init_array_from_fn(|_| AtomicPtr::new(null_mut())),
            hash: HashKey::random(),
            lock <- new_spinlock!((), "rdma::MultiTable"),
        })
    }

    /// Adds a value to a key. Process context; sleeps only if `flags` allow it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn insert(&self, key: K, value: V, flags: Flags) -> Result {
        self.insert_beside(key, value, |_| false, flags)
    }

    /// Inserts a value like [`insert`](Self::insert), but directly behind a value of the key that
    /// `f` accepts, if there is one. If all values are added in this way, a lookup visits those
    /// that belong together one after the other.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn insert_beside(&self, key: K, value: V, f: impl Fn(&V) -> bool, flags: Flags) -> Result {
        let node = KBox::new(
            Node {
                rcu: Opaque::zeroed(),
                next: AtomicPtr::new(null_mut()),
                key,
                value,
            },
            flags,
        )?;
        let head = self.bucket(&key).ok_or(EINVAL)?;
        let _lock = self.lock.lock();

        let at = self
            .find_first(head, |node| node.key == key && f(&node.value))
            .map_or(head, |(_, beside)| &beside.next);

        node.next
            .store(at.load(Ordering::Relaxed), Ordering::Relaxed);
        // Release: a reader that finds the node sees its contents. INVARIANT: The pointer is from
        // `KBox::into_raw`, and the lock is held.
        at.store(KBox::into_raw(node), Ordering::Release);
        Ok(())
    }

    /// Removes the first value of a key that `f` accepts, and returns it. Process context.
    pub fn remove(&self, key: &K, f: impl Fn(&V) -> bool) -> Option<V> {
        let head = self.bucket(key)?;
        let _lock = self.lock.lock();

        self.unlink_first(head, |node| node.key == *key && f(&node.value))
    }

    /// Calls `f` with each value of a key, in any order, until it returns a value. Callable in any
    /// context; `f` runs under RCU and must not sleep.
    #[inline]
    pub fn find_map<R>(&self, key: &K, mut f: impl FnMut(&V) -> Option<R>) -> Option<R> {
        let head = self.bucket(key)?;
        let _rcu = rcu::read_lock();
        let mut at = head;

        loop {
            let node = NonNull::new(at.load(Ordering::Acquire))?;
            // SAFETY: By the type invariant a node that was found under RCU is not freed before the
            // end of the RCU section, and its key and value are never written.
            let node = unsafe { &*node.as_ptr() };

            if node.key == *key {
                if let Some(found) = f(&node.value) {
                    return Some(found);
                }
            }
            at = &node.next;
        }
    }

    /// Returns the bucket of a key.
    #[inline]
    fn bucket(&self, key: &K) -> Option<&Link<K, V>> {
        self.buckets.get(self.hash.bucket(key.words(), BUCKETS))
    }

    /// Removes the first node of a chain that `f` accepts. The lock is held.
    fn unlink_first(&self, head: &Link<K, V>, f: impl Fn(&Node<K, V>) -> bool) -> Option<V> {
        let (at, node) = self.find_first(head, f)?;
        let value = node.value;
        let raw = at.load(Ordering::Relaxed);

        // INVARIANT: The pointer is that of a node; the lock is held. A reader at the removed node
        // can continue, because the node keeps its own pointer.
        at.store(node.next.load(Ordering::Relaxed), Ordering::Release);
        // SAFETY: The node came from a `KBox`, that is from kmalloc; `rcu` is used by nothing else,
        // and the node can no longer be found.
        unsafe { bindings::kvfree_call_rcu(node.rcu.get().cast(), raw.cast()) };
        Some(value)
    }

    /// Returns the first node of a chain that `f` accepts, and the pointer that leads to it. The
    /// lock is held, and the node is used only until it is unlinked.
    fn find_first<'a>(
        &'a self,
        head: &'a Link<K, V>,
        f: impl Fn(&Node<K, V>) -> bool,
    ) -> Option<Found<'a, K, V>> {
        let mut at = head;

        loop {
            let raw = NonNull::new(at.load(Ordering::Relaxed))?;
            // SAFETY: Under the lock no one else unlinks a node, so this one is not freed.
            let node = unsafe { &*raw.as_ptr() };

            if f(node) {
                return Some((at, node));
            }
            at = &node.next;
        }
    }
}

#[pinned_drop]
impl<K: Key, V: Copy, const BUCKETS: usize> PinnedDrop for MultiTable<K, V, BUCKETS> {
    fn drop(self: Pin<&mut Self>) {
        for head in &self.buckets {
            let _lock = self.lock.lock();

            while self.unlink_first(head, |_| true).is_some() {}
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_multi_table)]
mod tests {
    use super::*;

    /// Few buckets, so that keys share them.
    type Table = MultiTable<u32, u32, 2>;

    fn table() -> Result<Pin<KBox<Table>>> {
        KBox::pin_init(Table::new(), GFP_KERNEL)
    }

    fn sum(table: &Table, key: u32) -> u32 {
        let mut sum = 0;
        let none = table.find_map(&key, |value| {
            sum += value;
            None::<()>
        });
        assert!(none.is_none());
        sum
    }

    #[test]
    fn key_finds_exactly_its_values() -> Result {
        let table = table()?;

        for key in 0..8 {
            table.insert(key, 10 * key, GFP_KERNEL)?;
            table.insert(key, 10 * key + 1, GFP_KERNEL)?;
        }
        for key in 0..8 {
            assert_eq!(sum(&table, key), 20 * key + 1);
        }
        assert_eq!(sum(&table, 8), 0);
        Ok(())
    }

    #[test]
    fn insert_beside_keeps_values_adjacent() -> Result {
        let table = table()?;
        let mut met = KVec::with_capacity(9, GFP_KERNEL)?;

        for value in [1, 2, 3, 11, 12, 21, 13, 22, 23] {
            table.insert_beside(7, value, |other| other % 10 == value % 10, GFP_KERNEL)?;
            table.insert(9, value, GFP_KERNEL)?;
        }
        table.find_map(&7, |value| {
            met.push_within_capacity(value % 10).ok()?;
            None::<()>
        });
        assert_eq!(met[..], [3, 3, 3, 2, 2, 2, 1, 1, 1]);
        Ok(())
    }

    #[test]
    fn removed_values_are_not_found() -> Result {
        let table = table()?;

        for value in 1..6 {
            table.insert(7, value, GFP_KERNEL)?;
        }
        assert_eq!(table.remove(&7, |value| *value == 3), Some(3));
        assert_eq!(table.remove(&7, |value| *value == 3), None);
        assert_eq!(table.remove(&8, |_| true), None);
        assert_eq!(sum(&table, 7), 12);
        while table.remove(&7, |value| *value != 4).is_some() {}
        assert_eq!(sum(&table, 7), 4);
        assert_eq!(table.find_map(&7, |value| Some(*value)), Some(4));
        Ok(())
    }
}
