// SPDX-License-Identifier: GPL-2.0

//! Packets that wait until a half has finished the current one, or until earlier ones arrive.

use crate::{
    counters::{
        Counter,
        Counters, //
    },
    device::IbQp,
    owner::Owner,
    packet::{
        About,
        Incoming, //
    },
    pool::BACKLOG,
    traces, //
};
use kernel::sync::Arc;
use rdma::net::skbuff::SkBuffQueue;
use roce::psn::Psn;

/// Packets that wait, oldest first. At most `MAX` are kept, further ones are dropped. Belongs to a
/// half, under its lock.
///
/// The memory of each packet is charged to [`BACKLOG`], for the process that has the queue pair or
/// for all kernel consumers together. A process can keep packets waiting, for instance by delaying
/// its memory, and the sender is not known here.
///
/// An empty backlog allocates nothing: few queue pairs ever use theirs.
pub(crate) struct Backlog<const MAX: usize> {
    /// Each packet with its properties and its PSN.
    packets: SkBuffQueue<(About, Psn)>,
    owner: Option<Arc<Owner>>,
}

impl<const MAX: usize> Backlog<MAX> {
    pub(crate) const fn new(owner: Option<Arc<Owner>>) -> Self {
        Self {
            packets: SkBuffQueue::new(),
            owner,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of packets.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Keeps a packet of a queue pair. Drops it and counts it under `reason` if it may not be kept,
    /// or there is no room or no memory for it. Returns whether it is kept.
    // Not inlined: packets rarely have to wait.
    #[inline(never)]
    pub(crate) fn push(
        &mut self,
        qp: &IbQp,
        incoming: Incoming,
        may_keep: bool,
        reason: Counter,
        counters: &Counters,
    ) -> bool {
        let psn = incoming.packet().map(|packet| packet.psn());
        if !may_keep || self.packets.len() >= MAX || !self.charge(&incoming, false) {
            refuse(qp, &incoming, reason, counters);
            return false;
        }
        let (skb, about) = incoming.into_parts();
        self.packets.push(skb, (about, psn.unwrap_or_default()));
        true
    }

    /// Charges a packet that waits, here or apart from the others. Returns false if the share of
    /// the pool is used up. If `force`, charges it in any case.
    pub(crate) fn charge(&self, incoming: &Incoming, force: bool) -> bool {
        let (owner, size) = (self.owner.as_deref(), incoming.footprint());
        if force {
            BACKLOG.count(owner, size);
        }
        force || BACKLOG.take(owner, size).is_ok()
    }

    /// Ends the charge of a packet. Its footprint does not change while it waits.
    pub(crate) fn uncharge(&self, incoming: &Incoming) {
        BACKLOG.give_back(self.owner.as_deref(), incoming.footprint());
    }

    /// Returns the PSN of the packet that has waited longest.
    pub(crate) fn first_psn(&self) -> Option<Psn> {
        self.packets.first().map(|(_, psn)| psn)
    }

    /// Takes the packet that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Incoming> {
        let (skb, (about, _)) = self.packets.pop()?;
        let incoming = Incoming::from_parts(skb, about);
        self.uncharge(&incoming);
        Some(incoming)
    }

    /// Drops all packets; returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let count = self.packets.len();
        while self.pop().is_some() {}
        count
    }
}

impl<const MAX: usize> Drop for Backlog<MAX> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Counts and traces a packet that is not kept. The caller drops it.
#[cold]
pub(crate) fn refuse(qp: &IbQp, refused: &Incoming, counter: Counter, counters: &Counters) {
    counters.dropped(counter, 1);
    if let Ok(packet) = refused.packet() {
        traces::dropped(qp, &packet, counter);
    }
}
