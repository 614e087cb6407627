// SPDX-License-Identifier: GPL-2.0

//! UD: one packet a message, from anybody who knows the key.

use super::{
    message::Message,
    recv_status,
    DropReason,
    Outcome,
    Pending,
    PendingPlace,
    Place,
    RecvCompletion,
    RecvQueue,
    Responder,
    Verdict, //
};
use crate::{
    wire::{
        Packet,
        GRH_LEN, //
    },
    wr::MemError, //
};

impl Responder {
    #[inline]
    pub(super) fn on_datagram(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        let Some(deth) = pkt.deth() else {
            return Verdict::Drop(DropReason::BadOpcode);
        };
        if deth.qkey != self.params.qkey {
            return Verdict::Drop(DropReason::BadQkey);
        }
        let len = pkt.payload_len();
        if len > self.params.mtu {
            return Verdict::Drop(DropReason::BadLength);
        }
        let capacity = match rq.take() {
            Some(Ok(capacity)) => capacity,
            Some(Err(error)) => {
                // The work request was taken, and ends here.
                self.held = Some(0);
                return Verdict::Fail(self.datagram_refused(error));
            }
            None => return Verdict::Drop(DropReason::NoRecvWqe),
        };
        self.held = Some(capacity);
        let byte_len = len.saturating_add(GRH_LEN);
        if byte_len > capacity {
            return Verdict::Fail(self.datagram_refused(MemError::Length));
        }
        self.pending = Pending::Place(PendingPlace {
            opcode: pkt.opcode(),
            psn: pkt.psn(),
            ack_req: false,
            completion: Some(RecvCompletion::done(pkt, byte_len, deth.src_qpn)),
            after: Message::None,
        });
        Verdict::Place(Place::Recv {
            offset: GRH_LEN,
            len,
        })
    }

    /// Ends the held receive work request because it cannot take the datagram.
    ///
    /// A datagram that is too long fails only the work request, not the queue pair: anybody can send one.
    #[cold]
    pub(super) fn datagram_refused(&mut self, error: MemError) -> Outcome {
        let outcome = self.fail_held(recv_status(error));
        self.failed = error != MemError::Length;
        Outcome {
            error: self.failed,
            ..outcome
        }
    }
}
