// SPDX-License-Identifier: GPL-2.0

//! Hand-off of the send half of an RC queue pair between contexts, while it waits for its peer.
//!
//! Usually the context that takes a response runs the half at once. If the peer is on the same
//! host, that is the CPU that sent the request: it then does the work of both sides, and the poster
//! can only wait. For one queue pair this is right, as the two CPUs work at the same time. But if
//! one process posts to several queue pairs, all of them may end up on one CPU. So a process that
//! posts faster than its queue pairs can send requests a hand-off for one of them after the other:
//! to its own CPU, or, if that is the one that works already, to the CPU that the scheduler finds
//! for the work item.
//!
//! ```text
//!             request               response on another CPU
//!   Response ---------> Requested --------------------------> PostSend
//!      ^                 { cpu } |  response on that CPU
//!      |                         +--------------------------> WorkItem
//!      |                                                         |
//!      +---------------- any context runs the half --------------+
//! ```
//!
//! Any context may run the half in any state. Nothing relies on the poster: whenever the half is
//! handed off the work item is queued.

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    barrier::{
        smp_mb,
        Full, //
    }, //
};

/// The context that is to run the half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Runner {
    /// The one that takes a response.
    #[default]
    Response,
    /// The same, once more: the poster on this CPU has requested a hand-off.
    Requested {
        /// Number of the CPU.
        cpu: u32,
    },
    /// The poster at its next doorbell, or else the work item.
    PostSend,
    /// The work item.
    WorkItem,
}

/// The next step of a context that has taken a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the half: send what may be sent by now, and complete what is over.
    Run,
    /// Queue the work item.
    Queue,
    /// Nothing: the work item is queued, or about to be.
    Nothing,
}

impl Runner {
    /// The number of [`Runner::Requested`] for CPU 0.
    const REQUESTED: u32 = 3;

    /// A response was taken on CPU `here`; returns the next runner, and what to do.
    #[inline]
    fn on_response(self, here: u32) -> (Runner, Next) {
        match self {
            Runner::Response => (self, Next::Run),
            Runner::Requested { cpu } if cpu == here => (Runner::WorkItem, Next::Queue),
            Runner::Requested { .. } => (Runner::PostSend, Next::Queue),
            Runner::PostSend | Runner::WorkItem => (self, Next::Nothing),
        }
    }

    /// Returns a number for it, to be kept in an atomic.
    #[inline]
    const fn to_raw(self) -> u32 {
        match self {
            Runner::Response => 0,
            Runner::PostSend => 1,
            Runner::WorkItem => 2,
            Runner::Requested { cpu } => Self::REQUESTED.saturating_add(cpu),
        }
    }

    /// Returns the runner of a number from [`Runner::to_raw`].
    #[inline]
    const fn from_raw(raw: u32) -> Runner {
        match raw {
            0 => Runner::Response,
            1 => Runner::PostSend,
            2 => Runner::WorkItem,
            requested => Runner::Requested {
                cpu: requested.saturating_sub(Self::REQUESTED),
            },
        }
    }
}

/// State of the hand-off: set if the half waits for its peer, and the context to run it next.
/// Written under the lock of the half, but for [`HandOff::request`], and read without.
pub(super) struct HandOff {
    stalled: Atomic<bool>,
    /// A [`Runner`].
    runner: Atomic<u32>,
}

impl HandOff {
    pub(super) const fn new() -> Self {
        Self {
            stalled: Atomic::new(false),
            runner: Atomic::new(Runner::Response.to_raw()),
        }
    }

    /// Says whether requests that are posted now have to wait, see [`Requester::is_stalled`].
    /// Returns whether they had to until now: then there may be requests of posters who relied on
    /// that.
    ///
    /// [`Requester::is_stalled`]: roce::requester::Requester::is_stalled
    #[inline]
    pub(super) fn set_stalled(&self, stalled: bool) -> bool {
        let was = self.stalled.load(Relaxed);

        if was != stalled {
            self.stalled.store(stalled, Relaxed);
        }
        let ends = was && !stalled;
        if ends {
            // Pairs with that of `is_stalled`: either this context finds the request from now on,
            // or the poster finds that the half does not wait.
            smp_mb(Full);
        }
        ends
    }

    /// Returns whether the half waits for its peer. Then it finds by itself what the caller has put
    /// into the send queue, once a response has come or is overdue; nothing of it could be sent
    /// before.
    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        smp_mb(Full);
        self.stalled.load(Relaxed)
    }

    /// Requests that the half moves away from the CPU that takes its responses, for a poster on
    /// `cpu`. A hint.
    pub(super) fn request(&self, cpu: u32) {
        let requested = Runner::Requested { cpu };
        // Any other state is the result of an earlier request.
        let _ = self
            .runner
            .cmpxchg(Runner::Response.to_raw(), requested.to_raw(), Relaxed);
    }

    /// Returns whether the half was handed to the poster. A hint.
    #[inline]
    pub(super) fn is_posters(&self) -> bool {
        self.get() == Runner::PostSend
    }

    /// A response was taken on a CPU; returns what to do next.
    #[inline]
    pub(super) fn on_response(&self, cpu: u32) -> Next {
        let runner = self.get();
        let (then, next) = runner.on_response(cpu);
        if then != runner {
            self.runner.store(then.to_raw(), Relaxed);
        }
        next
    }

    /// Some context runs the half.
    #[inline]
    pub(super) fn runs(&self) {
        if self.get() != Runner::Response {
            self.runner.store(Runner::Response.to_raw(), Relaxed);
        }
    }

    #[inline]
    fn get(&self) -> Runner {
        Runner::from_raw(self.runner.load(Relaxed))
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(ferroce_hand_off)]
mod tests {
    use super::*;

    #[test]
    fn the_half_is_handed_off_once_for_a_request() {
        let (runner, next) = Runner::Response.on_response(0);
        assert_eq!((runner, next), (Runner::Response, Next::Run));

        let requested = Runner::Requested { cpu: 1 };
        assert_eq!(requested.on_response(0), (Runner::PostSend, Next::Queue));
        assert_eq!(requested.on_response(1), (Runner::WorkItem, Next::Queue));
        for runner in [Runner::PostSend, Runner::WorkItem] {
            // Responses before any context runs the half.
            assert_eq!(runner.on_response(0), (runner, Next::Nothing));
        }
    }

    #[test]
    fn a_runner_is_its_number() {
        let cpus = [0, 1, 4095];
        for runner in [Runner::Response, Runner::PostSend, Runner::WorkItem]
            .into_iter()
            .chain(cpus.map(|cpu| Runner::Requested { cpu }))
        {
            assert_eq!(Runner::from_raw(runner.to_raw()), runner);
        }
    }
}
