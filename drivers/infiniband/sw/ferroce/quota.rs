// SPDX-License-Identifier: GPL-2.0

//! How many objects of a kind there may be, where no table of numbers says so.

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
pub(crate) struct Charge(Arc<Quota>);

impl Quota {
    /// Creates a quota of which nothing is used. May sleep.
    pub(crate) fn new(max: u32) -> Result<Arc<Self>> {
        let quota = Self {
            used: Atomic::new(0),
            max,
        };
        Ok(Arc::new(quota, GFP_KERNEL)?)
    }
}

impl Charge {
    /// Takes one of a quota.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is none left.
    pub(crate) fn new(quota: &Arc<Quota>) -> Result<Self> {
        let mut used = quota.used.load(Relaxed);
        while used < quota.max {
            match quota.used.cmpxchg(used, used.wrapping_add(1), Relaxed) {
                Ok(_) => return Ok(Self(quota.clone())),
                Err(now) => used = now,
            }
        }
        Err(ENOMEM)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}
