// SPDX-License-Identifier: GPL-2.0

//! Commands of the peer that access memory in one step: atomic operations, ATOMIC WRITE and FLUSH.

use crate::mr::{
    self,
    OdpFault, //
};
use kernel::sync::{
    atomic::Full,
    barrier::smp_mb, //
};
use rdma::ib::{
    object::PdId,
    Access, //
};
use roce::{
    responder::{
        Action,
        Command, //
    },
    wr::MemError, //
};

/// The size of a word, in bytes.
const WORD: u64 = 8;

/// Executes a command for queue pair `qpn`, once. Returns the original value for an atomic
/// operation, and 0 for others.
///
/// Called under the lock of the receive half, which orders it after earlier WRITEs of the peer. For
/// other observers, it is one atomic instruction.
///
/// # Errors
///
/// [`MemError::Protection`] if the key or the memory does not allow it; [`MemError::Misaligned`] if
/// the word is not aligned; [`MemError::Length`] if the payload is too short;
/// [`MemError::NotPresent`] if the memory has to be fetched first.
pub(super) fn execute(
    command: &Command,
    payload: &[u8],
    pd: PdId,
    qpn: u32,
) -> Result<u64, MemError> {
    let find = |access| mr::find_remote(command.rkey.get(), pd, qpn, access);

    match command.action {
        Action::CompareSwap { compare, swap } => {
            let target = find(Access::REMOTE_ATOMIC)?;
            let at = target.offset(command.va, WORD)?;
            target.compare_swap(at, compare, swap)
        }
        Action::FetchAdd { add } => {
            let target = find(Access::REMOTE_ATOMIC)?;
            let at = target.offset(command.va, WORD)?;
            target.fetch_add(at, add)
        }
        Action::Store => {
            let word = payload.first_chunk().ok_or(MemError::Length)?;
            let target = find(Access::REMOTE_WRITE)?;
            let at = target.offset(command.va, WORD)?;
            // The bytes are stored as they are: their order is up to the application.
            target.store(at, u64::from_ne_bytes(*word))?;
            Ok(0)
        }
        Action::Flush { len, feth } => {
            let global = Access::FLUSH_GLOBAL.when(feth.global());
            // Fails if it is selected: no region is registered with the right.
            let persistent = Access::FLUSH_PERSISTENT.when(feth.persistent());
            let target = find(global.or(persistent))?;
            if !feth.whole() {
                target.offset(command.va, u64::from(len))?;
            }
            smp_mb(Full);
            Ok(0)
        }
    }
}

/// Returns the fault to resolve before a command can be executed.
///
/// # Errors
///
/// See [`execute`].
#[cold]
pub(super) fn odp_fault(
    command: &Command,
    pd: PdId,
    qpn: u32,
) -> Result<Option<OdpFault>, MemError> {
    let access = match command.action {
        Action::CompareSwap { .. } | Action::FetchAdd { .. } => Access::REMOTE_ATOMIC,
        Action::Store => Access::REMOTE_WRITE,
        Action::Flush { .. } => return Ok(None),
    };
    let target = mr::find_remote(command.rkey.get(), pd, qpn, access)?;
    let at = target.offset(command.va, WORD)?;
    Ok(target.odp_fault(at, WORD, 0, true))
}
