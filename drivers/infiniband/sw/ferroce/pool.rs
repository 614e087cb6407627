// SPDX-License-Identifier: GPL-2.0

//! Pools that all users share, and charges against them.
//!
//! [`roce::share`] defines the share of a process. Kernel consumers are not charged for
//! objects; for these there are more numbers than processes may hold. All kernel consumers together
//! have the share of one privileged process of the pool for waiting packets, because their peers
//! decide how many packets wait.
//!
//! Documentation/infiniband/ferroce/limits.rst lists the pools.

use crate::owner::{
    Kind,
    Owner, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use roce::share;

/// The maximum number of queue pairs of processes, and likewise of completion queues, shared
/// receive queues, regions and windows.
pub(crate) const MAX_OBJECTS: u32 = 1 << 20;

/// The maximum number of objects of kernel consumers, of each kind but windows, in addition to
/// [`MAX_OBJECTS`]. Kernel consumers need some whenever a link is added, and when they reconnect.
pub(crate) const KERNEL_OBJECTS: u32 = 1 << 16;

/// The maximum number of address handles of processes.
pub(crate) const MAX_AH: u32 = 1 << 20;

/// The maximum number of protection domains of processes. They have no numbers that could run out,
/// and a process needs only a few.
pub(crate) const MAX_PD: u32 = 1 << 15;

/// The maximum number of ranges of memory on demand that are fetched concurrently. Each occupies a
/// worker, and a per-CPU work queue runs at most 1024 items on a CPU.
const MAX_FETCHES: u32 = 1024;

/// The maximum amount of memory that packets in the backlogs of all queue pairs may occupy, in
/// bytes. The memory cgroup of the receiver is not charged for them.
const MAX_BACKLOG: u32 = 64 << 20;

/// A limited resource.
pub(crate) struct Pool {
    kind: Kind,
    used: Atomic<u32>,
    /// The entries that kernel consumers hold.
    kernel: Atomic<u32>,
    max: u32,
}

pub(crate) static AHS: Pool = Pool::new(Kind::Ah, MAX_AH);
pub(crate) static BACKLOG: Pool = Pool::new(Kind::Backlog, MAX_BACKLOG);
pub(crate) static CQS: Pool = Pool::new(Kind::Cq, MAX_OBJECTS);
pub(crate) static FETCHES: Pool = Pool::new(Kind::Fetch, MAX_FETCHES);
pub(crate) static MRS: Pool = Pool::new(Kind::Mr, MAX_OBJECTS);
pub(crate) static MWS: Pool = Pool::new(Kind::Mw, MAX_OBJECTS);
pub(crate) static PDS: Pool = Pool::new(Kind::Pd, MAX_PD);
pub(crate) static QPS: Pool = Pool::new(Kind::Qp, MAX_OBJECTS);
pub(crate) static SRQS: Pool = Pool::new(Kind::Srq, MAX_OBJECTS);

impl Pool {
    /// Creates an unused pool.
    pub(crate) const fn new(kind: Kind, max: u32) -> Self {
        Self {
            kind,
            used: Atomic::new(0),
            kernel: Atomic::new(0),
            max,
        }
    }

    /// Takes `n` entries for a process, or for a kernel consumer (`None`). Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if fewer entries are left, in the pool or in the share of the process.
    pub(crate) fn take(&self, owner: Option<&Owner>, n: u32) -> Result {
        // Count first, so that concurrent callers for one process or user see each other.
        let held = self.held(owner, |count| count.fetch_add(n, Relaxed));
        let mut used = self.used.load(Relaxed);
        while self.allows(owner, n, used, held) {
            match self.used.cmpxchg(used, used.wrapping_add(n), Relaxed) {
                Ok(_) => return Ok(()),
                Err(current) => used = current,
            }
        }
        self.uncount(owner, n);
        Err(ENOMEM)
    }

    /// Takes `n` entries without a check. The caller has checked that there is
    /// [room](Self::has_room) and excludes concurrent calls, or another limit bounds these entries.
    pub(crate) fn count(&self, owner: Option<&Owner>, n: u32) {
        self.used.add(n, Relaxed);
        self.held(owner, |count| count.fetch_add(n, Relaxed));
    }

    /// Returns whether a process, or a kernel consumer, could take an entry.
    pub(crate) fn has_room(&self, owner: Option<&Owner>) -> bool {
        let held = self.held(owner, |count| count.load(Relaxed));
        self.allows(owner, 1, self.used.load(Relaxed), held)
    }

    /// Applies `access` to the entries of a process and to those of its user, or to those of all
    /// kernel consumers. Returns its results.
    fn held(&self, owner: Option<&Owner>, access: impl Fn(&Atomic<u32>) -> u32) -> share::Held {
        share::Held {
            process: access(owner.map_or(&self.kernel, |owner| owner.process.of(self.kind))),
            user: owner.map_or(0, |owner| access(owner.user.held.of(self.kind))),
        }
    }

    /// Returns the number of entries in use.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns whether `n` more entries may be taken if `used` are in use.
    fn allows(&self, owner: Option<&Owner>, n: u32, used: u32, held: share::Held) -> bool {
        let all = self.max.saturating_sub(used);
        match owner {
            Some(owner) if !owner.is_privileged => {
                share::may_take(n, share::left(self.max, used), held)
            }
            _ if self.kind.is_for_privileged() => n <= all,
            _ => share::may_take(n, all, share::Held { user: 0, ..held }),
        }
    }

    /// Returns `n` entries to the pool. Callable in any context.
    pub(crate) fn give_back(&self, owner: Option<&Owner>, n: u32) {
        let _ = self.used.fetch_sub(n, Relaxed);
        self.uncount(owner, n);
    }

    fn uncount(&self, owner: Option<&Owner>, n: u32) {
        self.held(owner, |count| count.fetch_sub(n, Relaxed));
    }
}

/// An entry of a pool that a process holds until this is dropped, which may happen in any context.
pub(crate) struct Charge {
    pool: &'static Pool,
    owner: Arc<Owner>,
}

impl Charge {
    /// Takes an entry for a process; a kernel consumer needs none. Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` as [`Pool::take`].
    pub(crate) fn new(pool: &'static Pool, owner: Option<&Arc<Owner>>) -> Result<Option<Self>> {
        let Some(owner) = owner else {
            return Ok(None);
        };
        pool.take(Some(owner), 1)?;
        Ok(Some(Self {
            pool,
            owner: owner.clone(),
        }))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.give_back(Some(&self.owner), 1);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(ferroce_pool)]
mod tests {
    use super::*;

    /// Takes entries for a kernel consumer, one by one. Returns how many it got.
    fn fill(pool: &Pool) -> usize {
        core::iter::from_fn(|| pool.take(None, 1).ok()).count()
    }

    #[test]
    fn kernel_consumers_get_half_of_backlog_pool() {
        let pool = Pool::new(Kind::Backlog, 100);

        assert_eq!(fill(&pool), 50);
        assert!(!pool.has_room(None));
        pool.give_back(None, 50);
        assert_eq!(pool.used(), 0);
        assert_eq!(fill(&pool), 50);
    }

    #[test]
    fn kernel_consumers_get_whole_pool_of_objects() {
        let pool = Pool::new(Kind::Membership, 100);

        assert_eq!(fill(&pool), 100);
        assert!(!pool.has_room(None));
    }
}
