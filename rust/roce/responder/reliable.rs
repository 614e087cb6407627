// SPDX-License-Identifier: GPL-2.0

//! RC: in order, exactly once.

use super::{
    message::Fault,
    recv_status,
    AsyncEvent,
    DropReason,
    Outcome,
    Pending,
    PendingPlace,
    RecvCompletion,
    RecvQueue,
    Reply,
    Responder,
    Verdict, //
};
use crate::{
    ids::Qpn,
    opcode::Operation,
    psn::Psn,
    wire::{
        NakCode,
        Packet,
        Syndrome, //
    },
    wr::{
        MemError,
        Status, //
    }, //
};

impl Responder {
    #[inline]
    pub(super) fn on_reliable(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        let psn = pkt.psn();
        if psn.is_before(self.epsn) {
            return self.on_duplicate(pkt);
        }
        if psn.is_after(self.epsn) {
            return self.on_early();
        }
        self.told = false;
        if pkt.opcode().operation() == Operation::ReadRequest {
            return self.on_read(pkt);
        }
        let plan = match self.plan(pkt) {
            Ok(plan) => plan,
            Err(fault) => return Verdict::Fail(self.refuse_faulty(psn, fault)),
        };
        if plan.needs_wqe && self.held.is_none() {
            match rq.take() {
                Some(Ok(capacity)) => self.held = Some(capacity),
                Some(Err(error)) => {
                    // The work request was taken, and ends here.
                    self.held = Some(0);
                    return Verdict::Fail(self.recv_refused(psn, error));
                }
                None => return self.not_ready(psn),
            }
        }
        let is_send = pkt.opcode().operation() == Operation::Send;
        if is_send && self.held.is_none_or(|capacity| plan.received > capacity) {
            return Verdict::Fail(self.recv_refused(psn, MemError::Length));
        }
        let completes = plan.needs_wqe && pkt.opcode().ends_message();
        self.pending = Pending::Place(PendingPlace {
            opcode: pkt.opcode(),
            psn,
            ack_req: pkt.ack_req(),
            completion: completes.then(|| RecvCompletion::done(pkt, plan.received, Qpn::default())),
            after: plan.after,
        });
        Verdict::Place(plan.place)
    }

    /// Handles a packet that comes before one that it should follow.
    fn on_early(&mut self) -> Verdict {
        if self.told {
            return Verdict::Drop(DropReason::PsnGap);
        }
        self.told = true;
        Verdict::Reply(self.nak(self.epsn, NakCode::PsnSequence))
    }

    /// Handles a packet that was executed before.
    fn on_duplicate(&mut self, pkt: &Packet<'_>) -> Verdict {
        if pkt.opcode().operation() == Operation::ReadRequest {
            return self.on_read_again(pkt);
        }
        // The peer waits for an acknowledgement only if it asked for one; to acknowledge every packet of a window that
        // is sent again would be a storm.
        if !pkt.ack_req() {
            return Verdict::Drop(DropReason::Duplicate);
        }
        // Never the PSN of a READ: to the peer that would mean that its responses got lost.
        Verdict::Reply(self.ack(self.ack_psn))
    }

    /// Tells the peer to wait because there is no receive work request.
    fn not_ready(&mut self, psn: Psn) -> Verdict {
        self.told = true;
        let timer = self.params.min_rnr_timer;
        Verdict::Reply(self.reply(psn, Syndrome::Rnr { timer }))
    }

    /// Refuses a packet that breaks the rules.
    #[cold]
    pub(super) fn refuse_faulty(&mut self, psn: Psn, fault: Fault) -> Outcome {
        match fault {
            Fault::Opcode | Fault::NotAllowed | Fault::Length => self.refuse(
                psn,
                NakCode::InvalidRequest,
                Status::RemInvReq,
                AsyncEvent::RequestError,
            ),
        }
    }

    /// Refuses a packet because the receive work request cannot take it.
    #[cold]
    pub(super) fn recv_refused(&mut self, psn: Psn, error: MemError) -> Outcome {
        let code = match error {
            MemError::Length => NakCode::InvalidRequest,
            MemError::Protection | MemError::Fault => NakCode::RemoteOperation,
        };
        self.refuse(psn, code, recv_status(error), AsyncEvent::RequestError)
    }

    /// Refuses a WRITE because the memory cannot take it.
    #[cold]
    pub(super) fn write_refused(&mut self, place: &PendingPlace, error: MemError) -> Outcome {
        self.refuse(
            place.psn,
            access_code(error),
            Status::LocAccess,
            AsyncEvent::AccessError,
        )
    }

    /// Refuses a packet, and fails the queue pair.
    ///
    /// The held receive work request tells the consumer why; only without one it takes an event (IBTA C9-222.1).
    #[cold]
    pub(super) fn refuse(
        &mut self,
        psn: Psn,
        code: NakCode,
        status: Status,
        event: AsyncEvent,
    ) -> Outcome {
        let outcome = self.fail_held(status);
        Outcome {
            reply: Some(self.nak(psn, code)),
            event: outcome.completion.is_none().then_some(event),
            ..outcome
        }
    }

    #[inline]
    pub(super) fn ack(&self, psn: Psn) -> Reply {
        self.reply(psn, Syndrome::ACK)
    }

    pub(super) fn nak(&self, psn: Psn, code: NakCode) -> Reply {
        self.reply(psn, Syndrome::Nak(code))
    }

    #[inline]
    fn reply(&self, psn: Psn, syndrome: Syndrome) -> Reply {
        Reply {
            psn,
            syndrome,
            msn: self.msn,
            dest_qpn: self.params.dest_qpn,
        }
    }
}

/// Returns the code by which access to memory is refused.
pub(super) fn access_code(error: MemError) -> NakCode {
    match error {
        MemError::Protection | MemError::Length => NakCode::RemoteAccess,
        MemError::Fault => NakCode::RemoteOperation,
    }
}
