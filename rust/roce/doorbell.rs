// SPDX-License-Identifier: GPL-2.0

//! Who sends what a process has posted: the process itself, or another CPU.
//!
//! Who posts a request and then waits for what comes of it is served best at once: nobody has to be
//! woken. Who posts one request after another keeps one CPU busy with all that follows from each,
//! up to the peer's completion if the peer is on the same host, while it could go on posting.
//!
//! The two are told apart by whether completions are polled between two doorbells. No clock is
//! needed for that, and it is the same on a slow machine.
//!
//! ```text
//!   doorbell   |    |    |    |    |    |    |    |    |
//!   polled       *    *    *                   *    *
//!   rung       1    0    0    0    1    2    3    2    1
//!                                            ^ served by another CPU
//! ```

/// The doorbells of queue pairs that complete to the same queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doorbell {
    /// How often it was rung without looking for completions, less how often it was looked.
    rung: u32,
}

impl Doorbell {
    /// How often it may be rung in a row before another CPU serves.
    const PATIENCE: u32 = 2;

    /// What is remembered at most: who posts one request after another has to poll now and then.
    const MEMORY: u32 = 16;

    /// Somebody rings; returns whether another CPU should serve him.
    ///
    /// `polled` says whether completions were polled since it was rung last.
    #[inline]
    pub fn ring(&mut self, polled: bool) -> bool {
        self.rung = if polled {
            self.rung.saturating_sub(1)
        } else {
            self.rung.saturating_add(1).min(Self::MEMORY)
        };
        self.rung > Self::PATIENCE
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_doorbell))]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_served_at_once() {
        let mut doorbell = Doorbell::default();

        // The first one comes before anything could be polled.
        assert!(!doorbell.ring(false));
        for _ in 0..1000 {
            assert!(!doorbell.ring(true));
        }
        // Two at a time, as a request and its answer may be.
        for _ in 0..1000 {
            assert!(!doorbell.ring(false));
            assert!(!doorbell.ring(true));
        }
    }

    #[test]
    fn who_goes_on_posting_is_served_elsewhere() {
        let mut doorbell = Doorbell::default();

        for _ in 0..Doorbell::PATIENCE {
            assert!(!doorbell.ring(false));
        }
        for _ in 0..1000 {
            assert!(doorbell.ring(false));
        }
        // To poll now and then changes nothing.
        for _ in 0..1000 {
            assert!(doorbell.ring(true));
            assert!(doorbell.ring(false));
        }
    }

    #[test]
    fn who_begins_to_wait_is_served_at_once_again() {
        let mut doorbell = Doorbell::default();

        for _ in 0..1000 {
            doorbell.ring(false);
        }
        let elsewhere = (0..1000).filter(|_| doorbell.ring(true)).count();
        assert!(elsewhere < 16);
        assert!(!doorbell.ring(true));
    }
}
