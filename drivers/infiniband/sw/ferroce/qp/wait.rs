// SPDX-License-Identifier: GPL-2.0

//! Halves that wait for memory.
//!
//! The end of a fetch ([`OdpFault::fetch`]) is reported to the queue pair by number, and ignored if
//! it is of an earlier round. Documentation/infiniband/ferroce/locking.rst describes all of this
//! under *Memory on demand*.

use super::find;
use crate::{
    device::{
        IbQp,
        QpRef, //
    },
    mr::{
        OdpFault,
        Started, //
    },
    work::WakeQp, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::sync::semaphore::Waiter;
use roce::{
    opcode::Opcode,
    wr::MemError, //
};

/// The callback at the end of a round, with the result of the fetch. Process context, no lock held.
pub(super) type Report = fn(&QpRef, u64, Result<(), MemError>);

/// The wait of a half for memory, under its lock.
pub(crate) struct OdpWait {
    round: u64,
    state: WaitState,
    /// The waiter for permits; a half without one does not wait for a permit.
    permit: Option<Waiter<WakeQp>>,
}

/// The last round of any half. Rounds are unique among all halves, because the QPN may have been
/// reused when a report arrives.
static ROUNDS: Atomic<u64> = Atomic::new(0);

enum WaitState {
    /// The half does not wait.
    No,
    /// The half waits for a permit to fetch.
    Permit,
    /// The half waits for memory that is being fetched.
    Fetching { psn: u32 },
    /// The half does not wait: the fetch failed.
    Failed { psn: u32, error: MemError },
}

impl OdpWait {
    /// Creates the wait of a half that does not wait for permits.
    pub(crate) const fn new() -> Self {
        Self {
            round: 0,
            state: WaitState::No,
            permit: None,
        }
    }

    /// Creates the wait of a half that waits for permits. `waker` runs it when there is one.
    /// May sleep.
    pub(crate) fn with_permits(waker: WakeQp) -> Result<Self> {
        Ok(Self {
            permit: Some(Waiter::new(waker)?),
            ..Self::new()
        })
    }

    /// Returns whether the half waits for a fetch, or for a permit.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        match self.state {
            WaitState::No | WaitState::Failed { .. } => false,
            WaitState::Permit => self
                .permit
                .as_ref()
                .is_some_and(|permit| permit.is_waiting()),
            WaitState::Fetching { .. } => true,
        }
    }

    /// Returns whether a fetch is running; the number of concurrent fetches is limited.
    pub(crate) fn is_fetching(&self) -> bool {
        matches!(self.state, WaitState::Fetching { .. })
    }

    /// Starts to fetch memory, and has `report` called at the end. If there is no permit, the half
    /// waits for one, and must then call this again. `psn` is that of the packet or response that
    /// needs the memory, for [`take_failure`](Self::take_failure).
    ///
    /// # Errors
    ///
    /// Those of [`OdpFault::fetch`].
    pub(crate) fn start(&mut self, qp: &IbQp, psn: u32, fault: OdpFault, report: Report) -> Result {
        self.begin_round();
        let (qpn, round) = (qp.qpn, self.round);
        let done = move |result| {
            if let Some(qp) = find(qpn) {
                report(&qp, round, result);
            }
        };
        self.state = match fault.fetch(self.permit.as_mut(), done)? {
            Started::Fetching => WaitState::Fetching { psn },
            Started::Waiting => WaitState::Permit,
        };
        Ok(())
    }

    /// Releases a permit that was not used, and drops the result of a failed fetch: its packet was
    /// sent meanwhile, or can fault again. Called at the end of a run with no work left.
    #[inline]
    pub(crate) fn end_run(&mut self) {
        match self.state {
            WaitState::Permit if !self.is_pending() => self.cancel(),
            WaitState::Failed { .. } => self.state = WaitState::No,
            _ => {}
        }
    }

    /// Takes the report of a round; returns whether the half waits for it.
    pub(crate) fn finish(&mut self, round: u64, result: Result<(), MemError>) -> bool {
        let WaitState::Fetching { psn } = self.state else {
            return false;
        };
        if round != self.round {
            return false;
        }
        self.state = match result {
            Ok(()) => WaitState::No,
            Err(error) => WaitState::Failed { psn, error },
        };
        true
    }

    /// Returns the error of the failed fetch for `psn`, once.
    pub(crate) fn take_failure(&mut self, psn: u32) -> Option<MemError> {
        match self.state {
            WaitState::Failed { psn: failed, error } if failed == psn => {
                self.state = WaitState::No;
                Some(error)
            }
            _ => None,
        }
    }

    /// Ends the wait.
    pub(crate) fn cancel(&mut self) {
        self.begin_round();
        if let Some(permit) = &mut self.permit {
            permit.leave();
        }
    }

    /// Forgets earlier rounds.
    fn begin_round(&mut self) {
        self.round = ROUNDS.fetch_add(1, Relaxed);
        self.state = WaitState::No;
    }
}

/// The maximum number of bytes behind the payload of a packet that are fetched with it.
const AHEAD: u64 = 64 << 10;

/// Returns the number of bytes to fetch behind a payload of `len` bytes, if `rest` bytes of the
/// message remain from the beginning of the payload.
pub(super) fn ahead_in_message(rest: u32, len: u32) -> u64 {
    AHEAD.min(rest.saturating_sub(len).into())
}

/// Returns the maximum number of bytes to fetch behind the payload of a packet. The caller limits
/// it to the length of the buffers.
pub(super) fn ahead(opcode: Opcode) -> u64 {
    if opcode.ends_message() {
        0
    } else {
        AHEAD
    }
}
