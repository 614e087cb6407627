// SPDX-License-Identifier: GPL-2.0

//! UC requests: only whole messages are delivered.
//!
//! The packets of a message are accepted in order. A packet that starts a message may have any PSN,
//! because earlier messages may be lost. So if the network duplicates such a packet, a message of
//! one packet is received twice, and a longer one begins again.

use super::{
    message::Message,
    recv_status,
    resources::Records,
    DropReason,
    RecvQueue,
    Responder,
    Verdict, //
};
use crate::{
    psn::Psn,
    wire::Packet, //
};

impl<S: Records> Responder<S> {
    #[inline]
    pub(super) fn on_unreliable(&mut self, pkt: &Packet<'_>, rq: &mut impl RecvQueue) -> Verdict {
        let psn = pkt.psn();
        let gap = psn != self.sequence.epsn();
        if gap || pkt.opcode().starts_message() {
            // Missing packets are not retransmitted. A packet that starts a message does not depend
            // on them.
            self.message = Message::None;
        }
        if self.message == Message::None && !pkt.opcode().starts_message() {
            return self.drop_cut(psn, DropReason::PsnGap);
        }
        let plan = match self.plan(pkt) {
            Ok(plan) => plan,
            Err(reason) => return self.drop_cut(psn, reason),
        };
        match self.hold(plan.needs, rq) {
            Ok(()) => self.place(pkt, &plan, false),
            Err(Some(error)) => Verdict::Fail(self.fail_held(recv_status(error))),
            Err(None) => self.drop_cut(psn, DropReason::NoRecvWqe),
        }
    }

    /// Aborts the message of the packet with PSN `psn`.
    ///
    /// The next message uses a held receive request.
    pub(super) fn cut(&mut self, psn: Psn) {
        self.message = Message::None;
        self.sequence.skip_to(psn.next());
    }

    fn drop_cut(&mut self, psn: Psn, reason: DropReason) -> Verdict {
        self.cut(psn);
        Verdict::Drop(reason)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_unreliable))]
mod tests {
    use super::*;
    use crate::responder::Place;
    use crate::testutil::*;

    #[test]
    fn next_message_reuses_wqe_of_incomplete_one() {
        let messages = [3 * MTU, 7].map(|length| wr(SendOp::Send, length));
        let [first, _, last, only] = frames(Transport::Uc, &messages);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(1, 3 * MTU);
        let place = rx.on_request(&first.packet(), &mut rq);
        assert!(matches!(place, Verdict::Place(_)));
        assert!(rx.finish(Ok(())).completion.is_none());
        let last = rx.on_request(&last.packet(), &mut rq);
        assert_eq!(last, Verdict::Drop(DropReason::PsnGap));
        assert!(rx.held.is_some());

        let place = rx.on_request(&only.packet(), &mut rq);
        assert_eq!(place, Verdict::Place(Place::Recv { offset: 0, len: 7 }));
        let outcome = rx.finish(Ok(()));
        assert!(rx.held.is_none());
        assert_eq!(outcome.completion.map(|end| end.byte_len), Some(7));
    }

    #[test]
    fn write_packets_are_placed_at_their_offsets() {
        let frames = frames::<3>(Transport::Uc, &[wr(SendOp::WriteImm, 2 * MTU + 1)]);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(1, 0);
        let mtu = u64::from(MTU);
        for (frame, (va, len, rest, ends)) in frames.iter().zip([
            (0, MTU, 2 * MTU + 1, false),
            (mtu, MTU, MTU + 1, false),
            (2 * mtu, 1, 1, true),
        ]) {
            let verdict = rx.on_request(&frame.packet(), &mut rq);
            let place = Place::Remote {
                rkey: crate::ids::Rkey::new(7),
                va: 0x1000 + va,
                len,
                rest,
            };
            assert_eq!(verdict, Verdict::Place(place));
            let outcome = rx.finish(Ok(()));
            let with_rdma = outcome.completion.map(|end| (end.with_rdma, end.byte_len));
            assert_eq!(with_rdma, ends.then_some((true, 2 * MTU + 1)));
        }
    }

    #[test]
    fn refused_uc_write_is_dropped_silently() {
        let messages = [2 * MTU, 1].map(|length| wr(SendOp::Write, length));
        let [first, last, only] = frames(Transport::Uc, &messages);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(0, 0);
        let first = rx.on_request(&first.packet(), &mut rq);
        assert!(matches!(first, Verdict::Place(_)));
        let outcome = rx.finish(Err(MemError::Protection));
        assert!(!outcome.error && outcome.reply.is_none());
        assert_eq!(rx.epsn().get(), 1);
        let last = rx.on_request(&last.packet(), &mut rq);
        assert_eq!(last, Verdict::Drop(DropReason::PsnGap));

        rx.set_params(&RecvParams {
            access: QpAccess::default(),
            ..recv_params()
        });
        let only = rx.on_request(&only.packet(), &mut rq);
        assert_eq!(only, Verdict::Drop(DropReason::NotAllowed));
    }

    #[test]
    fn message_without_wqe_is_dropped_as_a_whole() {
        let [first, last] = frames(Transport::Uc, &[wr(SendOp::Send, 2 * MTU)]);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(0, MTU);
        let first = rx.on_request(&first.packet(), &mut rq);
        assert_eq!(first, Verdict::Drop(DropReason::NoRecvWqe));
        rq.left = 1;
        let last = rx.on_request(&last.packet(), &mut rq);
        assert_eq!(last, Verdict::Drop(DropReason::PsnGap));
        assert_eq!(rq.left, 1);
    }

    #[test]
    fn duplicate_first_packet_restarts_the_message() {
        let messages = [7, 2 * MTU].map(|length| wr(SendOp::Send, length));
        let [only, first, last] = frames(Transport::Uc, &messages);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(3, 2 * MTU);
        for _ in 0..2 {
            let place = rx.on_request(&only.packet(), &mut rq);
            assert_eq!(place, Verdict::Place(Place::Recv { offset: 0, len: 7 }));
            assert!(rx.finish(Ok(())).completion.is_some());
        }
        for _ in 0..2 {
            let place = rx.on_request(&first.packet(), &mut rq);
            assert_eq!(
                place,
                Verdict::Place(Place::Recv {
                    offset: 0,
                    len: MTU
                })
            );
            assert!(rx.finish(Ok(())).completion.is_none());
        }
        assert!(matches!(
            rx.on_request(&last.packet(), &mut rq),
            Verdict::Place(_)
        ));
        let outcome = rx.finish(Ok(()));
        assert_eq!(outcome.completion.map(|end| end.byte_len), Some(2 * MTU));
        // A duplicate of the last packet is not accepted.
        let again = rx.on_request(&last.packet(), &mut rq);
        assert_eq!(again, Verdict::Drop(DropReason::PsnGap));
        assert_eq!(rq.left, 0);
    }

    #[test]
    fn rest_of_invalid_message_is_dropped() {
        let mut uc = requester(Transport::Uc, 1);
        assert!(uc.post(wr(SendOp::Send, 3 * MTU)).is_ok());
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(1, 3 * MTU);
        let first = rx.on_request(&next(&mut uc).packet(), &mut rq);
        assert!(matches!(first, Verdict::Place(_)));
        rx.finish(Ok(()));
        let mut short = uc.poll_transmit().unwrap();
        short.len = 4;
        let short = rx.on_request(&Frame::new(&short).packet(), &mut rq);
        assert_eq!(short, Verdict::Drop(DropReason::BadLength));
        assert_eq!(rx.epsn().get(), 2);
        next(&mut uc);
        let last = rx.on_request(&next(&mut uc).packet(), &mut rq);
        assert_eq!(last, Verdict::Drop(DropReason::PsnGap));
    }

    #[test]
    fn message_that_cannot_be_placed_fails_its_wqe() {
        let [frame] = frames(Transport::Uc, &[wr(SendOp::Send, 1)]);
        let mut rx = responder_of(Transport::Uc);
        let mut rq = Recvs::new(1, MTU);
        let place = rx.on_request(&frame.packet(), &mut rq);
        assert!(matches!(place, Verdict::Place(_)));
        let outcome = rx.finish(Err(MemError::Protection));
        let status = outcome.completion.map(|end| end.status);
        assert_eq!(status, Some(Status::LocProt));
        assert!(outcome.error);
    }
}
