// SPDX-License-Identifier: GPL-2.0

//! Responses that arrived before an explicit one that is missing.
//!
//! They are kept in the backlog. While a response waits for memory, later ones wait there, too, and
//! all of them are handled again after it.

use super::SendHalf;
use crate::{
    counters::Counter,
    device::IbQp,
    mr::RegionCache,
    packet::Incoming, //
};
use roce::{
    psn::Psn,
    time::Instant, //
};

impl SendHalf {
    /// Keeps a response until those before it have arrived; drops it if it may not be kept.
    #[cold]
    pub(super) fn keep_early(&mut self, qp: &IbQp, psn: Psn, incoming: Incoming) {
        let may_keep = self.req.may_keep(psn);
        let counters = &self.tx.counters;
        if self
            .backlog
            .push(qp, incoming, may_keep, Counter::Gap, counters)
        {
            counters.count(Counter::OutOfOrderResponse);
            self.req.kept(psn);
        } else {
            self.req.not_kept(psn);
        }
    }

    /// Handles the kept responses that no missing one precedes.
    #[inline]
    pub(super) fn take_early(&mut self, qp: &IbQp, now: Instant, regions: &mut RegionCache) {
        // The loop handles at most as many responses as the backlog holds: none is kept twice.
        while self.parked.is_none() && self.req.is_kept_due() {
            self.take_first_early(qp, now, regions);
        }
    }

    #[cold]
    fn take_first_early(&mut self, qp: &IbQp, now: Instant, regions: &mut RegionCache) {
        let incoming = self.backlog.pop();
        self.req.took_kept(self.backlog.first_psn());
        if let Some(incoming) = incoming {
            self.on_response(qp, now, incoming, None, regions);
        }
    }
}
