// SPDX-License-Identifier: GPL-2.0

//! Counting of the halves of queue pairs that send.
//!
//! Sending halves share the room of the queues below; see [`tx_backoff`](crate::tx_backoff). An
//! idle half needs no share, so each half is counted with its first packet in a period. When a
//! period ends, counting begins again at zero, and the old count is valid until the next period
//! ends. So no half has to be uncounted.
//!
//! ```text
//!   period       0         1         2         3         4
//!   half A       * * * * * | * * * * |         |         |
//!   half B                 |   *     |   *     |         |
//!   counted      1         | 1 2     | 2       | 1       | 0
//! ```
//!
//! So a half is counted for at least one period and at most two after its last attempt to send. The
//! shared count is written only once for each half and period.

use crate::time::Instant;

/// The number of a period of [`Period::NS`] nanoseconds. Wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(u32);

impl Period {
    /// The length of a period in nanoseconds: 134 ms, a power of two.
    ///
    /// A half that waits for its packets to leave the queues below tries again every 100 ms, so it
    /// stays counted while it waits.
    pub const NS: u64 = 1 << Self::SHIFT;

    const SHIFT: u32 = 27;

    /// Returns the period of a time.
    #[inline]
    pub const fn of(time: Instant) -> Period {
        // CAST: Modulo 2^32.
        Period((time.as_ns() >> Self::SHIFT) as u32)
    }
}

/// The number of halves that were counted in a period and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Senders {
    period: Period,
    before: u16,
    current: u16,
}

impl Senders {
    /// Returns the number of sending halves.
    #[inline]
    pub fn count(self, period: Period) -> u32 {
        let here = self.at(period);
        u32::from(here.before.max(here.current))
    }

    /// Returns the count with one more half. Each half may be added once in a period.
    #[inline]
    pub fn with_another(self, period: Period) -> Senders {
        let mut here = self.at(period);
        here.current = here.current.saturating_add(1);
        here
    }

    /// Returns the count in `period`.
    ///
    /// CPUs disagree slightly about the end of a period. So a period that has already ended on
    /// other CPUs is treated as the current one.
    #[inline]
    fn at(self, period: Period) -> Senders {
        match period.0.wrapping_sub(self.period.0) {
            0 | 0x8000_0000.. => self,
            1 => Senders {
                period,
                before: self.current,
                current: 0,
            },
            _ => Senders {
                period,
                before: 0,
                current: 0,
            },
        }
    }

    /// Converts to a number, which an atomic can store.
    #[inline]
    pub const fn to_raw(self) -> u64 {
        // CAST: Widening.
        ((self.period.0 as u64) << 32) | ((self.before as u64) << 16) | self.current as u64
    }

    /// Converts from a number of [`Senders::to_raw`]. 0 stands for no half.
    #[inline]
    pub const fn from_raw(raw: u64) -> Senders {
        // CAST: The parts that `to_raw` has joined.
        Senders {
            period: Period((raw >> 32) as u32),
            before: (raw >> 16) as u16,
            current: raw as u16,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_senders))]
mod tests {
    use super::*;
    use crate::tx_backoff::TxBackoff;

    const MS: u64 = 1_000_000;

    /// A device with its count.
    struct Device {
        senders: Senders,
        /// The number of writes.
        writes: u32,
    }

    impl Device {
        fn new() -> Device {
            Device {
                senders: Senders::from_raw(0),
                writes: 0,
            }
        }

        /// Counts a half that sends, and returns its limit of packets in flight.
        fn send(&mut self, half: &mut TxBackoff, at: u64) -> u32 {
            let period = Period::of(Instant::from_ns(at));
            if half.begins(period) {
                self.senders = self.senders.with_another(period);
                self.writes += 1;
            }
            half.limit(self.senders.count(period), false)
        }
    }

    #[test]
    fn idle_senders_are_not_counted() {
        let mut device = Device::new();
        let mut halves = [TxBackoff::default(); 64];

        for half in &mut halves {
            device.send(half, 1000 * MS);
        }
        assert_eq!(device.send(&mut halves[0], 1000 * MS), TxBackoff::SHARE);
        // The same 10 ms and one period later, and the maximum from the second period on.
        assert_eq!(device.send(&mut halves[0], 1010 * MS), TxBackoff::SHARE);
        let later = 1000 * MS + Period::NS;
        assert_eq!(device.send(&mut halves[0], later), TxBackoff::SHARE);
        let later = later + Period::NS;
        assert_eq!(device.send(&mut halves[0], later), TxBackoff::MOST);
    }

    #[test]
    fn continuous_senders_keep_their_shares() {
        let mut device = Device::new();
        let mut halves = [TxBackoff::default(); 32];

        for at in 0..1000 {
            for half in &mut halves {
                let limit = device.send(half, at * MS);
                assert!(at == 0 || limit == 32);
            }
        }
    }

    #[test]
    fn waiting_sender_stays_counted() {
        // The interval at which the driver polls (`tx::TAKEOVER`), and that of a late timer.
        for step in [100 * MS, 130 * MS] {
            let mut device = Device::new();
            let mut half = TxBackoff::default();

            for at in (0..10_000 * MS).step_by(7_000_000) {
                if at % step < 7 * MS {
                    device.send(&mut half, at);
                }
                let period = Period::of(Instant::from_ns(at));
                assert_eq!(device.senders.count(period), 1);
            }
        }
    }

    #[test]
    fn ping_pong_writes_count_once_per_period() {
        let mut device = Device::new();
        let mut half = TxBackoff::default();

        for at in 0..100_000 {
            device.send(&mut half, at * MS / 100);
        }
        // In one second.
        assert_eq!(u64::from(device.writes), 1000 * MS / Period::NS + 1);
    }

    #[test]
    fn reset_half_is_not_counted_again() {
        let mut device = Device::new();
        let mut half = TxBackoff::default();

        for _ in 0..100 {
            device.send(&mut half, 0);
            half.reset();
        }
        assert_eq!(device.writes, 1);
    }

    #[test]
    fn late_cpu_counts_in_current_period() {
        let senders = Senders::from_raw(0).with_another(Period(7));
        let both = senders.with_another(Period(6));

        assert_eq!(both.count(Period(7)), 2);
        assert_eq!(both.count(Period(6)), 2);
        assert_eq!(both.count(Period(9)), 0);
    }

    #[test]
    fn counts_saturate_and_periods_wrap() {
        let mut senders = Senders::from_raw(0)
            .at(Period(1 << 30))
            .at(Period(u32::MAX >> 1));
        senders = senders.at(Period(u32::MAX - 1));

        for _ in 0..70_000 {
            senders = senders.with_another(Period(u32::MAX));
        }
        assert_eq!(Senders::from_raw(senders.to_raw()), senders);
        assert_eq!(senders.count(Period(u32::MAX)), 65_535);
        assert_eq!(senders.count(Period(0)), 65_535);
        assert_eq!(senders.count(Period(1)), 0);
        assert_eq!(senders.with_another(Period(0)).count(Period(1)), 1);
    }

    #[test]
    fn raw_number_has_all_parts() {
        let mut senders = Senders::from_raw(0).with_another(Period(7));
        senders = senders.with_another(Period(7)).with_another(Period(8));
        assert_eq!(senders.to_raw(), (8 << 32) | (2 << 16) | 1);
        assert_eq!(Senders::from_raw(senders.to_raw()), senders);
    }
}
