// SPDX-License-Identifier: GPL-2.0

//! The last acknowledgment, repeated when the queue pair stops receiving.

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    clock,
    device::IbQp, //
};

/// The number of repetitions.
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

    /// Repeats the last acknowledgment of a queue pair that stops receiving. The caller resets the
    /// responder afterwards, so this happens once.
    ///
    /// Programs disconnect or destroy a queue pair as soon as they have all messages. If the peer
    /// has not requested the acknowledgment of the last message yet, or if it is lost, no retry of
    /// the peer is answered, and it reports an error for a message that succeeded. A peer ignores
    /// duplicates.
    ///
    /// If the peer has been silent for long, it has probably received the acknowledgment. Then
    /// nothing is sent, because its number may belong to another queue pair by now.
    pub(crate) fn repeat_last_ack(&mut self, qp: &IbQp) {
        if self.silent_for() > REPEAT_FOR {
            return;
        }
        if let Some(ack) = self.resp.last_ack() {
            for _ in 0..COPIES {
                self.reply(qp, &ack, &mut Run::new());
            }
        }
    }
}
