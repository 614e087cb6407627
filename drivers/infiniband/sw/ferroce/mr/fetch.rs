// SPDX-License-Identifier: GPL-2.0

//! Memory that has to be fetched before it can be used.
//!
//! A process may keep the kernel waiting for its memory for as long as it likes: a page may come
//! from a file system, or from a handler of page faults, that is the process itself. So a fetch
//! holds neither a queue pair nor a region, only the address range. Only the removal of the module
//! waits for it.

use super::target::{
    mem_error,
    Target, //
};
use crate::{
    pool::{
        self,
        Charge, //
    },
    work, //
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

/// A part of a region that is not there.
///
/// As a [`Target`], it lives for one packet.
pub(crate) struct OdpFault {
    /// Before `target`, as fields are dropped in this order: dropping the last reference sleeps,
    /// and that of the region keeps this one from being it.
    pub(super) memory: Arc<Paged>,
    pub(super) target: Target,
    pub(super) at: u64,
    /// Bytes that are needed.
    pub(super) len: u64,
    /// Bytes behind them that are likely to be needed next.
    pub(super) ahead: u64,
    pub(super) write: bool,
}

/// The result of an attempt to start a fetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// It is in progress.
    Fetching,
    /// The process has the most fetches that it may have. The waiter is called when it has a
    /// permit, to start the fetch again.
    Waiting,
}

impl OdpFault {
    /// Starts to fetch the memory, and calls `done` in process context without any lock held.
    /// Callable with bottom halves on or off. Without a `waiter` it does not wait for a permit.
    ///
    /// `done` gets [`MemError::Protection`] if the process has no such memory, and
    /// [`MemError::Fault`] if it could not be fetched. After success it may be absent again.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if that is not possible now, `EAGAIN` if it would have to wait for a permit,
    /// `ESHUTDOWN`.
    pub(crate) fn fetch(
        self,
        waiter: Option<&mut Waiter>,
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
            if result.is_ok() {
                memory.fetch_ahead(at.saturating_add(len), ahead, how);
            }
            done(result.map_err(mem_error));
        });
        // Not before: if that failed it has dropped `memory`, in whatever context this is.
        drop(target);
        result.map(|()| Started::Fetching)
    }
}

/// One fetch of a process and of its user, given back when it is dropped.
pub(super) struct FetchPermit {
    _permit: Option<Permit>,
    _charge: Option<Charge>,
}

impl FetchPermit {
    /// Takes a fetch for the process that has a region. Returns `None` if the process has the most
    /// that it may have; the waiter is then called later.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the user, or without a `waiter` the process, has too many: those may wait for
    /// ever.
    pub(super) fn take(target: &Target, waiter: Option<&mut Waiter>) -> Result<Option<Self>> {
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
            _permit: permit,
            _charge: charge,
        }))
    }
}
