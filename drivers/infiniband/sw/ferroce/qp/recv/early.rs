// SPDX-License-Identifier: GPL-2.0

//! Packets that arrived before an earlier one (RC).

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    clock,
    counters::Counter,
    device::IbQp,
    packet::Incoming, //
};

/// The time for which kept packets wait for a peer that sends nothing, in ns.
///
/// A peer that is alive sends the missing packet again within its timeout, which is shorter in most
/// programs. If it is longer, the peer sends the dropped packets again, too.
const KEEP_FOR: u64 = 5_000_000_000;

impl RecvHalf {
    /// Keeps a packet until those before it have arrived; drops it if it may not be kept.
    #[cold]
    pub(super) fn keep_early(&mut self, qp: &IbQp, incoming: Incoming) {
        let Ok(psn) = incoming.packet().map(|packet| packet.psn()) else {
            return;
        };
        let may_keep = self.resp.may_keep(psn);
        let counters = &self.tx.counters;
        if self
            .early
            .push(qp, incoming, may_keep, Counter::Gap, counters)
        {
            counters.count(Counter::OutOfOrder);
            self.resp.kept(psn);
            self.watch_early(qp, KEEP_FOR);
        } else {
            self.resp.not_kept(psn);
        }
    }

    /// Arms the timer that looks at the kept packets after `pause` ns, unless it is armed.
    fn watch_early(&mut self, qp: &IbQp, pause: u64) {
        if !self.is_early_watched {
            self.is_early_watched = true;
            qp.watch_timer.arm(clock::monotonic().after(pause).as_ns());
        }
    }

    /// Drops the kept packets of a peer that has been silent for [`KEEP_FOR`], or looks at them
    /// again later. Packets that can be handled now are kept.
    pub(super) fn expire_early(&mut self, qp: &IbQp) {
        self.is_early_watched = false;
        if self.early.is_empty() {
            return;
        }
        let left = KEEP_FOR.saturating_sub(self.silent_for());
        if left > 0 || self.resp.is_kept_due() {
            self.watch_early(qp, left.max(KEEP_FOR / 4));
            return;
        }
        self.resp.forget_kept();
        let dropped = self.early.clear();
        self.tx.counters.dropped(Counter::Gap, dropped);
    }

    /// Handles the kept packets that no missing one precedes, and reports the next missing packet.
    #[cold]
    pub(super) fn take_early(&mut self, qp: &IbQp, run: &mut Run) {
        while qp.state().is_receiving() {
            // The half is busy again if a queue below has no room for READ responses.
            self.hand_over(qp, run);
            if self.resp.is_busy() || !self.resp.is_kept_due() {
                break;
            }
            if !run.spend() {
                return;
            }
            let incoming = self.early.pop();
            self.resp.took_kept(self.early.first_psn());
            let Some(incoming) = incoming else {
                return;
            };
            self.take_owned(qp, incoming, run);
            self.send_responses(qp, run);
        }
        self.settle_early(qp, run);
    }

    /// Sends the owed acknowledgment of kept packets and reports the missing packet behind them,
    /// unless one of them can be handled now. All READ responses were handed over.
    #[inline]
    pub(super) fn settle_early(&mut self, qp: &IbQp, run: &mut Run) {
        if let Some(ack) = self.resp.owed_ack() {
            self.reply(qp, &ack, run);
        }
        if let Some(nak) = self.resp.report_gap() {
            self.tx.counters.count(Counter::OutOfSequence);
            self.reply(qp, &nak, run);
        }
    }
}
