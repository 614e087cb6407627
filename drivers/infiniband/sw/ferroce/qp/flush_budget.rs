// SPDX-License-Identifier: GPL-2.0

//! The limit on the requests that a half flushes in ERR, or the send half in SQE.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The requests that a half may still flush.
///
/// A verb or a failure grants the size of the ring. The timer that looks for receive requests in
/// ERR grants less, because it needs no call of the process. Without a limit, a process that keeps
/// writing to its rings would keep the work item busy, and its CPU time is not charged to the
/// process.
pub(super) struct FlushBudget(Atomic<u32>);

impl FlushBudget {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Raises the budget to `requests` if less is left.
    pub(super) fn grant(&self, requests: u32) {
        let mut left = self.0.load(Relaxed);
        while left < requests {
            match self.0.cmpxchg(left, requests, Relaxed) {
                Ok(_) => return,
                Err(current) => left = current,
            }
        }
    }

    /// Takes one request from the budget, if any is left.
    pub(super) fn take(&self) -> bool {
        let mut left = self.0.load(Relaxed);
        while let Some(rest) = left.checked_sub(1) {
            match self.0.cmpxchg(left, rest, Relaxed) {
                Ok(_) => return true,
                Err(current) => left = current,
            }
        }
        false
    }

    /// Gives back one unit, because the queue was empty. After a concurrent grant, the budget is
    /// one more.
    pub(super) fn give_back(&self) {
        self.0.add(1, Relaxed);
    }
}
