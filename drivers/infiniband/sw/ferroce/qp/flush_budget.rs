// SPDX-License-Identifier: GPL-2.0

//! How much a queue pair in ERR flushes, or the send half of one in SQE.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// How many requests a half may still flush.
///
/// A verb grants as many as the queue holds. Without a bound a process that goes on writing to its
/// ring would keep the work item busy, which no one is charged for.
pub(super) struct FlushBudget(Atomic<u32>);

impl FlushBudget {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(super) fn grant(&self, requests: u32) {
        self.0.store(requests, Relaxed);
    }

    /// Takes one if there is one. A verb may grant some at the same time, which stand then.
    pub(super) fn take(&self) -> bool {
        let mut left = self.0.load(Relaxed);
        while let Some(rest) = left.checked_sub(1) {
            match self.0.cmpxchg(left, rest, Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }
}
