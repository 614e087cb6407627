// SPDX-License-Identifier: GPL-2.0

//! Scheduling of the send half of a connected queue pair, which selects the context that runs it.
//!
//! Three contexts can run the half: a poster, the softirq that takes a response, and the work item.
//!
//! - If a process posts and polls in turn, the poster runs the half at once, because this needs no
//!   wakeup.
//! - If a process keeps posting, the work item runs the half ([`doorbell`](crate::doorbell)). It is
//!   queued for a batch of doorbells, so that their packets leave in trains: by the 30th doorbell,
//!   or by a timer that the first one arms. Arming a CQ does not end a batch: this made no burst
//!   of requests faster, and READs of 64 bytes 5 % slower.
//! - If the half waits for its peer (it is stalled), the next response or its timer runs it. A
//!   poster does nothing meanwhile, because it could send nothing.
//! - If the round trip is long, the half waits for its peer nearly always, and the softirq of one
//!   CPU would send all data. Therefore a response leaves data to the work item, which runs on any
//!   CPU. The wakeup takes little time compared with the round trip.
//!
//! ```text
//!   state        post                    end of a run
//!   Direct       run                     stalled: Stalled; else: Direct
//!     keeps posting: batch, Deferred
//!   Deferred     batch                   stalled: Stalled; else: Deferred
//!   Stalled      nothing                 stalled: Stalled; else: Direct, again
//!
//!   batch: the first doorbell arms the timer, the 30th queues the work item, the others do nothing
//!   the half used up its budget: queue, Deferred       work item done: Deferred -> Direct
//!   a response over a long round trip, and data to send: queue, Deferred
//! ```
//!
//! Any context may run the half in any state. A run that ends a stall looks at the send queue
//! *again*, for requests whose posters did nothing. A run starts a new batch before it looks at the
//! send queue, so it sees the requests of all doorbells of the old batch.
//!
//! A kernel consumer counts as a process that does not keep posting. In a context that must not run
//! the half (`can_run()`), its request queues the work item, and the state becomes Deferred.
//! Datagrams are always sent by the poster, because the program may destroy the address handle
//! next. A modify and a destroy run the half of a deferred queue pair themselves.

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

/// The number of doorbells after which the work item is queued.
const BATCH: u32 = 30;

/// The longest wait for more doorbells, in nanoseconds.
pub(super) const BATCH_NS: u64 = 50_000;

/// The shortest round-trip time from which on it is long, in nanoseconds.
const LONG_RTT_NS: u32 = 1_000_000;

/// The state; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// Posters run the half.
    Direct,
    /// Posters leave the half to the work item.
    Deferred,
    /// The half waits for its peer.
    Stalled,
}

/// The next step of a poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the half.
    Run,
    /// Queue the work item.
    Queue,
    /// Arm the timer to queue the work item after [`BATCH_NS`].
    Later,
    /// Nothing: another context runs the half.
    Nothing,
}

impl State {
    #[inline]
    fn on_post(self, keeps_posting: bool) -> (State, Next) {
        match self {
            State::Direct if keeps_posting => (State::Deferred, Next::Queue),
            State::Direct => (self, Next::Run),
            State::Deferred => (self, Next::Queue),
            State::Stalled => (self, Next::Nothing),
        }
    }

    #[inline]
    fn on_end(self, stalled: bool) -> State {
        match self {
            _ if stalled => State::Stalled,
            State::Deferred => self,
            State::Direct | State::Stalled => State::Direct,
        }
    }
}

/// Returns whether a response leaves data to the work item. `rtt` is the shortest round-trip time
/// in nanoseconds, if one was measured.
#[inline]
pub(super) fn defers_data(rtt: Option<u32>) -> bool {
    rtt.is_some_and(|rtt| rtt >= LONG_RTT_NS)
}

/// The scheduling of a send half.
///
/// The state is changed under the lock of the half, and by posters without it. A change under the
/// lock may overwrite the change of a poster. This can cost a wakeup, but loses no request: the
/// poster queues the work item, or the half is stalled, or it runs and looks at the send queue
/// again.
pub(super) struct Sched {
    state: Atomic<u32>,
    /// The number of doorbells of the current batch.
    batch: Atomic<u32>,
}

impl Sched {
    pub(super) const fn new() -> Self {
        Self {
            // CAST: A small number.
            state: Atomic::new(State::Direct as u32),
            batch: Atomic::new(0),
        }
    }

    /// Returns the next step of the poster of a request. Callable in any context.
    #[inline]
    pub(super) fn on_post(&self, keeps_posting: bool) -> Next {
        // Pairs with the barrier in `end`: either this sees that the half is no longer stalled, or
        // the run that ends sees the request.
        smp_mb(Full);
        let state = self.get();
        let (then, next) = state.on_post(keeps_posting);
        if then != state {
            self.change(state, then);
        }
        match next {
            Next::Queue => self.batch(),
            next => next,
        }
    }

    /// Adds a doorbell to the batch.
    ///
    /// The addition is a full barrier: either the run that starts the next batch sees the request,
    /// or this doorbell is the first of that batch.
    fn batch(&self) -> Next {
        match self.batch.fetch_add(1, Full) {
            0 => Next::Later,
            before if before.wrapping_add(1) == BATCH => Next::Queue,
            _ => Next::Nothing,
        }
    }

    /// Begins a run, which sees all requests posted so far. The lock of the half is held.
    #[inline]
    pub(super) fn begin(&self) {
        if self.batch.load(Relaxed) != 0 {
            self.batch.xchg(0, Full);
        }
    }

    /// Ends a run; `stalled` is [`Requester::is_stalled`]. Returns whether to look at the send
    /// queue again. The lock of the half is held.
    ///
    /// [`Requester::is_stalled`]: roce::requester::Requester::is_stalled
    #[inline]
    pub(super) fn end(&self, stalled: bool) -> bool {
        let state = self.get();
        let then = state.on_end(stalled);
        self.set(state, then);
        let again = state == State::Stalled && then != state;
        if again {
            smp_mb(Full);
        }
        again
    }

    /// Records that work is left, for which the caller queues the work item. Any context.
    pub(super) fn defer(&self) {
        self.set(self.get(), State::Deferred);
    }

    /// Records that the work item has left no work.
    ///
    /// Called after each of its runs, even if it is queued again by now: otherwise a process that
    /// posts and polls in turn may stay deferred forever, which makes small READs slow.
    pub(super) fn work_done(&self) {
        self.change(State::Deferred, State::Direct);
    }

    /// Returns whether requests may be left to the work item. A hint only.
    pub(super) fn is_deferred(&self) -> bool {
        self.get() == State::Deferred || self.batch.load(Relaxed) != 0
    }

    #[inline]
    fn get(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Direct,
            1 => State::Deferred,
            _ => State::Stalled,
        }
    }

    /// Stores a state only if it changes, because the cache line is shared with posters.
    #[inline]
    fn set(&self, from: State, to: State) {
        if from != to {
            // CAST: A small number.
            self.state.store(to as u32, Relaxed);
        }
    }

    /// Changes one state to another. A state that was set meanwhile is newer, and stays.
    fn change(&self, from: State, to: State) {
        // CAST: Small numbers.
        let _ = self.state.cmpxchg(from as u32, to as u32, Relaxed);
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
        assert!(!sched.end(false));
        assert_eq!(sched.on_post(true), Next::Later);
        assert!(sched.is_deferred());
        // A run by a response does not end the deferral.
        assert!(!sched.end(false));
        assert_eq!(sched.on_post(false), Next::Nothing);
        sched.begin();
        sched.work_done();
        assert_eq!(sched.on_post(false), Next::Run);
    }

    #[test]
    fn post_to_stalled_half_does_nothing() {
        let sched = Sched::new();
        assert!(!sched.end(true));
        for keeps_posting in [false, true] {
            assert_eq!(sched.on_post(keeps_posting), Next::Nothing);
        }
        // The work item is done with an earlier request.
        sched.work_done();
        assert_eq!(sched.on_post(false), Next::Nothing);
        // Only the first run that is not stalled looks again.
        assert!(sched.end(false));
        assert!(!sched.end(false));
        assert_eq!(sched.on_post(false), Next::Run);
    }

    #[test]
    fn stalled_half_with_work_left_is_deferred() {
        let sched = Sched::new();
        assert!(!sched.end(true));
        sched.defer();
        assert_eq!(sched.on_post(false), Next::Later);
        assert!(!sched.end(true));
        assert_eq!(sched.on_post(false), Next::Nothing);
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
        assert_eq!(sched.on_post(true), Next::Later);
    }
}
