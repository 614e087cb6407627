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
use crate::{
    globals,
    quota::{
        Charge,
        Quota, //
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
    sync::multi_table::mix, //
};
use roce::wr::MemError;

/// The most ranges of a process that are being fetched. Each has a worker, of which there are
/// 1,024: one process, which may let all of its own wait for ever, shall not have most of them.
const MAX_FETCHES: u32 = 64;

/// How many processes are told apart. Those that are not share a quota.
const PROCESSES: usize = 256;

/// How many ranges there are.
static FETCHES: [Quota; PROCESSES] = [const { Quota::of(MAX_FETCHES) }; PROCESSES];

/// A part of a region that is not there.
///
/// As a [`Target`], it lives for one packet.
pub(crate) struct Missing {
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
        let charge = charge(&memory)?;
        let result = globals::spawn(move || {
            let _charge = charge;
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

/// Takes one of [`FETCHES`].
///
/// # Errors
///
/// `EAGAIN` if there are too many of the process that has the memory.
pub(super) fn charge(memory: &Paged) -> Result<Charge<&'static Quota>> {
    // CAST: Less than `PROCESSES`.
    let index = (mix(0, memory.process()) % PROCESSES as u64) as usize;
    let quota = FETCHES.get(index).ok_or(EAGAIN)?;
    Charge::new(quota).map_err(|_| EAGAIN)
}
