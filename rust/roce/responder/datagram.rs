// SPDX-License-Identifier: GPL-2.0

//! UD requests: messages of one packet, from any sender that knows the Q_Key.

use super::{
    message::{
        Message,
        Plan, //
    },
    recv_status,
    resources::Records,
    DropReason,
    Outcome,
    Place,
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

impl<S: Records> Responder<S> {
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
        let received = len.saturating_add(GRH_LEN);
        let plan = Plan {
            place: Place::Recv {
                offset: GRH_LEN,
                len,
            },
            after: Message::None,
            received,
            needs: Some(received),
        };
        match self.hold(plan.needs, rq) {
            Ok(()) => self.place(pkt, &plan, false),
            Err(Some(error)) => Verdict::Fail(self.datagram_refused(error)),
            Err(None) => Verdict::Drop(DropReason::NoRecvWqe),
        }
    }

    /// Fails the held receive request because it cannot take the datagram.
    ///
    /// A datagram that is too long does not fail the queue pair, because any host can send one.
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

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_datagram))]
mod tests {
    use super::*;
    use crate::testutil::*;

    fn datagram(length: u32) -> Frame {
        let [frame] = frames(Transport::Ud, &[wr(SendOp::SendImm, length)]);
        frame
    }

    #[test]
    fn next_datagram_reuses_wqe_of_abandoned_one() {
        let mut ud = responder_of(Transport::Ud);
        let mut rq = Recvs::new(1, GRH_LEN + 5);
        let place = Verdict::Place(Place::Recv {
            offset: GRH_LEN,
            len: 5,
        });
        for _ in 0..2 {
            let verdict = ud.on_request(&datagram(5).packet(), &mut rq);
            assert_eq!(verdict, place);
            ud.abandon();
            assert!(ud.held.is_some() && rq.left == 0);
        }
        ud.on_request(&datagram(5).packet(), &mut rq);
        assert!(ud.finish(Ok(())).completion.is_some());
        assert!(ud.held.is_none());
    }

    #[test]
    fn datagram_is_placed_after_grh() {
        let mut ud = responder_of(Transport::Ud);
        let mut rq = Recvs::new(1, GRH_LEN + 5);
        let frame = datagram(5);
        let place = Place::Recv { offset: 40, len: 5 };
        let verdict = ud.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Place(place));
        let outcome = ud.finish(Ok(()));
        assert!(!outcome.error && outcome.reply.is_none());
        let completion = outcome.completion;
        assert_eq!(completion.map(|end| end.byte_len), Some(45));
        assert_eq!(completion.and_then(|end| end.imm), Some([1, 2, 3, 4]));
        assert_eq!(completion.map(|end| end.src_qpn), Some(Qpn::new(0x55)));

        let verdict = ud.on_request(&frame.packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::NoRecvWqe));
    }

    #[test]
    fn bad_qkey_does_not_consume_wqe() {
        let mut ud = responder_of(Transport::Ud);
        ud.set_params(&RecvParams {
            qkey: Qkey::new(1),
            ..recv_params()
        });
        let mut rq = Recvs::new(1, MTU);
        let verdict = ud.on_request(&datagram(5).packet(), &mut rq);
        assert_eq!(verdict, Verdict::Drop(DropReason::BadQkey));
        assert_eq!(rq.left, 1);
    }

    #[test]
    fn too_long_datagram_fails_only_its_wqe() {
        let mut ud = responder_of(Transport::Ud);
        let mut rq = Recvs::new(2, GRH_LEN + 4);
        for length in [5, 4] {
            let frame = datagram(length);
            let verdict = ud.on_request(&frame.packet(), &mut rq);
            if length == 4 {
                assert!(matches!(verdict, Verdict::Place(_)));
                continue;
            }
            let outcome = failure(verdict);
            let status = outcome.completion.map(|end| end.status);
            assert_eq!(status, Some(Status::LocLen));
            assert!(!outcome.error);
        }
    }

    #[test]
    fn datagram_may_be_as_long_as_the_current_mtu() {
        let mut ud = responder_of(Transport::Ud);
        let mut rq = Recvs::new(1, MTU);
        ud.set_mtu(16);
        let long = ud.on_request(&datagram(17).packet(), &mut rq);
        assert_eq!(long, Verdict::Drop(DropReason::BadLength));
        let verdict = ud.on_request(&datagram(16).packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Place(_)));
    }
}
