// SPDX-License-Identifier: GPL-2.0

//! Scheduling of the send half of a connected queue pair: the context that runs it.
//!
//! Three contexts can run the half: a poster, the softirq that takes a response, and the work item.
//!
//! - Posting and polling in turn is served best by the poster at once: nothing has to be woken up.
//! - A process that keeps posting leaves the half to the work item ([`doorbell`](crate::doorbell)).
//! - A half that waits for its peer is run by the next response, or by its timer. A post meanwhile
//!   could send nothing, so it does nothing.
//! - On one host a response is taken on the CPU that sent the request, which then does the work of
//!   both sides. For one queue pair this is right: poster and CPU work at the same time. A process
//!   that posts to several queue pairs in turn, however, would have all of them on one CPU. So it
//!   requests a hand-off: the next response leaves the half to the poster's CPU or, if that is the
//!   CPU of the response, to the CPU that the scheduler finds for the work item.
//!
//! ```text
//!   state        post                         response            begin     end
//!   Direct       run                          run                           stalled: Stalled
//!    defer hint  queue, Deferred
//!   Deferred     queue                        run                           stalled: Stalled
//!   Stalled      nothing                      run                           else: Direct, again
//!    other QP    nothing, Requested { cpu }
//!   Requested    nothing                      queue: that CPU     Stalled
//!                                             WorkItem, else
//!                                             PostSend
//!   PostSend     run                          nothing             Stalled
//!   WorkItem     nothing                      nothing             Stalled
//!
//!   the half used up its budget: queue, Deferred       work item done: Deferred -> Direct
//! ```
//!
//! *begin* and *end* are those of any run, in any context: no context relies on another, and the
//! work item is queued whenever the half is handed off. A run that finds the half no longer stalled
//! looks at the send queue *again*, for requests whose posters did nothing.

use crate::doorbell::Hint;
use kernel::{
    cpu::CpuId,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier::{
            smp_mb,
            Full, //
        }, //
    }, //
};

/// The state; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Poster and responses run the half.
    Direct,
    /// Posters leave the half to the work item.
    Deferred,
    /// The half waits for its peer.
    Stalled,
    /// The same, and a poster has requested a hand-off.
    Requested {
        /// The CPU of the poster.
        cpu: u32,
    },
    /// The poster runs the half at its next post, or else the work item.
    PostSend,
    /// The work item runs the half.
    WorkItem,
}

/// The next step of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Run the half.
    Run,
    /// Queue the work item.
    Queue,
    /// Nothing: another context runs the half.
    Nothing,
}

impl State {
    /// The number of [`State::Requested`] for CPU 0.
    const REQUESTED: u32 = 5;

    #[inline]
    fn on_post(self, hint: Hint, cpu: u32) -> (State, Next) {
        match self {
            State::Direct if hint.defer => (State::Deferred, Next::Queue),
            State::Direct | State::PostSend => (self, Next::Run),
            State::Deferred => (self, Next::Queue),
            State::Stalled if hint.switched => (State::Requested { cpu }, Next::Nothing),
            State::Stalled | State::Requested { .. } | State::WorkItem => (self, Next::Nothing),
        }
    }

    #[inline]
    fn on_response(self, here: u32) -> (State, Next) {
        match self {
            State::Direct | State::Deferred | State::Stalled => (self, Next::Run),
            State::Requested { cpu } if cpu == here => (State::WorkItem, Next::Queue),
            State::Requested { .. } => (State::PostSend, Next::Queue),
            State::PostSend | State::WorkItem => (self, Next::Nothing),
        }
    }

    #[inline]
    fn on_begin(self) -> State {
        match self {
            State::Requested { .. } | State::PostSend | State::WorkItem => State::Stalled,
            State::Direct | State::Deferred | State::Stalled => self,
        }
    }

    /// Called after [`State::on_begin`].
    #[inline]
    fn on_end(self, stalled: bool) -> State {
        match self {
            _ if stalled => State::Stalled,
            State::Deferred => self,
            _ => State::Direct,
        }
    }

    #[inline]
    const fn to_raw(self) -> u32 {
        match self {
            State::Direct => 0,
            State::Deferred => 1,
            State::Stalled => 2,
            State::PostSend => 3,
            State::WorkItem => 4,
            State::Requested { cpu } => Self::REQUESTED.saturating_add(cpu),
        }
    }

    #[inline]
    const fn from_raw(raw: u32) -> State {
        match raw {
            0 => State::Direct,
            1 => State::Deferred,
            2 => State::Stalled,
            3 => State::PostSend,
            4 => State::WorkItem,
            requested => State::Requested {
                cpu: requested.saturating_sub(Self::REQUESTED),
            },
        }
    }
}

/// The scheduling of a send half.
///
/// Changed under the lock of the half, and by posters without it. A change of a poster that is lost
/// to one under the lock costs a wake-up, never a request: the poster queues the work item, or the
/// half is stalled, or runs and looks at the send queue again.
pub(super) struct Sched(Atomic<u32>);

impl Sched {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(State::Direct.to_raw()))
    }

    /// Returns the next step of the poster of a request. Any context.
    #[inline]
    pub(super) fn on_post(&self, hint: Hint) -> Next {
        // Pairs with the barrier in `end`: either this sees that the half is no longer stalled, or
        // the run that ends sees the request.
        smp_mb(Full);
        let state = self.get();
        let (then, next) = state.on_post(hint, CpuId::current().as_u32());
        if then != state {
            // A state that was set meanwhile is newer.
            let _ = self.0.cmpxchg(state.to_raw(), then.to_raw(), Relaxed);
        }
        next
    }

    /// Returns the next step of the context of a response. The lock of the half is held.
    #[inline]
    pub(super) fn on_response(&self) -> Next {
        let state = self.get();
        let (then, next) = state.on_response(CpuId::current().as_u32());
        self.set(state, then);
        next
    }

    /// A run begins. The lock of the half is held.
    #[inline]
    pub(super) fn begin(&self) {
        let state = self.get();
        self.set(state, state.on_begin());
    }

    /// A run ends; `stalled` is [`Requester::is_stalled`]. Returns whether to look at the send
    /// queue again. The lock of the half is held.
    ///
    /// [`Requester::is_stalled`]: roce::requester::Requester::is_stalled
    #[inline]
    pub(super) fn end(&self, stalled: bool) -> bool {
        let state = self.get();
        let then = state.on_end(stalled);
        self.set(state, then);
        let again = then == State::Direct && state != State::Direct;
        if again {
            smp_mb(Full);
        }
        again
    }

    /// Work is left, for which the caller queues the work item. Any context.
    pub(super) fn defer(&self) {
        self.set(self.get(), State::Deferred);
    }

    /// The work item has left nothing.
    ///
    /// Called after each of its runs, even if it is queued again by now: otherwise a process that
    /// posts and polls in turn may stay deferred for ever, which makes small READs slow.
    pub(super) fn work_done(&self) {
        let (deferred, direct) = (State::Deferred.to_raw(), State::Direct.to_raw());
        // Any other state is newer.
        let _ = self.0.cmpxchg(deferred, direct, Relaxed);
    }

    /// Returns whether there may be requests that are left to the work item. A hint.
    pub(super) fn is_deferred(&self) -> bool {
        matches!(
            self.get(),
            State::Deferred | State::PostSend | State::WorkItem
        )
    }

    #[inline]
    fn get(&self) -> State {
        State::from_raw(self.0.load(Relaxed))
    }

    /// Stores a state if it is another: the cache line is shared with posters.
    #[inline]
    fn set(&self, from: State, to: State) {
        if from != to {
            self.0.store(to.to_raw(), Relaxed);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(ferroce_sched)]
mod tests {
    use super::*;

    const KEEPS_POSTING: Hint = Hint {
        defer: true,
        switched: false,
    };
    const ANOTHER_QP: Hint = Hint {
        defer: false,
        switched: true,
    };

    #[test]
    fn a_poster_that_keeps_posting_is_deferred() {
        let (state, next) = State::Direct.on_post(Hint::default(), 0);
        assert_eq!((state, next), (State::Direct, Next::Run));

        let (state, next) = State::Direct.on_post(KEEPS_POSTING, 0);
        assert_eq!((state, next), (State::Deferred, Next::Queue));
        // A response runs the half, which does not end it.
        assert_eq!(state.on_response(0), (State::Deferred, Next::Run));
        assert_eq!(state.on_begin().on_end(false), State::Deferred);
    }

    #[test]
    fn a_post_to_a_stalled_half_does_nothing() {
        let state = State::Direct.on_begin().on_end(true);
        assert_eq!(state, State::Stalled);
        for hint in [Hint::default(), KEEPS_POSTING] {
            assert_eq!(state.on_post(hint, 0), (State::Stalled, Next::Nothing));
        }
        assert_eq!(state.on_response(0), (State::Stalled, Next::Run));
        assert_eq!(state.on_begin().on_end(false), State::Direct);
    }

    #[test]
    fn the_half_is_handed_off_once_for_a_request() {
        let (requested, next) = State::Stalled.on_post(ANOTHER_QP, 1);
        assert_eq!(
            (requested, next),
            (State::Requested { cpu: 1 }, Next::Nothing)
        );

        assert_eq!(requested.on_response(0), (State::PostSend, Next::Queue));
        assert_eq!(requested.on_response(1), (State::WorkItem, Next::Queue));
        for state in [State::PostSend, State::WorkItem] {
            // Responses before any context runs the half.
            assert_eq!(state.on_response(0), (state, Next::Nothing));
            assert_eq!(state.on_begin(), State::Stalled);
        }
        let hint = Hint::default();
        assert_eq!(
            State::PostSend.on_post(hint, 1),
            (State::PostSend, Next::Run)
        );
        assert_eq!(
            State::WorkItem.on_post(hint, 1),
            (State::WorkItem, Next::Nothing)
        );
    }

    #[test]
    fn a_state_is_its_number() {
        let cpus = [0, 1, 4095];
        for state in [
            State::Direct,
            State::Deferred,
            State::Stalled,
            State::PostSend,
            State::WorkItem,
        ]
        .into_iter()
        .chain(cpus.map(|cpu| State::Requested { cpu }))
        {
            assert_eq!(State::from_raw(state.to_raw()), state);
        }
    }
}
