// SPDX-License-Identifier: GPL-2.0

//! Packets that wait until a half has finished the current one.

use crate::{
    counters::{
        Counter,
        Counters, //
    },
    device::IbQp,
    owner::Owner,
    packet::Incoming,
    pool::BACKLOG,
    traces, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The most packets that wait; more are dropped.
const MAX: usize = 128;

/// Packets that wait, oldest first. Belongs to a half, under its lock.
///
/// The memory of each is charged to [`BACKLOG`] for the process that has the queue pair: it keeps
/// them waiting, for instance by memory that does not come, and the sender is not known here.
pub(crate) struct Backlog {
    packets: KVec<(Incoming, u32)>,
    owner: Option<Arc<Owner>>,
}

impl Backlog {
    pub(crate) fn new(owner: Option<Arc<Owner>>) -> Result<Self> {
        Ok(Self {
            packets: KVec::with_capacity(MAX, GFP_KERNEL_ACCOUNT)?,
            owner,
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns how many packets wait.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Keeps a packet of a queue pair, or drops and counts it if there is no room. Returns whether
    /// it is kept.
    // Not inlined, so that it is compiled together with the check that makes it safe.
    #[inline(never)]
    pub(crate) fn push(&mut self, qp: &IbQp, incoming: Incoming, counters: &Counters) -> bool {
        let refused = match self.keep(incoming) {
            Ok(()) => return true,
            Err(refused) => refused,
        };
        counters.dropped(Counter::Backlog, 1);
        traces::dropped_waiting(qp, &refused);
        false
    }

    /// Keeps a packet if there is room, and memory for it.
    fn keep(&mut self, incoming: Incoming) -> Result<(), Incoming> {
        let owner = self.owner.as_deref();
        let Ok(size) = u32::try_from(incoming.footprint()) else {
            return Err(incoming);
        };
        if BACKLOG.take(owner, size).is_err() {
            return Err(incoming);
        }
        self.packets
            .push_within_capacity((incoming, size))
            .map_err(|full| {
                BACKLOG.give_back(owner, size);
                full.0 .0
            })
    }

    /// Takes the packet that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Incoming> {
        let (incoming, size) = self.packets.remove(0).ok()?;
        BACKLOG.give_back(self.owner.as_deref(), size);
        Some(incoming)
    }

    /// Drops all packets; returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.packets.len();
        for (_, size) in &self.packets {
            BACKLOG.give_back(self.owner.as_deref(), *size);
        }
        self.packets.clear();
        count
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.clear();
    }
}
