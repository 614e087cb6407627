// SPDX-License-Identifier: GPL-2.0

//! The NAK for a refused request, which ends the connection (RC).
//!
//! Once the queue pair has refused a request it is in ERR, and no retry of the peer elicits the NAK
//! again. So unlike other acknowledgments, it is kept and sent again while a queue below has no
//! room or memory is short. READ responses that were taken back are sent before it, but not those
//! of a kernel consumer, which may reuse its memory once it has drained the queue pair.

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    counters::Counter,
    device::IbQp,
    qp::path::SendError,
    traces, //
};
use roce::responder::Reply;

impl RecvHalf {
    /// Sends the NAK for a request that was just refused, or keeps it.
    #[cold]
    pub(super) fn refuse(&mut self, qp: &IbQp, nak: &Reply, run: &mut Run) {
        self.tx.counters.count(Counter::NakSent);
        self.refusal = Some(*nak);
        self.send_refusal(qp, run);
    }

    /// Sends the kept NAK, after the READ responses before it.
    ///
    /// If it must wait, the half will be run again, also in ERR.
    pub(super) fn send_refusal(&mut self, qp: &IbQp, run: &mut Run) {
        let Some(nak) = self.refusal else {
            return;
        };
        if !self.build_responses(qp, run) || !self.hand_over(qp, run) {
            return;
        }
        let sent = self.tx.send_last(qp, &nak);
        if sent == Err(SendError::NoRoom) {
            return;
        }
        self.refusal = None;
        if sent.is_ok() {
            traces::acknowledged(qp, &nak);
        }
    }
}
