// SPDX-License-Identifier: GPL-2.0

//! UC: in order, at most once, whole messages only.

use super::{
    message::{
        Fault,
        Message, //
    },
    recv_status,
    DropReason,
    Pending,
    PendingPlace,
    RecvCompletion,
    RecvQueue,
    Responder,
    Verdict, //
};
use crate::{
    ids::Qpn,
    opcode::Operation,
    psn::Psn,
    wire::Packet,
    wr::Status, //
};

impl Responder {
    #[inline]
    pub(super) fn on_unreliable(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        let psn = pkt.psn();
        let gap = psn != self.epsn;
        if gap || pkt.opcode().starts_message() {
            // What is missing never comes. A packet that starts a message needs nothing of what is missing.
            self.message = Message::None;
        }
        if self.message == Message::None && !pkt.opcode().starts_message() {
            return self.drop_cut(psn, DropReason::PsnGap);
        }
        let plan = match self.plan(pkt) {
            Ok(plan) => plan,
            Err(Fault::Opcode) => return self.drop_cut(psn, DropReason::BadOpcode),
            Err(Fault::NotAllowed) => return self.drop_cut(psn, DropReason::NotAllowed),
            Err(Fault::Length) => return self.drop_cut(psn, DropReason::BadLength),
        };
        if plan.needs_wqe && self.held.is_none() {
            match rq.take() {
                Some(Ok(capacity)) => self.held = Some(capacity),
                Some(Err(error)) => {
                    // The work request was taken, and ends here.
                    self.held = Some(0);
                    return Verdict::Fail(self.fail_held(recv_status(error)));
                }
                None => return self.drop_cut(psn, DropReason::NoRecvWqe),
            }
        }
        let is_send = pkt.opcode().operation() == Operation::Send;
        if is_send && self.held.is_none_or(|capacity| plan.received > capacity) {
            return Verdict::Fail(self.fail_held(Status::LocLen));
        }
        let completes = plan.needs_wqe && pkt.opcode().ends_message();
        self.pending = Pending::Place(PendingPlace {
            opcode: pkt.opcode(),
            psn,
            ack_req: false,
            completion: completes.then(|| RecvCompletion::done(pkt, plan.received, Qpn::default())),
            after: plan.after,
        });
        Verdict::Place(plan.place)
    }

    /// Gives the message up that the packet belongs to. A held receive work request waits for the next one.
    pub(super) fn cut(&mut self, psn: Psn) {
        self.message = Message::None;
        self.epsn = psn.next();
    }

    fn drop_cut(&mut self, psn: Psn, reason: DropReason) -> Verdict {
        self.cut(psn);
        Verdict::Drop(reason)
    }
}
