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
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The most packets that wait; more are dropped.
const MAX: usize = 128;

/// How much memory all packets that wait anywhere may keep from other uses, in bytes. Nobody is
/// charged for them: neither who sent them nor who gets them.
const MAX_BYTES: usize = 64 << 20;

/// How much they keep.
static BYTES: Atomic<usize> = Atomic::new(0);

/// Packets that wait, oldest first. Belongs to a half, under its lock.
pub(crate) struct Backlog(KVec<(Incoming, Bytes)>);

/// Memory that is counted in [`BYTES`] as long as this lives.
struct Bytes(usize);

impl Bytes {
    /// Counts the memory of a packet. None if it would be too much.
    fn of(incoming: &Incoming) -> Option<Self> {
        let size = incoming.footprint();
        let this = Self(size);

        (BYTES.fetch_add(size, Relaxed).saturating_add(size) <= MAX_BYTES).then_some(this)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.0, Relaxed);
    }
}

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
        let refused = match Bytes::of(&incoming) {
            Some(bytes) => match self.0.push_within_capacity((incoming, bytes)) {
                Ok(()) => return true,
                Err(full) => full.0 .0,
            },
            None => incoming,
        };
        counters.dropped(Counter::Backlog, 1);
        traces::dropped_waiting(qp, &refused);
        false
    }

    /// Takes the packet that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Incoming> {
        self.0.remove(0).ok().map(|(incoming, _)| incoming)
    }

    /// Drops all packets; returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.0.len();
        self.0.clear();
        count
    }
}
