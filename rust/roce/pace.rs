// SPDX-License-Identifier: GPL-2.0

//! Pacing of packets at the static rate of a path.
//!
//! The static rate of an address vector is that of a peer, or of a switch on the way, that is
//! slower than the local port. After each packet there is a gap as long as the packet takes at that
//! rate.
//!
//! ```text
//!   packet   gap     packet   gap     timer is late     packet   packet   gap
//!   |------->........|------->........:.................|------->|------->........
//!                                     ^ due
//! ```
//!
//! If the timer is late, the sender catches up, for at most [`SLACK`]. It does not catch up on time
//! in which there was nothing to send.

use core::num::NonZeroU32;

use crate::time::Instant;

/// The time that a sender may catch up on, in nanoseconds. It limits the length of a burst.
pub const SLACK: u64 = 50_000;

/// The bytes of an Ethernet frame without its IP packet: preamble, header, checksum and inter-frame
/// gap.
pub const FRAME_OVERHEAD: u32 = 38;

/// The rate of each code of `enum ib_rate` in Mb/s; 0 for a code that names none.
#[rustfmt::skip]
const RATES: [u32; 26] = [
    0, 0, 2_500, 10_000, 30_000, 5_000, 20_000, 40_000,
    60_000, 80_000, 120_000, 14_062, 56_250, 112_500, 168_750, 25_781,
    103_125, 206_250, 309_375, 28_125, 53_125, 425_000, 637_500, 850_000,
    0, 1_700_000,
];

/// A static rate, in Mb/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU32);

/// A code that names no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRate;

impl Rate {
    /// Converts a code of `enum ib_rate`.
    ///
    /// Returns `None` for `IB_RATE_PORT_CURRENT`, which is no limit.
    ///
    /// # Errors
    ///
    /// [`UnknownRate`] if there is no such code.
    pub fn from_ib(code: u8) -> Result<Option<Rate>, UnknownRate> {
        if code == 0 {
            return Ok(None);
        }
        let mbps = RATES.get(usize::from(code)).copied().unwrap_or(0);
        let mbps = NonZeroU32::new(mbps).ok_or(UnknownRate)?;
        Ok(Some(Rate(mbps)))
    }

    /// Returns the rate in Mb/s.
    pub const fn mbps(self) -> u32 {
        self.0.get()
    }

    /// Returns whether the rate limits the packets of a port with a speed of `mbps` Mb/s, or of an
    /// unknown speed (0).
    ///
    /// The connection manager of older kernels sends the speed of its port as the rate of a
    /// path: rounded down to 10, 20, 30 or 40 Gb/s, and 40 Gb/s if the speed is unknown.
    pub const fn limits(self, mbps: u32) -> bool {
        let speed = match mbps {
            0 | 40_000.. => 40_000,
            30_000.. => 30_000,
            20_000.. => 20_000,
            10_000.. => 10_000,
            _ => mbps,
        };
        self.mbps() < speed
    }

    /// Returns the time that `bytes` take, in nanoseconds, rounded up.
    #[inline]
    pub fn time_of(self, bytes: u32) -> u64 {
        /// Nanoseconds for a byte at 1 Mb/s.
        const BYTE: u64 = 8_000;

        u64::from(bytes)
            .saturating_mul(BYTE)
            .div_ceil(u64::from(self.0.get()))
    }
}

/// The pace of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The earliest time of the next packet; `None` without a rate.
    next: Option<Instant>,
    /// True after a packet had to wait, until the sender has caught up.
    behind: bool,
}

impl Pace {
    /// Returns whether the next packet may have to wait. If not, the caller need not read the
    /// clock.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the time until which the caller must delay the next packet, or `None` if the packet
    /// may be sent now.
    #[inline]
    pub fn wait(&mut self, now: Instant) -> Option<Instant> {
        let next = self.next?;
        if next.is_due(now) {
            return None;
        }
        self.behind = true;
        Some(next)
    }

    /// Accounts for a packet that was sent. `gap` is the time to leave after it, if there is a
    /// rate.
    #[inline]
    pub fn sent(&mut self, now: Instant, gap: Option<u64>) {
        let Some(gap) = gap else {
            if self.is_on() {
                *self = Pace::default();
            }
            return;
        };
        let start = match self.next {
            Some(next) if self.behind => {
                let earliest = Instant::from_ns(now.as_ns().saturating_sub(SLACK));
                next.max(earliest).min(now)
            }
            _ => now,
        };
        let next = start.after(gap);
        self.behind &= next.is_due(now);
        self.next = Some(next);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_pace))]
mod tests {
    use super::*;

    /// The length of the packets in these tests, which take [`GAP`] at 10 Gb/s.
    const BYTES: u32 = 3750;
    /// The time of such a packet, in nanoseconds.
    const GAP: u64 = 3_000;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    fn rate(code: u8) -> Option<Rate> {
        Rate::from_ib(code).ok().flatten()
    }

    #[test]
    fn rate_codes_match_ib_core() {
        assert_eq!(Rate::from_ib(0), Ok(None));
        assert_eq!(rate(2).map(Rate::mbps), Some(2_500));
        assert_eq!(rate(25).map(Rate::mbps), Some(1_700_000));
        for code in [1, 24, 26, 0xff] {
            assert_eq!(Rate::from_ib(code), Err(UnknownRate));
        }
        let known = (0..=0xff).filter(|code| rate(*code).is_some()).count();
        assert_eq!(known, 23);
    }

    #[test]
    fn rate_of_old_connection_manager_is_no_limit() {
        let limits = |code, mbps| rate(code).map(|rate| rate.limits(mbps));
        // 40 Gb/s, for an unknown speed and 100 Gb/s; 20 Gb/s for 25 Gb/s.
        for (code, mbps) in [(7, 0), (7, 100_000), (6, 25_000), (3, 10_000), (2, 1_000)] {
            assert_eq!(limits(code, mbps), Some(false));
        }
        for (code, mbps) in [(4, 0), (4, 100_000), (3, 25_000), (2, 10_000), (2, 2_501)] {
            assert_eq!(limits(code, mbps), Some(true));
        }
    }

    #[test]
    fn packet_time_is_rounded_up() {
        let time = |code, bytes| rate(code).map(|rate| rate.time_of(bytes));
        assert_eq!(time(3, BYTES), Some(GAP));
        assert_eq!(time(2, 1), Some(4));
        assert_eq!(time(25, 1), Some(1));
        assert_eq!(time(2, u32::MAX), Some(13_743_895_344));
    }

    #[test]
    fn packets_without_rate_do_not_wait() {
        let mut pace = Pace::default();
        for _ in 0..3 {
            assert!(!pace.is_on());
            assert_eq!(pace.wait(at(5)), None);
            pace.sent(at(5), None);
        }
        // The next packet without a rate ends the gap, even early.
        for now in [5 + GAP, 6].map(at) {
            pace.sent(at(5), Some(GAP));
            assert!(pace.is_on());
            assert_eq!(pace.wait(at(6)), Some(at(5 + GAP)));
            pace.sent(now, None);
            assert!(!pace.is_on());
            assert_eq!(pace.wait(now), None);
        }
    }

    #[test]
    fn packets_are_spaced_by_gap() {
        let mut pace = Pace::default();
        let mut now = at(1_000);
        for _ in 0..100 {
            assert_eq!(pace.wait(now), None);
            pace.sent(now, Some(GAP));
            let next = now.after(GAP);
            assert_eq!(pace.wait(at(next.as_ns() - 1)), Some(next));
            now = next;
        }
    }

    #[test]
    fn sender_catches_up_after_late_timers() {
        let mut pace = Pace::default();
        let (mut sent, mut now) = (0, 0);
        // Each timer fires 10 µs late, which is the time of three packets.
        while now < 1_000_000 {
            match pace.wait(at(now)) {
                None => {
                    pace.sent(at(now), Some(GAP));
                    sent += 1;
                }
                Some(next) => now = next.as_ns() + 10_000,
            }
        }
        let ideal = 1_000_000 / GAP;
        assert!(sent <= ideal + 1 && sent >= ideal * 95 / 100);
    }

    #[test]
    fn sender_does_not_catch_up_on_idle_time() {
        let mut pace = Pace::default();
        pace.sent(at(1), Some(GAP));
        assert_eq!(pace.wait(at(2)), Some(at(1 + GAP)));
        assert_eq!(pace.wait(at(1 + GAP)), None);
        pace.sent(at(1 + GAP), Some(GAP));
        // No packet waited meanwhile.
        let late = 1_000 * GAP;
        pace.sent(at(late), Some(GAP));
        assert_eq!(pace.wait(at(late)), Some(at(late + GAP)));
    }

    #[test]
    fn burst_after_late_timer_is_bounded() {
        let mut pace = Pace::default();
        pace.sent(at(1), Some(GAP));
        assert_eq!(pace.wait(at(2)), Some(at(1 + GAP)));
        let now = at(1_000_000_000);
        let mut burst = 0;
        while pace.wait(now).is_none() {
            pace.sent(now, Some(GAP));
            burst += 1;
        }
        assert_eq!(burst, SLACK / GAP + 1);
    }
}
