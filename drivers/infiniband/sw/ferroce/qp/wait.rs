// SPDX-License-Identifier: GPL-2.0

//! Halves that wait for memory.
//!
//! Absent memory on demand is fetched in another context ([`OdpFault::fetch`]), which reports the
//! end by number. Meanwhile the half goes on with work that does not depend on it. A report of an
//! earlier round is ignored.
//!
//! The fetches of a process at a time are bounded. The send half waits for a permit: the work item
//! runs it when it has one, and no timer is needed. The receive half does not wait, since packets
//! would wait with it: it drops one, and the peer sends it again.
//!
//! Documentation/infiniband/ferroce/locking.rst has the whole of it, under *Memory on demand*.

use super::find;
use crate::{
    device::{
        IbQp,
        QpRef, //
    },
    mr::{
        OdpFault,
        Started, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::sync::semaphore;
use roce::{
    opcode::Opcode,
    wr::MemError, //
};

/// The callback at the end of a round: the memory was fetched, or an error. Process context, no
/// lock held.
pub(super) type Report = fn(&QpRef, u64, Result<(), MemError>);

/// The wait of a half for memory, under its lock.
pub(crate) struct OdpWait {
    round: u64,
    state: WaitState,
    /// The waiter for permits; a half without one does not wait for a permit.
    permit: Option<semaphore::Waiter>,
}

/// The last round of all halves. Unique over all halves: by the time of a report, the queue pair
/// number may be that of another one.
static ROUNDS: Atomic<u64> = Atomic::new(0);

enum WaitState {
    /// Nothing.
    No,
    /// A permit to fetch.
    Permit,
    /// Memory that is being fetched.
    Fetching { what: u32 },
    /// Nothing: the fetch failed.
    Failed { what: u32, error: MemError },
}

impl OdpWait {
    /// Makes the wait of a half that does not wait for permits.
    pub(crate) const fn new() -> Self {
        Self {
            round: 0,
            state: WaitState::No,
            permit: None,
        }
    }

    /// Makes the wait of a half that does. `callback(qpn)` is called when there is a permit, and
    /// makes the half run. May sleep.
    pub(crate) fn with_permits(callback: fn(u32), qpn: u32) -> Result<Self> {
        Ok(Self {
            permit: Some(semaphore::Waiter::new(callback, qpn)?),
            ..Self::new()
        })
    }

    /// Returns whether memory is being fetched, or others' is and this has to wait for that.
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

    /// Starts to fetch memory, now or when there is a permit, and then calls `report`. `what`
    /// identifies the packet or response that the memory is for.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if it would have to wait for a permit and does not, or another if that is not
    /// possible now.
    pub(crate) fn start(
        &mut self,
        qp: &IbQp,
        what: u32,
        fault: OdpFault,
        report: Report,
    ) -> Result {
        self.begin_round();
        let (qpn, round) = (qp.qpn, self.round);
        let done = move |result| {
            if let Some(qp) = find(qpn) {
                report(&qp, round, result);
            }
        };
        self.state = match fault.fetch(self.permit.as_mut(), done)? {
            Started::Fetching => WaitState::Fetching { what },
            Started::Waiting => WaitState::Permit,
        };
        Ok(())
    }

    /// Ends a run of the half. A permit that it did not use is passed on.
    #[inline]
    pub(crate) fn give_up_permit(&mut self) {
        if matches!(self.state, WaitState::Permit) && !self.is_pending() {
            self.cancel();
        }
    }

    /// Takes the report of a round; returns whether the half waits for it.
    pub(crate) fn finish(&mut self, round: u64, result: Result<(), MemError>) -> bool {
        let WaitState::Fetching { what } = self.state else {
            return false;
        };
        if round != self.round {
            return false;
        }
        self.state = match result {
            Ok(()) => WaitState::No,
            Err(error) => WaitState::Failed { what, error },
        };
        true
    }

    /// Returns why memory for this could not be fetched, once.
    pub(crate) fn take_failure(&mut self, what: u32) -> Option<MemError> {
        match self.state {
            WaitState::Failed {
                what: failed,
                error,
            } if failed == what => {
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

/// Returns how many bytes behind its payload a packet makes likely to be needed.
pub(super) fn ahead(opcode: Opcode) -> u64 {
    const AHEAD: u64 = 64 << 10;

    if opcode.ends_message() {
        0
    } else {
        AHEAD
    }
}
