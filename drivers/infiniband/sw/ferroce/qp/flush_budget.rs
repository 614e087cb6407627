// SPDX-License-Identifier: GPL-2.0

//! The number of requests that a queue pair in ERR flushes, or the send half of one in SQE.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The requests that a half may still flush.
///
/// A verb grants the size of the queue. Without a bound, a process that keeps writing to its ring
/// would keep the work item busy, uncharged.
pub(super) struct FlushBudget(Atomic<u32>);

impl FlushBudget {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(super) fn grant(&self, requests: u32) {
        self.0.store(requests, Relaxed);
    }

    /// Takes one, if any is left. A concurrent grant replaces the count.
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
