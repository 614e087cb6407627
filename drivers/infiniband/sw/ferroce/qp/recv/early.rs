// SPDX-License-Identifier: GPL-2.0

//! Packets that arrived before an earlier one (RC).

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    counters::Counter,
    device::IbQp,
    packet::Incoming,
    traces, //
};

impl RecvHalf {
    /// Keeps a packet until those before it have arrived; drops it if it may not be kept.
    #[cold]
    pub(super) fn keep_early(&mut self, qp: &IbQp, incoming: Incoming) {
        let Ok(psn) = incoming.packet().map(|packet| packet.psn()) else {
            return;
        };
        let kept = match self.resp.may_keep(psn) {
            true => self.early.keep(incoming),
            false => Err(incoming),
        };
        match kept {
            Ok(()) => {
                self.resp.kept(psn);
                self.counters.count(Counter::OutOfOrder);
            }
            Err(refused) => {
                self.counters.dropped(Counter::Gap, 1);
                if let Ok(packet) = refused.packet() {
                    traces::dropped(qp, &packet, Counter::Gap);
                }
            }
        }
    }

    /// Handles the kept packets that no missing one precedes, and reports what is missing next.
    #[cold]
    pub(super) fn take_early(&mut self, qp: &IbQp, run: &mut Run) {
        while !self.resp.is_busy() && self.resp.is_kept_due() {
            if !run.spend() {
                return;
            }
            let incoming = self.early.pop();
            self.resp.took_kept(self.early.first_psn());
            let Some(incoming) = incoming else {
                return;
            };
            self.share_train(qp, &incoming, run);
            self.take_owned(qp, incoming, run);
            self.send_responses(qp, run);
        }
        if let Some(nak) = self.resp.report_gap() {
            self.counters.count(Counter::OutOfSequence);
            self.reply(qp, &nak, run);
        }
    }
}
