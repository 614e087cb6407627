// SPDX-License-Identifier: GPL-2.0

//! Exponential back-off: after an allocation failure, and when a ring is polled in ERR.
//!
//! There is no notification when memory becomes available, so a timer retries. Thousands of queue
//! pairs may be short of memory at the same time. If each of them retried every millisecond, the
//! timers would occupy a CPU. So the pause doubles with each attempt that fails.

use crate::time::Instant;

/// The pause before the next attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// The end of the pause.
    at: Option<Instant>,
    /// The length of the last pause in nanoseconds; 0 if there was none.
    pause: u64,
}

impl Backoff {
    /// The first pause: 1 ms, in nanoseconds.
    pub const FIRST: u64 = 1_000_000;

    /// The longest pause: 1.024 s, in nanoseconds.
    pub const LONGEST: u64 = Self::FIRST << 10;

    /// Accounts for a failed attempt, and starts a pause unless one has started.
    #[cold]
    pub fn failed(&mut self, now: Instant) {
        if self.at.is_none() {
            let pause = self.pause.saturating_mul(2);
            self.pause = pause.clamp(Self::FIRST, Self::LONGEST);
            self.at = Some(now.after(self.pause));
        }
    }

    /// Accounts for a successful attempt.
    #[inline]
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Ends the pause if it is over.
    #[inline]
    pub fn expire(&mut self, now: Instant) {
        if self.at.is_some_and(|at| at.is_due(now)) {
            self.at = None;
        }
    }

    /// Returns the end of the pause, if there is one.
    #[inline]
    pub const fn at(&self) -> Option<Instant> {
        self.at
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_backoff))]
mod tests {
    use super::*;

    /// Fails an attempt, waits for the end of the pause and returns its length.
    fn pause(backoff: &mut Backoff, now: &mut Instant) -> u64 {
        backoff.failed(*now);
        let at = backoff.at().unwrap_or_default();
        let pause = at.since(*now);
        *now = at;
        backoff.expire(*now);
        assert_eq!(backoff.at(), None);
        pause
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let mut backoff = Backoff::default();
        let mut now = Instant::from_ns(7);

        for doublings in 0..10 {
            assert_eq!(pause(&mut backoff, &mut now), Backoff::FIRST << doublings);
        }
        for _ in 0..10 {
            assert_eq!(pause(&mut backoff, &mut now), Backoff::LONGEST);
        }
        backoff.succeeded();
        assert_eq!(pause(&mut backoff, &mut now), Backoff::FIRST);
    }

    #[test]
    fn failures_during_pause_do_not_extend_it() {
        let mut backoff = Backoff::default();
        let start = Instant::from_ns(0);

        backoff.failed(start);
        for at in 0..Backoff::FIRST {
            let now = Instant::from_ns(at);
            if at % 1000 == 0 {
                backoff.failed(now);
            }
            backoff.expire(now);
            assert_eq!(backoff.at(), Some(start.after(Backoff::FIRST)));
        }
        let mut now = start.after(Backoff::FIRST);
        backoff.expire(now);
        assert_eq!(pause(&mut backoff, &mut now), 2 * Backoff::FIRST);
    }
}
