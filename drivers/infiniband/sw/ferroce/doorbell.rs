// SPDX-License-Identifier: GPL-2.0

//! Doorbells: the choice between sending at once and deferring to the work item.
//!
//! For a process that posts one request and waits for its completion, it is fastest to send at
//! once, because no worker has to be woken up. For a process that posts one request after another,
//! its CPU would do all the work of each request, and that of the peer, too, if the peer is on the
//! same host. Such a process gains if another CPU sends meanwhile.
//!
//! The first kind polls for completions between two doorbells. Using this to distinguish them needs
//! no clock, so the result does not depend on the speed of the machine. The consumer index of the
//! process is read when a completion is added, so a poll counts for a doorbell after the next
//! completion.
//!
//! ```text
//!   doorbell   |    |    |    |    |    |    |    |    |
//!   polled       *    *    *                   *    *
//!   streak     1    0    0    0    1    2    3    2    1
//!                                            ^ deferred to the work item
//! ```

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The doorbells of queue pairs whose send requests complete to the same queue, and the polls of
/// that queue.
///
/// The values are only hints, and not changed together: if two threads ring at once, a doorbell or
/// a poll may be missed.
pub(crate) struct Doorbell {
    /// The number of doorbells without a poll before them, minus those with one.
    streak: Atomic<u32>,
    /// The consumer index of the process when the last completion was added.
    consumer: Atomic<u32>,
    /// `consumer` at the last doorbell.
    polled: Atomic<u32>,
}

impl Doorbell {
    /// The longest streak that is still served at once.
    const MAX_DIRECT: u32 = 2;

    /// Bounds the streak, so that a process that begins to poll is soon served at once again.
    const MAX_STREAK: u32 = 16;

    pub(crate) fn new() -> Self {
        Self {
            streak: Atomic::new(0),
            consumer: Atomic::new(0),
            polled: Atomic::new(0),
        }
    }

    /// Records the consumer index of the process, when a completion is added.
    #[inline]
    pub(crate) fn complete(&self, consumer: u32) {
        self.consumer.store(consumer, Relaxed);
    }

    /// Returns whether the process has polled since the last call, as far as was known when the
    /// last completion was added.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        let consumer = self.consumer.load(Relaxed);
        let is_polled = consumer != self.polled.load(Relaxed);
        if is_polled {
            self.polled.store(consumer, Relaxed);
        }
        is_polled
    }

    /// Accounts for a doorbell. Returns whether the process keeps posting, so that its requests are
    /// better left to the work item. `polled` is true if completions were polled since the last
    /// doorbell.
    #[inline]
    pub(crate) fn ring(&self, polled: bool) -> bool {
        let streak = self.streak.load(Relaxed);
        let streak = if polled {
            streak.saturating_sub(1)
        } else {
            streak.saturating_add(1).min(Self::MAX_STREAK)
        };
        self.streak.store(streak, Relaxed);
        streak > Self::MAX_DIRECT
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(ferroce_doorbell)]
mod tests {
    use super::*;

    #[test]
    fn polling_before_each_doorbell_is_not_deferred() {
        let doorbell = Doorbell::new();

        // Nothing can be polled before the first one.
        assert!(!doorbell.ring(false));
        for _ in 0..1000 {
            assert!(!doorbell.ring(true));
        }
        // Two doorbells per poll, such as a request and its reply.
        for _ in 0..1000 {
            assert!(!doorbell.ring(false));
            assert!(!doorbell.ring(true));
        }
    }

    #[test]
    fn posting_without_polling_is_deferred() {
        let doorbell = Doorbell::new();

        for _ in 0..Doorbell::MAX_DIRECT {
            assert!(!doorbell.ring(false));
        }
        for _ in 0..1000 {
            assert!(doorbell.ring(false));
        }
        // A poll before every second doorbell does not change that.
        for _ in 0..1000 {
            assert!(doorbell.ring(true));
            assert!(doorbell.ring(false));
        }
    }

    #[test]
    fn poll_is_seen_once_with_next_completion() {
        let doorbell = Doorbell::new();

        doorbell.complete(0);
        assert!(!doorbell.is_polled());
        doorbell.complete(1);
        assert!(doorbell.is_polled());
        assert!(!doorbell.is_polled());
        doorbell.complete(1);
        assert!(!doorbell.is_polled());
    }

    #[test]
    fn polling_again_ends_deferral() {
        let doorbell = Doorbell::new();

        for _ in 0..1000 {
            doorbell.ring(false);
        }
        let deferred = (0..1000).filter(|_| doorbell.ring(true)).count();
        assert!(deferred < 16);
        assert!(!doorbell.ring(true));
    }
}
