// SPDX-License-Identifier: GPL-2.0

//! How much a queue pair in ERR flushes.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// How many requests a half in ERR may still flush.
///
/// A verb grants as many as the queue holds. Without a bound a process that goes on writing to its
/// ring would keep the work item busy, which no one is charged for.
pub(super) struct Credit(Atomic<u32>);

impl Credit {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(super) fn grant(&self, requests: u32) {
        self.0.store(requests, Relaxed);
    }

    /// Takes one. Only called under the lock of the half.
    pub(super) fn take(&self) -> bool {
        let left = self.0.load(Relaxed);
        self.0.store(left.saturating_sub(1), Relaxed);
        left > 0
    }
}
