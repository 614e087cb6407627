// SPDX-License-Identifier: GPL-2.0

//! Memory that has to be fetched before it can be used.
//!
//! A process may keep the kernel waiting for its memory for as long as it likes: a page may come
//! from a file system, or from a handler of page faults, that is the process itself. So whoever
//! fetches holds neither a queue pair nor a region, only the address range, and nothing that a
//! process or an administrator does but the removal of the module waits for it.

use super::target::{
    mem_error,
    Target, //
};
use crate::globals;
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
use rdma::ib::umem::{
    Fetch,
    Paged, //
};
use roce::wr::MemError;

/// The most ranges that are being fetched, of all processes.
const MAX_FETCHES: u32 = 1 << 14;

/// How many there are.
static FETCHES: Atomic<u32> = Atomic::new(0);

/// A part of a region that is not there.
///
/// As a [`Target`], it lives for one packet.
pub(crate) struct Missing {
    /// The region, whose own reference to `memory` keeps this one from being the last: dropping
    /// that one sleeps.
    pub(super) target: Target,
    pub(super) memory: Arc<Paged>,
    pub(super) at: u64,
    /// Bytes that are needed.
    pub(super) len: u64,
    /// Bytes behind them that are likely to be needed next.
    pub(super) ahead: u64,
    pub(super) write: bool,
}

impl Missing {
    /// Has the memory fetched, then calls `done` in process context without any lock held. Callable
    /// in any context.
    ///
    /// `done` gets [`MemError::Protection`] if the process has no such memory, and
    /// [`MemError::Fault`] if it could not be fetched. After success it may have gone again.
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EAGAIN` if that is not possible now, `ESHUTDOWN`.
    pub(crate) fn fetch(self, done: impl FnOnce(Result<(), MemError>) + Send + 'static) -> Result {
        let Self {
            target,
            memory,
            at,
            len,
            ahead,
            write,
        } = self;
        let counted = Counted::new()?;
        let result = globals::spawn(move || {
            let _counted = counted;
            let how = if write { Fetch::Write } else { Fetch::Read };
            let result = memory.fetch(at, len, how);
            if result.is_ok() {
                memory.fetch_ahead(at.saturating_add(len), ahead, how);
            }
            done(result.map_err(mem_error));
        });
        // Not before: if that failed it has dropped `memory`, in whatever context this is.
        drop(target);
        result
    }
}

/// One of [`FETCHES`].
pub(super) struct Counted(());

impl Counted {
    /// # Errors
    ///
    /// `EAGAIN` if there are too many.
    pub(super) fn new() -> Result<Self> {
        if FETCHES.load(Relaxed) >= MAX_FETCHES {
            return Err(EAGAIN);
        }
        FETCHES.fetch_add(1, Relaxed);
        Ok(Self(()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        FETCHES.fetch_sub(1, Relaxed);
    }
}
