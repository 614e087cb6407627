// SPDX-License-Identifier: GPL-2.0

//! The last reply of a queue pair that stops receiving (RC): the NAK for a request that it refused,
//! or else its last acknowledgment, repeated.
//!
//! Afterwards no retry of the peer elicits the reply again. So unlike other replies, it waits in
//! ERR while a queue below has no room, memory is short, or packets of another CPU are on their
//! way. READ responses that were taken back are sent before it, but not those of a kernel consumer,
//! which may reuse its memory once it has drained the queue pair.

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    clock,
    counters::Counter,
    device::IbQp,
    qp::path::SendError,
    traces, //
};
use roce::{
    responder::Reply,
    wire::Syndrome, //
};

/// The number of times that the last acknowledgment is sent again.
const COPIES: u32 = 3;

/// The time after a request in which its acknowledgment may be repeated, in ns.
///
/// A peer that has missed it retransmits after its timeout, a second or less in most programs; IBTA
/// permits up to four times the timeout.
const REPEAT_FOR: u64 = 5_000_000_000;

impl RecvHalf {
    /// Returns the time since the last request, in ns, with the resolution of a tick.
    pub(super) fn silent_for(&self) -> u64 {
        clock::coarse().since(self.heard_at)
    }

    /// Sends the NAK for a request that was just refused, or keeps it.
    #[cold]
    pub(super) fn refuse(&mut self, qp: &IbQp, nak: &Reply, run: &mut Run) {
        self.tx.counters.count(Counter::NakSent);
        self.last_reply = Some(*nak);
        self.send_last_reply(qp, run);
    }

    /// Keeps the last acknowledgment to repeat it, unless another reply is kept, and resets the
    /// responder, so that this happens once.
    ///
    /// Programs disconnect or destroy a queue pair as soon as they have all messages. If the peer
    /// has not requested the acknowledgment of the last message yet, or if it is lost, no retry of
    /// the peer is answered, and it reports an error for a message that succeeded. A peer ignores
    /// duplicates.
    ///
    /// If the peer has been silent for long, it has probably received the acknowledgment. Then
    /// nothing is sent, because its number may belong to another queue pair by now.
    pub(super) fn keep_last_ack(&mut self) {
        if self.last_reply.is_some() || self.silent_for() > REPEAT_FOR {
            return;
        }
        self.last_reply = self.resp.last_ack();
        if self.last_reply.is_some() {
            // The responses to a duplicate READ may be left. They are not sent.
            self.resp.reset();
        }
    }

    /// Sends the kept reply, after the READ responses before it.
    ///
    /// If it must wait, the half will be run again, also in ERR.
    pub(super) fn send_last_reply(&mut self, qp: &IbQp, run: &mut Run) {
        if self.last_reply.is_some() && self.build_responses(qp, run) && self.hand_over(qp, run) {
            self.try_last_reply(qp);
        }
    }

    /// Sends the kept reply, or repeats the last acknowledgment, of a queue pair that enters RESET
    /// or is destroyed. READ responses that wait are not sent. The reply is lost if it must wait.
    pub(crate) fn send_last_reply_now(&mut self, qp: &IbQp) {
        self.keep_last_ack();
        self.try_last_reply(qp);
        if self.last_reply.take().is_some() {
            self.tx.counters.lost(Counter::Rejected, 1);
        }
    }

    /// Sends the kept reply, an acknowledgment [`COPIES`] times. Keeps it if it must wait.
    fn try_last_reply(&mut self, qp: &IbQp) {
        let Some(reply) = self.last_reply else {
            return;
        };
        let sent = self.tx.send_last(qp, &reply);
        if sent == Err(SendError::NoRoom) {
            return;
        }
        self.last_reply = None;
        if sent.is_err() {
            return;
        }
        traces::acknowledged(qp, &reply);
        if matches!(reply.syndrome, Syndrome::Ack { .. }) {
            for _ in 1..COPIES {
                self.reply(qp, &reply, &mut Run::new());
            }
        }
    }
}
