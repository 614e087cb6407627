// SPDX-License-Identifier: GPL-2.0

//! Memory that has to be fetched before it can be used.
//!
//! A process may keep the kernel waiting for its memory for as long as it likes: the process itself
//! may serve its pages, as a file system (FUSE) or as a handler of page faults (userfaultfd). So a
//! fetch of a packet holds neither a queue pair nor a region, only the address range. Only the
//! unloading of the module waits for it. Verbs that fetch memory (`reg_user_mr`, `advise_mr`) also
//! delay the removal of the device, until the process is killed.

use super::target::{
    mem_error,
    Target, //
};
use crate::{
    pool::{
        self,
        Charge, //
    },
    work::{
        self,
        WakeQp, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::umem::{
        Fetch,
        Paged, //
    },
    sync::semaphore::{
        Permit,
        Waiter, //
    }, //
};
use roce::wr::MemError;

/// A part of a region that is absent.
///
/// Like a [`Target`], it lives for one packet.
pub(crate) struct OdpFault {
    /// Declared, and so dropped, before `target`: dropping the last reference sleeps, and as long
    /// as the region holds one, this is not the last.
    pub(super) memory: Arc<Paged>,
    pub(super) target: Target,
    pub(super) at: u64,
    /// The number of bytes that are needed.
    pub(super) len: u64,
    /// The number of bytes behind them that are likely to be needed next.
    pub(super) ahead: u64,
    pub(super) write: bool,
}

/// The result of an attempt to start a fetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// The fetch is in progress.
    Fetching,
    /// The process has reached its limit of fetches. The waiter is called when there is a permit;
    /// the fetch must be started again then.
    Waiting,
}

impl OdpFault {
    /// Starts to fetch the memory, and calls `done` in process context without any lock held as
    /// soon as the memory that is needed is present.
    /// Callable with bottom halves on or off. Without a `waiter`, the fetch does not wait for a
    /// permit.
    ///
    /// `done` gets [`MemError::Protection`] if the process has no such memory, and
    /// [`MemError::Fault`] if the memory could not be fetched. After success, the memory may
    /// already be absent again.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EAGAIN` if no permit is available, and the fetch does not wait for one;
    /// `ESHUTDOWN` if the module is being unloaded.
    pub(crate) fn fetch(
        self,
        waiter: Option<&mut Waiter<WakeQp>>,
        done: impl FnOnce(Result<(), MemError>) + Send + 'static,
    ) -> Result<Started> {
        let Self {
            target,
            memory,
            at,
            len,
            ahead,
            write,
        } = self;
        let Some(permit) = FetchPermit::take(&target, waiter)? else {
            return Ok(Started::Waiting);
        };
        let result = work::spawn(move || {
            let _permit = permit;
            let how = if write { Fetch::Write } else { Fetch::Read };
            let result = memory.fetch(at, len, how);
            let ahead = if result.is_ok() { ahead } else { 0 };
            done(result.map_err(mem_error));
            // Only now: this may wait for a file system, for which the half must not wait.
            memory.fetch_ahead(at.saturating_add(len), ahead, how);
        });
        // Drop this only now: if `spawn` failed, it has dropped `memory`. That must not be the last
        // reference, because this context may not be allowed to sleep.
        drop(target);
        result.map(|()| Started::Fetching)
    }
}

/// The permit for one fetch of a process and of its user, returned when this is dropped.
pub(super) struct FetchPermit {
    /// Dropped first: the returned permit wakes a waiter, which needs a charge.
    _charge: Option<Charge>,
    _permit: Option<Permit<WakeQp>>,
}

impl FetchPermit {
    /// Takes a permit for the process that has the memory of a region. Returns `None` if the
    /// process has reached its limit; the waiter is then called later.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the user has used up its share or, without a `waiter`, the process has reached
    /// its limit. Running fetches may never end, so the caller must not wait for them.
    pub(super) fn take(
        target: &Target,
        waiter: Option<&mut Waiter<WakeQp>>,
    ) -> Result<Option<Self>> {
        let owner = target.mr().owner.as_ref();
        let permit = match (owner, waiter) {
            (None, _) => None,
            (Some(owner), None) => Some(owner.fetches.try_acquire().ok_or(EAGAIN)?),
            (Some(owner), Some(waiter)) => match owner.fetches.acquire(waiter) {
                Some(permit) => Some(permit),
                None => return Ok(None),
            },
        };
        // If this fails, the permit passes to the next waiter.
        let charge = Charge::new(&pool::FETCHES, owner).map_err(|_| EAGAIN)?;
        Ok(Some(Self {
            _charge: charge,
            _permit: permit,
        }))
    }
}
