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
    /// Number of the queue pair whose doorbell was the last.
    last: u32,
}

/// How to serve who rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// Another CPU should: who rings goes on with something else.
    pub goes_on: bool,
    /// It is another queue pair's doorbell than the last time: several are posted to in turn.
    pub in_turn: bool,
}

impl Doorbell {
    /// How often it may be rung in a row before another CPU serves.
    const PATIENCE: u32 = 2;

    /// What is remembered at most: who posts one request after another has to poll now and then.
    const MEMORY: u32 = 16;

    /// Somebody rings the doorbell of a queue pair; returns how to serve him.
    ///
    /// `polled` says whether completions were polled since any was rung last.
    #[inline]
    pub fn ring(&mut self, qpn: u32, polled: bool) -> Rung {
        self.rung = if polled {
            self.rung.saturating_sub(1)
        } else {
            self.rung.saturating_add(1).min(Self::MEMORY)
        };
        Rung {
            goes_on: self.rung > Self::PATIENCE,
            in_turn: core::mem::replace(&mut self.last, qpn) != qpn,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_doorbell))]
mod tests {
    use super::*;

    const QPN: u32 = 0x11;

    #[test]
    fn who_waits_is_served_at_once() {
        let mut doorbell = Doorbell::default();

        // The first one comes before anything could be polled.
        assert!(!doorbell.ring(QPN, false).goes_on);
        for _ in 0..1000 {
            assert!(!doorbell.ring(QPN, true).goes_on);
        }
        // Two at a time, as a request and its answer may be.
        for _ in 0..1000 {
            assert!(!doorbell.ring(QPN, false).goes_on);
            assert!(!doorbell.ring(QPN, true).goes_on);
        }
    }

    #[test]
    fn who_goes_on_posting_is_served_elsewhere() {
        let mut doorbell = Doorbell::default();

        for _ in 0..Doorbell::PATIENCE {
            assert!(!doorbell.ring(QPN, false).goes_on);
        }
        for _ in 0..1000 {
            assert!(doorbell.ring(QPN, false).goes_on);
        }
        // To poll now and then changes nothing.
        for _ in 0..1000 {
            assert!(doorbell.ring(QPN, true).goes_on);
            assert!(doorbell.ring(QPN, false).goes_on);
        }
    }

    #[test]
    fn who_begins_to_wait_is_served_at_once_again() {
        let mut doorbell = Doorbell::default();

        for _ in 0..1000 {
            doorbell.ring(QPN, false);
        }
        let elsewhere = (0..1000)
            .filter(|_| doorbell.ring(QPN, true).goes_on)
            .count();
        assert!(elsewhere < 16);
        assert!(!doorbell.ring(QPN, true).goes_on);
    }

    #[test]
    fn who_serves_several_queue_pairs_is_known() {
        let mut doorbell = Doorbell::default();
        let mut ring = |qpn| doorbell.ring(qpn, false).in_turn;

        ring(QPN);
        assert!(!ring(QPN));
        assert!(ring(QPN + 1));
        assert!(!ring(QPN + 1));
        assert!(ring(QPN));
    }
}
