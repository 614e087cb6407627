// SPDX-License-Identifier: GPL-2.0

//! Processes and users, and their use of the shared pools.
//!
//! A process is identified by its user context: its objects, and the packets that wait for it, are
//! charged to the [`Owner`] of the context. All contexts of a user share a [`User`].

use crate::work::WakeQp;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use rdma::{
    cred::{
        self,
        UserId, //
    },
    list,
    sync::{
        semaphore::Semaphore,
        Global, //
    }, //
};

/// The maximum number of ranges of a process' memory that are fetched concurrently. Each occupies a
/// worker, and the process can make all of its workers wait forever.
const MAX_FETCHES: u32 = 64;

/// The users that have contexts. Those without are removed when the next context is created.
static USERS: Global<Mutex<KVec<Arc<User>>>> = Global::new();

/// The kind of the entries of a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Address handles.
    Ah,
    /// Bytes of packets that wait.
    Backlog,
    /// Completion queues.
    Cq,
    /// Ranges of memory that are being fetched.
    Fetch,
    /// Memberships in multicast groups.
    Membership,
    /// Memory regions.
    Mr,
    /// Memory windows.
    Mw,
    /// Protection domains.
    Pd,
    /// Queue pairs.
    Qp,
    /// Shared receive queues.
    Srq,
}

impl Kind {
    /// The number of kinds.
    pub(crate) const COUNT: usize = 10;

    /// Returns whether a process with `CAP_SYS_RESOURCE` may use the whole pool. The use of the
    /// other pools depends on packets and on the memory of the process, so it grows while a process
    /// waits.
    pub(crate) fn is_for_privileged(self) -> bool {
        !matches!(self, Self::Backlog | Self::Fetch)
    }
}

/// The amounts that are held of each pool.
pub(crate) struct Held([Atomic<u32>; Kind::COUNT]);

impl Held {
    const fn new() -> Self {
        Self([const { Atomic::new(0) }; Kind::COUNT])
    }

    /// Returns the amount that is held of a pool.
    pub(crate) fn of(&self, kind: Kind) -> &Atomic<u32> {
        let [ah, backlog, cq, fetch, membership, mr, mw, pd, qp, srq] = &self.0;
        match kind {
            Kind::Ah => ah,
            Kind::Backlog => backlog,
            Kind::Cq => cq,
            Kind::Fetch => fetch,
            Kind::Membership => membership,
            Kind::Mr => mr,
            Kind::Mw => mw,
            Kind::Pd => pd,
            Kind::Qp => qp,
            Kind::Srq => srq,
        }
    }
}

/// A user, and the amounts that all of its processes hold.
pub(crate) struct User {
    pub(crate) id: UserId,
    /// The number of [`Owner`]s. Incremented under the lock of [`USERS`].
    owners: Atomic<u32>,
    pub(crate) held: Held,
}

/// A process, and the amounts that it holds. Its context, its objects and its charges have
/// references to it; the last reference may be dropped in any context.
pub(crate) struct Owner {
    pub(crate) user: Arc<User>,
    /// True if it may exceed the share of a user.
    pub(crate) is_privileged: bool,
    /// The amounts that this process holds.
    pub(crate) process: Held,
    /// A permit for each range of its memory that is being fetched.
    pub(crate) fetches: Arc<Semaphore<WakeQp>>,
}

impl Owner {
    /// Creates the owner of a context of the calling process. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn of_caller() -> Result<Arc<Self>> {
        let id = UserId::of_caller();
        let fetches = Semaphore::new(MAX_FETCHES)?;
        let mut list = USERS.get().ok_or(ENODEV)?.lock();
        // A user without owners is referred to only by the list and, briefly, by the drop of its
        // last owner.
        list::retain(&mut list, |user| user.owners.load(Relaxed) > 0);
        let user = match list.iter().find(|user| user.id == id) {
            Some(user) => user.clone(),
            None => {
                let user = Arc::new(
                    User {
                        id,
                        owners: Atomic::new(0),
                        held: Held::new(),
                    },
                    GFP_KERNEL_ACCOUNT,
                )?;
                list::push(&mut list, user.clone(), GFP_KERNEL)?;
                user
            }
        };
        user.owners.add(1, Relaxed);
        // If the allocation below fails, the owner is dropped, and no longer counted.
        let owner = Self {
            user,
            is_privileged: cred::may_exceed_limits(),
            process: Held::new(),
            fetches,
        };
        Ok(Arc::new(owner, GFP_KERNEL_ACCOUNT)?)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.user.owners.fetch_sub(1, Relaxed);
    }
}

/// Constructs the list of users. Called once, before any device exists.
pub(crate) fn init() -> Result {
    USERS.init(new_mutex!(KVec::new(), "ferroce::owner"))
}

/// Frees the list of users, none of which has a context any more.
pub(crate) fn shut_down() {
    if let Some(users) = USERS.get() {
        *users.lock() = KVec::new();
    }
}
