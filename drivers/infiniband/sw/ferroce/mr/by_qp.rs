// SPDX-License-Identifier: GPL-2.0

//! The windows of type 2 that are bound to each queue pair.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    }, //
};
use rdma::{
    new_spinlock_bh,
    sync::{
        Global,
        SpinLockBh, //
    }, //
};

/// The numbers of a queue pair and of a window that is bound to it.
type Key = (u32, u32);

/// The bindings. The lock is taken under that of a binding.
static BINDINGS: Global<SpinLockBh<RBTree<Key, ()>>> = Global::new();

/// Constructs the tree. Called once, before any device exists.
pub(super) fn init() -> Result {
    BINDINGS.init(new_spinlock_bh!(RBTree::new(), "ferroce::by_qp::BINDINGS"))
}

/// The room of a window in the tree, which is allocated with the window: binding needs no memory.
pub(super) struct Entry {
    /// The number of the window.
    number: u32,
    /// `None` while the window is in the tree.
    room: Option<RBTreeNodeReservation<Key, ()>>,
}

impl Entry {
    /// Allocates the room for the window with this number. May sleep.
    pub(super) fn new(number: u32) -> Result<Self> {
        Ok(Self {
            number,
            room: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
        })
    }

    /// Adds the window to those of a queue pair.
    pub(super) fn add_to(&mut self, qpn: u32) {
        if let (Some(tree), Some(room)) = (BINDINGS.get(), self.room.take()) {
            tree.lock().insert(room.into_node((qpn, self.number), ()));
        }
    }

    /// Removes the window from those of a queue pair.
    pub(super) fn remove_from(&mut self, qpn: u32) {
        if let Some(tree) = BINDINGS.get() {
            let node = tree.lock().remove_node(&(qpn, self.number));
            self.room = node.map(|node| node.into_reservation());
        }
    }
}

/// Returns the first window after number `last` that is bound to a queue pair.
pub(super) fn after(qpn: u32, last: u32) -> Option<u32> {
    let tree = BINDINGS.get()?.lock();
    let next = tree.cursor_lower_bound(&(qpn, last.saturating_add(1)))?;
    let ((owner, number), ()) = next.current();
    (*owner == qpn).then_some(*number)
}
