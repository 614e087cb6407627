// SPDX-License-Identifier: GPL-2.0

//! RC requests: each is executed in order and exactly once.

use super::{
    recv_status,
    resources::Records,
    sequence::Nak,
    AsyncEvent,
    DropReason,
    Outcome,
    RecvQueue,
    Reply,
    ReplyKind,
    Responder,
    Verdict, //
};
use crate::{
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

impl<S: Records> Responder<S> {
    /// Handles a request packet.
    #[inline]
    pub(super) fn on_reliable(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        let psn = pkt.psn();
        match psn.forward(self.sequence.epsn()) {
            0 => {}
            1..=Psn::HALF => return self.on_duplicate(pkt),
            _ => return self.on_early(),
        }
        self.sequence.arrived();
        match pkt.opcode().operation() {
            Operation::ReadRequest => return self.on_read(pkt),
            Operation::Atomic | Operation::AtomicWrite | Operation::Flush => {
                return self.on_command(pkt);
            }
            _ => {}
        }
        let plan = match self.plan(pkt) {
            Ok(plan) => plan,
            Err(_) => return Verdict::Fail(self.invalid_request(psn)),
        };
        match self.hold(plan.needs, rq) {
            Ok(()) => self.place(pkt, &plan, pkt.ack_req()),
            Err(Some(error)) => Verdict::Fail(self.recv_refused(psn, error)),
            Err(None) => self.not_ready(psn),
        }
    }

    /// Handles a packet with a PSN beyond the expected one.
    fn on_early(&mut self) -> Verdict {
        match self.sequence.nak() {
            // The peer sends everything again after the RNR timer.
            Some(Nak::Rnr) => Verdict::Drop(DropReason::PsnGap),
            Some(Nak::Sequence) => Verdict::Early(None),
            // The expected packet is not missing: it is kept, and about to be handled.
            None if self.is_kept_due() => Verdict::Early(None),
            None => Verdict::Early(Some(self.report_missing())),
        }
    }

    /// Returns the NAK that reports the expected packet as missing.
    pub(super) fn report_missing(&mut self) -> Reply {
        self.sequence.sent_nak(Nak::Sequence);
        self.nak(self.sequence.epsn(), NakCode::PsnSequence)
    }

    /// Handles a packet that was executed before.
    fn on_duplicate(&mut self, pkt: &Packet<'_>) -> Verdict {
        match pkt.opcode().operation() {
            Operation::ReadRequest => return self.on_read_again(pkt),
            Operation::Atomic | Operation::AtomicWrite | Operation::Flush => {
                return self.on_command_again(pkt);
            }
            _ => {}
        }
        // Acknowledge only if the peer requested it; acknowledging every packet of a retransmitted
        // window would cause an ACK storm. An invalid packet was never executed.
        if !pkt.ack_req() || pkt.opcode().operation() == Operation::Invalid {
            return Verdict::Drop(DropReason::Duplicate);
        }
        // Never acknowledge with the PSN of a READ: the peer would conclude that the responses to
        // that were lost.
        Verdict::Reply(self.ack(self.sequence.acked()))
    }

    /// Returns an RNR NAK because there is no receive request.
    fn not_ready(&mut self, psn: Psn) -> Verdict {
        self.sequence.sent_nak(Nak::Rnr);
        let timer = self.params.min_rnr_timer;
        Verdict::Reply(self.reply(psn, Syndrome::Rnr { timer }))
    }

    /// Refuses a packet that violates the protocol.
    #[cold]
    pub(super) fn invalid_request(&mut self, psn: Psn) -> Outcome {
        self.refuse(
            psn,
            NakCode::InvalidRequest,
            Status::RemInvReq,
            AsyncEvent::RequestError,
        )
    }

    /// Refuses a packet because the receive request cannot take it.
    #[cold]
    pub(super) fn recv_refused(&mut self, psn: Psn, error: MemError) -> Outcome {
        let code = match error {
            MemError::Length => NakCode::InvalidRequest,
            MemError::Protection
            | MemError::Misaligned
            | MemError::Fault
            | MemError::NotPresent => NakCode::RemoteOperation,
            // The message was received; only the local consumer gets an error (class J).
            MemError::Invalidate => return self.fail_held(recv_status(error)),
        };
        self.refuse(psn, code, recv_status(error), AsyncEvent::RequestError)
    }

    /// Refuses a packet because it may not access the memory that it names.
    #[cold]
    pub(super) fn access_refused(&mut self, psn: Psn, error: MemError) -> Outcome {
        let code = match error {
            MemError::Protection | MemError::Length | MemError::Invalidate => NakCode::RemoteAccess,
            MemError::Misaligned => return self.invalid_request(psn),
            MemError::Fault | MemError::NotPresent => NakCode::RemoteOperation,
        };
        self.refuse(psn, code, Status::LocAccess, AsyncEvent::AccessError)
    }

    /// Refuses a packet and fails the queue pair.
    ///
    /// The completion of the held receive request reports the error; an event is raised only if
    /// none is held (IBTA C9-222.1).
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
            kind: ReplyKind::Acknowledge,
            psn,
            syndrome,
            msn: self.sequence.msn(),
            dest_qpn: self.params.dest_qpn,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_reliable))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Handles a packet whose payload is placed successfully.
    fn accept(rx: &mut Responder, frame: &Frame, rq: &mut Recvs) -> Outcome {
        let verdict = rx.on_request(&frame.packet(), rq);
        assert!(matches!(verdict, Verdict::Place(_)));
        rx.finish(Ok(()))
    }

    fn replied(verdict: Verdict) -> Option<(u32, Syndrome)> {
        match verdict {
            Verdict::Reply(reply) | Verdict::Early(Some(reply)) => {
                Some((reply.psn.get(), reply.syndrome))
            }
            _ => None,
        }
    }

    #[test]
    fn message_is_delivered_and_acknowledged() {
        let [first, last] = frames(Transport::Rc, &[wr(SendOp::SendImm, MTU + 1)]);
        let mut rx = responder();
        let mut rq = Recvs::new(1, 2 * MTU);
        let outcome = accept(&mut rx, &first, &mut rq);
        assert_eq!(outcome, Outcome::default());
        let last = accept(&mut rx, &last, &mut rq);
        let reply = last
            .reply
            .map(|reply| (reply.psn.get(), reply.syndrome, reply.msn));
        assert_eq!(reply, Some((1, Syndrome::ACK, 1)));
        assert_eq!(last.completion.map(|end| end.byte_len), Some(MTU + 1));
        assert_eq!(rx.epsn().get(), 2);
    }

    #[test]
    fn psn_gap_is_reported_once() {
        let [lost, early, late] = frames(Transport::Rc, &[wr(SendOp::Send, 0); 3]);
        let mut rx = responder();
        let mut rq = Recvs::new(3, 0);
        let verdict = rx.on_request(&early.packet(), &mut rq);
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        assert_eq!(replied(verdict), Some((0, nak)));
        let verdict = rx.on_request(&late.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Early(None));
        accept(&mut rx, &lost, &mut rq);
        let verdict = rx.on_request(&late.packet(), &mut rq);
        assert_eq!(replied(verdict), Some((1, nak)));
    }

    #[test]
    fn kept_packets_follow_missing_one() {
        let mut rc = requester(Transport::Rc, 5);
        post(&mut rc, &[wr(SendOp::Send, 0); 5]);
        let mut rx = responder();
        let mut rq = Recvs::new(5, 0);
        let frames = [(); 5].map(|()| next(&mut rc));
        // PSNs 0 and 3 are lost.
        for psn in [1, 2, 4] {
            let early = rx.on_request(&frames[psn].packet(), &mut rq);
            assert_eq!(replied(early).is_some(), psn == 1);
            assert!(rx.may_keep(frames[psn].packet().psn()));
            rx.kept(frames[psn].packet().psn());
        }
        // The same packets are not to be kept twice.
        for psn in [1, 2, 3, 4] {
            assert!(!rx.may_keep(frames[psn].packet().psn()));
        }
        assert!(!rx.is_kept_due());
        assert_eq!(rx.report_gap(), None);
        acknowledge(&mut rc, 0, Syndrome::Nak(NakCode::PsnSequence));
        let first = next(&mut rc);
        assert_eq!(first.packet().psn().get(), 0);
        assert!(first.packet().ack_req());
        assert_eq!(accept(&mut rx, &first, &mut rq).reply, None);
        for (psn, next) in [(1, Some(2)), (2, Some(4))] {
            assert!(rx.is_kept_due());
            rx.took_kept(next.map(Psn::new));
            let outcome = accept(&mut rx, &frames[psn], &mut rq);
            // The acknowledgment that the first one requested is sent for the last one.
            let acked = outcome.reply.map(|reply| reply.psn.get());
            assert_eq!(acked, (psn == 2).then_some(2));
        }
        assert!(!rx.is_kept_due());
        let nak = rx.report_gap().map(|nak| (nak.psn.get(), nak.syndrome));
        assert_eq!(nak, Some((3, Syndrome::Nak(NakCode::PsnSequence))));
        assert_eq!(rx.report_gap(), None);
        assert_eq!(accept(&mut rx, &frames[3], &mut rq).reply, None);
        assert!(rx.is_kept_due());
        rx.took_kept(None);
        let last = accept(&mut rx, &frames[4], &mut rq);
        assert_eq!(last.reply.map(|reply| reply.psn.get()), Some(4));
        assert_eq!((rx.is_kept_due(), rx.report_gap()), (false, None));
    }

    #[test]
    fn same_psn_is_expected_after_rnr_nak() {
        let [first, second] = frames(Transport::Rc, &[wr(SendOp::Send, 5); 2]);
        let mut rx = responder();
        let mut rq = Recvs::new(0, MTU);
        let verdict = rx.on_request(&first.packet(), &mut rq);
        assert_eq!(replied(verdict), Some((0, Syndrome::Rnr { timer: 3 })));
        rq.left = 2;
        let verdict = rx.on_request(&second.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::PsnGap));
        assert!(accept(&mut rx, &first, &mut rq).completion.is_some());
        assert!(accept(&mut rx, &second, &mut rq).completion.is_some());
    }

    #[test]
    fn too_long_message_fails_both_ends() {
        let [frame] = frames(Transport::Rc, &[wr(SendOp::Send, 5)]);
        let mut rx = responder();
        let mut rq = Recvs::new(2, 4);
        let outcome = failure(rx.on_request(&frame.packet(), &mut rq));
        let nak = Syndrome::Nak(NakCode::InvalidRequest);
        assert_eq!(outcome.reply.map(|reply| reply.syndrome), Some(nak));
        assert_eq!(
            outcome.completion.map(|end| end.status),
            Some(Status::LocLen)
        );
        assert!(outcome.error && outcome.event.is_none());
        // The NAK does not depend on the completion.
        assert_eq!(rx.completion_lost(outcome.reply), outcome.reply);
        let verdict = rx.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::Failed));
    }

    #[test]
    fn protocol_violations_are_refused() {
        // Each is the first packet of a connection, and violates the protocol.
        let bad = [
            (Opcode::RcSendMiddle, MTU),
            (Opcode::RcWriteLast, 4),
            (Opcode::RcSendFirst, MTU - 4),
            (Opcode::RcInvalid, 4),
            (Opcode::RcWriteOnly, 4),
        ];
        for (opcode, len) in bad {
            let mut transmit = transmit(wr(SendOp::Write, 8));
            transmit.opcode = opcode;
            transmit.len = len;
            if !opcode.has_reth() {
                transmit.reth = None;
            }
            let frame = Frame::new(&transmit);
            let mut rq = Recvs::new(1, MTU);
            let verdict = responder().on_request(&frame.packet(), &mut rq);
            assert!(refused(verdict) && failure(verdict).completion.is_none());
            assert_eq!(rq.left, 1);
        }
    }

    #[test]
    fn invalidate_error_fails_receiver_only() {
        let [first, second] = frames(Transport::Rc, &[wr(SendOp::SendInv, 5); 2]);
        let mut rx = responder();
        let mut rq = Recvs::new(2, 8);
        let good = accept(&mut rx, &first, &mut rq);
        let key = good.completion.and_then(|end| end.invalidated);
        assert_eq!(key.map(|key| key.get()), Some(7));
        let verdict = rx.on_request(&second.packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Place(_)));
        let bad = rx.finish(Err(MemError::Invalidate));
        let status = bad.completion.map(|end| end.status);
        assert_eq!(status, Some(Status::RemInvReq));
        assert!(bad.error && bad.reply.is_none() && bad.event.is_none());
    }

    #[test]
    fn refused_write_imm_fails_the_wqe_that_it_took() {
        // The length of the message, and the packet that is refused.
        for (length, refused) in [(5, 0), (2 * MTU, 0), (2 * MTU, 1)] {
            let mut rc = requester(Transport::Rc, 1);
            assert!(rc.post(wr(SendOp::WriteImm, length)).is_ok());
            let mut rx = responder();
            let mut rq = Recvs::new(1, 0);
            for _ in 0..refused {
                accept(&mut rx, &next(&mut rc), &mut rq);
            }
            let verdict = rx.on_request(&next(&mut rc).packet(), &mut rq);
            assert!(matches!(verdict, Verdict::Place(_)));
            let outcome = rx.finish(Err(MemError::Protection));
            let nak = Syndrome::Nak(NakCode::RemoteAccess);
            assert_eq!(outcome.reply.map(|reply| reply.syndrome), Some(nak));
            // Only the last packet, which has the immediate data, takes a receive request.
            let took = length == 5 || refused == 1;
            let status = outcome.completion.map(|end| end.status);
            assert_eq!(status, took.then_some(Status::LocAccess));
            assert_eq!(rq.left, usize::from(!took));
            let event = (!took).then_some(AsyncEvent::AccessError);
            assert_eq!(outcome.event, event);
            assert!(outcome.error);
        }
    }

    #[test]
    fn duplicate_is_acknowledged_only_on_request() {
        let [quiet, requesting] = frames(Transport::Rc, &[wr(SendOp::Send, 5); 2]);
        let mut rx = responder();
        let mut rq = Recvs::new(3, MTU);
        assert!(!quiet.packet().ack_req());
        accept(&mut rx, &quiet, &mut rq);
        accept(&mut rx, &requesting, &mut rq);
        let verdict = rx.on_request(&quiet.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
        let verdict = rx.on_request(&requesting.packet(), &mut rq);
        assert_eq!(replied(verdict), Some((1, Syndrome::ACK)));
        assert_eq!(rq.left, 1);
    }

    #[test]
    fn duplicate_is_not_acknowledged_with_psn_of_read() {
        let mut rc = requester(Transport::Rc, 2);
        assert!(rc.post(wr(SendOp::Send, 5)).is_ok());
        let mut rx = responder();
        let mut rq = Recvs::new(1, MTU);
        let send = next(&mut rc);
        accept(&mut rx, &send, &mut rq);
        assert!(rc.post(wr(SendOp::Read, 3 * MTU)).is_ok());
        let verdict = rx.on_request(&next(&mut rc).packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Read(_)));
        assert_eq!(rx.start_read(Ok(())), None);
        while rx.poll_response().is_some() {
            rx.response_sent();
        }
        assert_eq!(rx.epsn().get(), 4);
        let verdict = rx.on_request(&send.packet(), &mut rq);
        assert_eq!(replied(verdict), Some((0, Syndrome::ACK)));
    }
}
