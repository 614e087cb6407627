// SPDX-License-Identifier: GPL-2.0

//! How many objects of a kind there may be, where no table of numbers says so.

use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A number of objects that is not exceeded.
pub(crate) struct Quota {
    used: Atomic<u32>,
    max: u32,
}

/// One of a quota, given back when it is dropped, in any context.
pub(crate) struct Charge<Q: Deref<Target = Quota> = Arc<Quota>>(Q);

impl Quota {
    /// Creates a quota of which nothing is used. May sleep.
    pub(crate) fn new(max: u32) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::of(max), GFP_KERNEL)?)
    }

    /// A quota of which nothing is used.
    pub(crate) const fn of(max: u32) -> Self {
        Self {
            used: Atomic::new(0),
            max,
        }
    }

    /// Takes one if there is one left; returns whether there was. Callable in any context.
    fn take(&self) -> bool {
        let mut used = self.used.load(Relaxed);
        while used < self.max {
            match self.used.cmpxchg(used, used.wrapping_add(1), Relaxed) {
                Ok(_) => return true,
                Err(now) => used = now,
            }
        }
        false
    }

    /// Gives back one that was taken. Callable in any context.
    fn give_back(&self) {
        self.used.fetch_sub(1, Relaxed);
    }
}

impl<Q: Deref<Target = Quota>> Charge<Q> {
    /// Takes one of a quota.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is none left.
    pub(crate) fn new(quota: Q) -> Result<Self> {
        if !quota.take() {
            return Err(ENOMEM);
        }
        Ok(Self(quota))
    }
}

impl<Q: Deref<Target = Quota>> Drop for Charge<Q> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
