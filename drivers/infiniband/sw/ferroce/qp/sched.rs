// SPDX-License-Identifier: GPL-2.0

//! Scheduling of the send half, which selects the context that runs it.
//!
//! The rules select one of three contexts: a poster, the softirq that takes a response, or the work
//! item. Timers and the ends of fetches run the half, too.
//!
//! - If a process posts and polls in turn, the poster runs the half at once, because this needs no
//!   wakeup.
//! - If a process keeps posting, the work item runs the half ([`doorbell`](crate::doorbell)). It is
//!   queued for a batch of doorbells, so that their packets leave in trains: by the 60th doorbell,
//!   or by a timer that the first one arms. Arming a CQ does not end a batch: ending it made no
//!   burst of requests faster, and READs of 64 bytes 5 % slower.
//! - If the timer ends one batch after another with a few doorbells, the process posts too slowly
//!   for batches, and the timer costs more than they gain. For some time, the first doorbell of
//!   each batch then queues the work item.
//! - If the round trip is long, the half waits for its peer nearly always, and the softirq of one
//!   CPU would send all data. Therefore a response leaves data to the work item, which runs on any
//!   CPU. The wakeup takes little time compared with the round trip.
//!
//! ```text
//!   is_deferred   post     post of a process that keeps posting
//!   false         run      batch, is_deferred = true
//!   true          batch    batch
//!
//!   batch: the first doorbell arms the timer, or queues the work item if the last batches were
//!   short; the 60th queues the work item; the others do nothing
//!   a run used up its budget: queue, is_deferred = true
//!   a response over a long round trip, and data to send: queue, is_deferred = true
//!   the work item has left no work, or the timer expires after a run has taken the batch:
//!   is_deferred = false
//! ```
//!
//! Any context may run the half at any time. A run starts a new batch before it looks at the send
//! queue, so it sees the requests of all doorbells of the old batch.
//!
//! Documentation/infiniband/ferroce/bench.rst has the gain of each rule. A poster does not check
//! whether the half waits for its peer, because such a rule gained nothing.
//!
//! A kernel consumer counts as a process that does not keep posting, also for datagrams. In a
//! context that must not run the half (`can_run()`), its request queues the work item. For the
//! datagrams of a process, the poster always runs the half, because the program may destroy the
//! address handle next. A modify in RTS and a destroy run the half themselves first.

use super::tx::BUDGET;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// The number of doorbells after which the work item is queued: the requests of a run.
const BATCH: u32 = BUDGET;

/// The longest wait for more doorbells, in nanoseconds.
pub(super) const BATCH_NS: u64 = 50_000;

/// The number of doorbells from which on a batch is worth its timer.
const SHORT: u32 = 16;

/// The maximum number of consecutive short batches that keep the timer in use. Batches that a
/// response ends do not count.
const MAX_SHORT: u32 = 4;

/// The number of batches after which the timer is tried again.
const UNTIMED: u32 = 64;

/// The shortest round-trip time from which on it is long, in nanoseconds.
const LONG_RTT_NS: u32 = 1_000_000;

/// The next step of a poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the half.
    Run,
    /// Queue the work item.
    Queue,
    /// Arm the timer to queue the work item after [`BATCH_NS`].
    Later,
    /// Nothing: the work item will run the half.
    Nothing,
}

/// Returns whether a response leaves data to the work item. `rtt` is the shortest round-trip time
/// in nanoseconds, if one was measured.
#[inline]
pub(super) fn defers_data(rtt: Option<u32>) -> bool {
    rtt.is_some_and(|rtt| rtt >= LONG_RTT_NS)
}

/// The scheduling of a send half.
///
/// Any context may change it. If two do at once, a poster may run the half although the work item
/// is queued, or the work item may be queued although the poster runs the half. This can cost a
/// wakeup, but loses no request: the poster runs the half, or its doorbell belongs to a batch.
pub(super) struct Sched {
    /// True if posters leave the half to the work item.
    is_deferred: Atomic<bool>,
    /// The number of doorbells of the current batch.
    batch: Atomic<u32>,
    /// The number of consecutive short batches, up to [`MAX_SHORT`]. Above it, [`MAX_SHORT`] plus
    /// the number of batches that are still not timed.
    short: Atomic<u32>,
}

impl Sched {
    pub(super) const fn new() -> Self {
        Self {
            is_deferred: Atomic::new(false),
            batch: Atomic::new(0),
            short: Atomic::new(0),
        }
    }

    /// Returns the next step of the poster of a request. Callable in any context.
    #[inline]
    pub(super) fn on_post(&self, keeps_posting: bool) -> Next {
        if keeps_posting {
            self.set_deferred(true);
        } else if !self.is_deferred.load(Relaxed) {
            return Next::Run;
        }
        // A full barrier: either the run that starts the next batch sees the request, or this
        // doorbell is the first of that batch.
        match self.batch.fetch_add(1, Full) {
            0 => self.begin_batch(),
            before if before.wrapping_add(1) == BATCH => {
                if self.short.load(Relaxed) <= MAX_SHORT {
                    self.short.store(0, Relaxed);
                }
                Next::Queue
            }
            _ => Next::Nothing,
        }
    }

    /// Returns the next step of the poster that begins a batch.
    #[inline]
    fn begin_batch(&self) -> Next {
        let short = self.short.load(Relaxed);
        if short <= MAX_SHORT {
            return Next::Later;
        }
        self.short.store(short.saturating_sub(1), Relaxed);
        Next::Queue
    }

    /// Ends the batch after [`BATCH_NS`]. Returns whether to queue the work item; if not, a run has
    /// taken the requests. Callable in any context.
    pub(super) fn on_timer(&self) -> bool {
        let before = self.short.load(Relaxed);
        let short = match self.batch.load(Relaxed) {
            0 => {
                // The work item would do the same.
                self.set_deferred(false);
                return false;
            }
            SHORT.. => 0,
            _ if before < MAX_SHORT => before.saturating_add(1),
            _ => MAX_SHORT + UNTIMED,
        };
        self.short.store(short, Relaxed);
        true
    }

    /// Begins a run, which sees all requests posted so far. The lock of the half is held.
    #[inline]
    pub(super) fn begin(&self) {
        if self.batch.load(Relaxed) != 0 {
            self.batch.xchg(0, Full);
        }
    }

    /// Records whether posters leave the half to the work item. If they do, the caller queues it,
    /// unless a batch will. Callable in any context.
    ///
    /// Stores the value only if it changes, because the cache line is shared with posters.
    #[inline]
    pub(super) fn set_deferred(&self, is_deferred: bool) {
        if self.is_deferred.load(Relaxed) != is_deferred {
            self.is_deferred.store(is_deferred, Relaxed);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(ferroce_sched)]
mod tests {
    use super::*;

    #[test]
    fn sustained_posting_is_deferred() {
        let sched = Sched::new();
        assert_eq!(sched.on_post(false), Next::Run);
        assert_eq!(sched.on_post(true), Next::Later);
        assert_eq!(sched.on_post(false), Next::Nothing);
        // A run by a response does not end the deferral.
        sched.begin();
        assert_eq!(sched.on_post(false), Next::Later);
        sched.begin();
        sched.set_deferred(false);
        assert_eq!(sched.on_post(false), Next::Run);
    }

    #[test]
    fn work_left_is_deferred() {
        let sched = Sched::new();
        sched.set_deferred(true);
        assert_eq!(sched.on_post(false), Next::Later);
    }

    #[test]
    fn poster_runs_half_although_batch_is_pending() {
        let sched = Sched::new();
        assert_eq!(sched.on_post(true), Next::Later);
        // The work item is done with earlier requests.
        sched.set_deferred(false);
        assert_eq!(sched.on_post(false), Next::Run);
    }

    #[test]
    fn response_over_long_round_trip_defers_data() {
        assert!(!defers_data(None));
        assert!(!defers_data(Some(LONG_RTT_NS - 1)));
        assert!(defers_data(Some(LONG_RTT_NS)));
    }

    #[test]
    fn doorbells_are_batched() {
        let sched = Sched::new();
        for _ in 0..3 {
            assert_eq!(sched.on_post(true), Next::Later);
            for _ in 2..BATCH {
                assert_eq!(sched.on_post(true), Next::Nothing);
            }
            assert_eq!(sched.on_post(true), Next::Queue);
            // The work item is queued, and has not run yet.
            assert_eq!(sched.on_post(true), Next::Nothing);
            sched.begin();
        }
        // A run by a response takes the posted requests, too.
        assert_eq!(sched.on_post(true), Next::Later);
        sched.begin();
        assert!(!sched.on_timer());
        // The process posted nothing since then.
        assert_eq!(sched.on_post(false), Next::Run);
        assert_eq!(sched.on_post(true), Next::Later);
    }

    /// Begins a batch of `doorbells`; returns the first step.
    fn batch(sched: &Sched, doorbells: u32) -> Next {
        sched.begin();
        let first = sched.on_post(true);
        for _ in 1..doorbells {
            sched.on_post(true);
        }
        first
    }

    #[test]
    fn short_batches_are_not_timed() {
        let sched = Sched::new();
        for _ in 0..3 {
            for doorbells in [1, SHORT - 1, SHORT, 5, 4, 3, 2, 1] {
                assert_eq!(batch(&sched, doorbells), Next::Later);
                assert!(sched.on_timer());
            }
            // The length of the batches in between does not count.
            for i in 0..UNTIMED {
                assert_eq!(batch(&sched, UNTIMED - i), Next::Queue);
            }
            // One short batch is enough then.
            assert_eq!(batch(&sched, 5), Next::Later);
            assert!(sched.on_timer());
            for _ in 0..UNTIMED {
                assert_eq!(batch(&sched, 1), Next::Queue);
            }
            // A full batch restores the tolerance for short ones.
            assert_eq!(batch(&sched, BATCH), Next::Later);
        }
    }
}
