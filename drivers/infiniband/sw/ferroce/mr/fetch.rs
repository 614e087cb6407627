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
    sync::Arc, //
};
use rdma::{
    ib::umem::{
        Fetch,
        Paged, //
    },
    siphash::HashKey,
    sync::{
        semaphore::{
            Permit,
            Semaphore,
            Waiter, //
        },
        Global, //
    }, //
};
use roce::wr::MemError;

/// The most ranges of a process that are being fetched. Each has a worker, of which there are
/// 1,024: one process, which may let all of its own wait for ever, shall not have most of them.
const MAX_FETCHES: u32 = 64;

/// How many processes are told apart. Those that are not share a semaphore.
const PROCESSES: usize = 256;

static FETCHES: Global<Fetches> = Global::new();

/// Permits to fetch.
#[pin_data]
struct Fetches {
    hash: HashKey,
    /// By process.
    #[pin]
    processes: [Semaphore; PROCESSES],
}

/// Constructs the semaphores. Once, before any region exists.
pub(crate) fn init() -> Result {
    FETCHES.init::<core::convert::Infallible>(pin_init!(Fetches {
        hash: HashKey::random(),
        processes <- pin_init::pin_init_array_from_fn(|_| Semaphore::new(MAX_FETCHES)),
    }))
}

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

/// What became of a fetch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// It is under way.
    Fetching,
    /// Others of the process are, as many as there may be. The waiter is called when its turn has
    /// come to start the fetch again.
    Waiting,
}

impl Missing {
    /// Has the memory fetched, then calls `done` in process context without any lock held. Callable
    /// with bottom halves on or off. Without a `waiter` it does not wait for a turn.
    ///
    /// `done` gets [`MemError::Protection`] if the process has no such memory, and
    /// [`MemError::Fault`] if it could not be fetched. After success it may have gone again.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if that is not possible now, `EAGAIN` if it would have to wait for a turn,
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
        let permit = match waiter {
            Some(waiter) => match semaphore(&memory)?.acquire(waiter) {
                Some(permit) => permit,
                None => return Ok(Started::Waiting),
            },
            None => permit(&memory)?,
        };
        let result = globals::spawn(move || {
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

/// Returns the permits of the process that has the memory.
fn semaphore(memory: &Paged) -> Result<&'static Semaphore> {
    let fetches = FETCHES.get().ok_or(ENODEV)?;
    let index = fetches.hash.bucket([memory.process(), 0, 0], PROCESSES);
    fetches.processes.get(index).ok_or(EINVAL)
}

/// Takes a permit of the process that has the memory, without waiting.
///
/// # Errors
///
/// `EAGAIN` if there is none left.
pub(super) fn permit(memory: &Paged) -> Result<Permit> {
    semaphore(memory)?.try_acquire().ok_or(EAGAIN)
}
