// SPDX-License-Identifier: GPL-2.0

//! The number of halves of a device's queue pairs that send.

use crate::clock;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use roce::{
    senders,
    tx_backoff::TxBackoff, //
};

/// A count of the halves that send, see [`roce::senders`]. Part of the device.
pub(crate) struct Senders(Atomic<u64>);

impl Senders {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts a half that sends, and returns the maximum number of packets that it may have in
    /// queues below. `in_trains` is true if they leave in trains. The lock of the half is held,
    /// which protects `tx_backoff`.
    #[inline]
    pub(crate) fn limit(&self, tx_backoff: &mut TxBackoff, in_trains: bool) -> u32 {
        let period = senders::Period::of(clock::coarse());

        if tx_backoff.begins(period) {
            self.add(period);
        }
        let senders = senders::Senders::from_raw(self.0.load(Relaxed)).count(period);
        tx_backoff.limit(senders, in_trains)
    }

    /// Counts another half. The loop terminates: it repeats only if a different half was counted
    /// concurrently, and each is counted only once in a period.
    #[cold]
    fn add(&self, period: senders::Period) {
        let mut raw = self.0.load(Relaxed);

        loop {
            let next = senders::Senders::from_raw(raw).with_another(period);
            match self.0.cmpxchg(raw, next.to_raw(), Relaxed) {
                Ok(_) => return,
                Err(current) => raw = current,
            }
        }
    }
}
