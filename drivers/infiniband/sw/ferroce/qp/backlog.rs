// SPDX-License-Identifier: GPL-2.0

//! Packets that wait for what a half is doing.

use super::IbQp;
use crate::{
    counters::{
        Counter,
        Counters, //
    },
    receive::Incoming,
    traces, //
};
use kernel::prelude::*;

/// The most packets that wait; more are dropped.
const MAX: usize = 128;

/// Packets that wait, oldest first. Belongs to a half, under its lock.
pub(crate) struct Backlog(KVec<Incoming>);

impl Backlog {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KVec::with_capacity(MAX, GFP_KERNEL_ACCOUNT)?))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many packets wait.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Lets a packet of a queue pair wait. If there is no room it is dropped, and counted. Returns
    /// whether it waits.
    // Not inlined, so that it is compiled together with the check that makes it safe.
    #[inline(never)]
    pub(crate) fn push(&mut self, qp: &IbQp, incoming: Incoming, counters: &Counters) -> bool {
        let Err(full) = self.0.push_within_capacity(incoming) else {
            return true;
        };
        counters.dropped(Counter::Backlog, 1);
        traces::dropped_waiting(qp, &full.0);
        false
    }

    /// Takes the packet that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Incoming> {
        self.0.remove(0).ok()
    }

    /// Drops all packets; returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.0.len();
        self.0.clear();
        count
    }
}
