// SPDX-License-Identifier: GPL-2.0

//! Lost packets and overdue responses.

use super::SendHalf;
use crate::{
    counters::{
        self,
        Counter, //
    },
    device::IbQp,
    traces, //
};
use roce::{
    requester::{
        Expired,
        SendState, //
    },
    time::Instant, //
};

impl SendHalf {
    /// Retransmits if a response is overdue, or an RNR wait is over. Returns whether everything is
    /// sent again.
    pub(super) fn on_timeout(&mut self, qp: &IbQp, now: Instant) -> bool {
        match self.req.on_timeout(now) {
            Expired::Nothing => {}
            Expired::RnrTimer => return true,
            Expired::Probe => {
                self.tx.counters.count(Counter::Probe);
                traces::retried(qp, || self.req.snapshot(), Counter::Probe);
            }
            Expired::Missing(kind) => {
                if let Some(counter) = counters::of_response(kind) {
                    self.tx.counters.count(counter);
                    self.missing(qp, counter);
                }
            }
            Expired::Retry => {
                self.tx.counters.count(Counter::Timeout);
                self.lost_oldest();
                self.count_retry();
                traces::retried(qp, || self.req.snapshot(), Counter::Timeout);
                return true;
            }
        }
        false
    }

    /// Handles the loss of a packet, or of the response to it, which `counter` identifies. The
    /// packet is sent again.
    pub(super) fn missing(&mut self, qp: &IbQp, counter: Counter) {
        if counter == Counter::SequenceNak {
            self.lost_oldest();
        }
        self.count_retry();
        traces::retried(qp, || self.req.snapshot(), counter);
    }

    /// Reports the loss of the oldest packet to the transmit side.
    #[cold]
    pub(super) fn lost_oldest(&mut self) {
        let (oldest, next) = (self.req.oldest_psn(), self.req.send_psn());
        self.tx.lost(oldest, next);
    }

    /// Counts a retry, unless no retry was left.
    #[cold]
    fn count_retry(&self) {
        if self.req.state() != SendState::Error {
            self.tx.counters.count(Counter::Retry);
        }
    }
}
