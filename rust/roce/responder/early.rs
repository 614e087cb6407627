// SPDX-License-Identifier: GPL-2.0

//! Packets that arrive before an earlier one (RC).
//!
//! The driver keeps them until the missing packet arrives, so that only that has to be sent again.
//! If there is no memory for them, it drops them, which IBTA permits (9.7.4.1.1).

use super::{
    resources::Records,
    Reply,
    Responder, //
};
use crate::{
    kept::Kept,
    psn::Psn, //
};

/// The kept packets, and the acknowledgment that waits for them.
#[derive(Clone, Copy, Default)]
pub(super) struct Early {
    kept: Kept,
    /// True if an acknowledgment was deferred until the kept packets are handled.
    owes_ack: bool,
}

impl Early {
    /// Returns whether to acknowledge the packet that was just executed. `ack_req` is true if the
    /// packet requests this; `epsn` is the PSN expected next.
    ///
    /// If a kept packet follows, the acknowledgment waits for it: if it covered only the
    /// retransmitted packet, the peer would conclude that nothing was kept.
    #[inline]
    pub(super) fn acknowledges(&mut self, ack_req: bool, epsn: Psn) -> bool {
        if !ack_req && !self.owes_ack {
            return false;
        }
        self.owes_ack = self.kept.is_due(epsn);
        !self.owes_ack
    }

    /// Accounts for a response that acknowledges all packets before it.
    #[inline]
    pub(super) fn acknowledged(&mut self) {
        self.owes_ack = false;
    }
}

impl<S: Records> Responder<S> {
    /// Returns whether to keep a packet of [`Verdict::Early`](super::Verdict::Early).
    #[inline]
    pub fn may_keep(&self, psn: Psn) -> bool {
        self.early.kept.may_keep(self.sequence.epsn(), psn)
    }

    /// Accounts for a packet that was kept, which [`Responder::may_keep`] allowed.
    pub fn kept(&mut self, psn: Psn) {
        self.early.kept.kept(psn);
    }

    /// Accounts for a packet that was dropped because [`Responder::may_keep`] rejected it, or
    /// because there was no room.
    pub fn not_kept(&mut self, psn: Psn) {
        self.early.kept.not_kept(psn);
    }

    /// Returns whether the driver must handle the first kept packet now, as if it had just arrived.
    #[inline]
    pub fn is_kept_due(&self) -> bool {
        self.early.kept.is_due(self.sequence.epsn()) && !self.failed
    }

    /// Accounts for the kept packet that is going to be handled; the one after it has the PSN
    /// `next`, if there is one.
    pub fn took_kept(&mut self, next: Option<Psn>) {
        self.early.kept.took(next);
    }

    /// Accounts for the drop of all kept packets, while the first of them is not due.
    ///
    /// The peer learns that they are missing when the expected packet arrives: either the
    /// acknowledgment of that packet covers none of them, or the packet after it is reported as
    /// early.
    pub fn forget_kept(&mut self) {
        self.early.kept = Kept::default();
    }

    /// Returns the deferred acknowledgment if it was not sent and no kept packet is due any more:
    /// the last kept packet may have been dropped.
    pub fn owed_ack(&mut self) -> Option<Reply> {
        let is_due = self.early.owes_ack && !self.is_kept_due() && !self.failed && !self.is_busy();
        is_due.then(|| {
            self.early.owes_ack = false;
            self.ack(self.sequence.acked())
        })
    }

    /// Returns the NAK for the next missing packet, after kept ones were executed up to it.
    ///
    /// The peer cannot know of it: the NAK reported only the first missing packet, so the peer
    /// assumes that all others were kept.
    pub fn report_gap(&mut self) -> Option<Reply> {
        if self.failed || self.is_busy() || self.is_kept_due() || self.sequence.nak().is_some() {
            return None;
        }
        let is_missing = self.early.kept.take_missing();
        is_missing.then(|| self.report_missing())
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_early))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Makes a responder, and messages of which only the last requests an acknowledgment.
    fn messages<const N: usize>() -> (Responder, Recvs, [Frame; N]) {
        let frames = frames(Transport::Rc, &[wr(SendOp::Send, 0); N]);
        (responder(), Recvs::new(9, 0), frames)
    }

    fn execute(rx: &mut Responder, rq: &mut Recvs, frame: &Frame) -> Outcome {
        let verdict = rx.on_request(&frame.packet(), rq);
        assert!(matches!(verdict, Verdict::Place(_)));
        rx.finish(Ok(()))
    }

    /// Handles a packet that comes early, and keeps it.
    fn keep(rx: &mut Responder, rq: &mut Recvs, frame: &Frame) {
        let verdict = rx.on_request(&frame.packet(), rq);
        assert!(matches!(verdict, Verdict::Early(_)));
        assert!(rx.may_keep(frame.packet().psn()));
        rx.kept(frame.packet().psn());
    }

    #[test]
    fn kept_packet_is_not_reported_as_missing() {
        let (mut rx, mut rq, frames) = messages::<3>();
        keep(&mut rx, &mut rq, &frames[1]);
        execute(&mut rx, &mut rq, &frames[0]);
        assert!(rx.is_kept_due());
        let verdict = rx.on_request(&frames[2].packet(), &mut rq);
        assert_eq!(verdict, Verdict::Early(None));
        assert_eq!(rx.report_gap(), None);
    }

    #[test]
    fn packets_dropped_behind_kept_ones_are_reported() {
        let (mut rx, mut rq, frames) = messages::<3>();
        keep(&mut rx, &mut rq, &frames[1]);
        let verdict = rx.on_request(&frames[2].packet(), &mut rq);
        assert_eq!(verdict, Verdict::Early(None));
        rx.not_kept(frames[2].packet().psn());
        execute(&mut rx, &mut rq, &frames[0]);
        rx.took_kept(None);
        let verdict = rx.on_request(&frames[1].packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Place(_)));
        assert_eq!(rx.report_gap(), None);
        rx.finish(Ok(()));
        let nak = rx.report_gap().unwrap();
        assert_eq!(nak.syndrome, Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(nak.psn, frames[2].packet().psn());
        assert_eq!(rx.report_gap(), None);
    }

    #[test]
    fn packet_dropped_before_any_is_kept_is_not_reported_again() {
        let (mut rx, mut rq, frames) = messages::<2>();
        let verdict = rx.on_request(&frames[1].packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Early(Some(_))));
        rx.not_kept(frames[1].packet().psn());
        execute(&mut rx, &mut rq, &frames[0]);
        assert_eq!(rx.report_gap(), None);
    }

    #[test]
    fn forgotten_packets_are_acknowledged_only_when_they_come_again() {
        let (mut rx, mut rq, frames) = messages::<2>();
        keep(&mut rx, &mut rq, &frames[1]);
        rx.forget_kept();
        let first = frames[0].with_ack_request();
        let ack = execute(&mut rx, &mut rq, &first).reply.unwrap();
        assert_eq!(ack.psn, frames[0].packet().psn());
        assert!(!rx.is_kept_due());
        assert_eq!(rx.report_gap(), None);
        let ack = execute(&mut rx, &mut rq, &frames[1]).reply.unwrap();
        assert_eq!(ack.psn, frames[1].packet().psn());
    }

    #[test]
    fn acknowledgment_is_sent_if_the_last_kept_packet_is_dropped() {
        let (mut rx, mut rq, frames) = messages::<2>();
        keep(&mut rx, &mut rq, &frames[1]);
        // The one that was sent again, alone.
        let first = frames[0].with_ack_request();
        assert_eq!(execute(&mut rx, &mut rq, &first).reply, None);
        assert_eq!(rx.owed_ack(), None);
        rx.took_kept(None);
        let verdict = rx.on_request(&frames[1].packet(), &mut rq);
        assert!(matches!(verdict, Verdict::Place(_)));
        rx.abandon();
        let ack = rx.owed_ack().unwrap();
        assert_eq!(ack.psn, frames[0].packet().psn());
        assert_eq!(rx.owed_ack(), None);
    }

    /// The response to a READ or an atomic acknowledges all packets before it.
    #[test]
    fn no_acknowledgment_is_owed_after_explicit_response() {
        for op in [SendOp::Read, SendOp::FetchAdd] {
            let frames = frames::<2>(Transport::Rc, &[wr(SendOp::Send, 0), wr(op, 8)]);
            let mut rx = responder();
            let mut rq = Recvs::new(1, 0);
            keep(&mut rx, &mut rq, &frames[1]);
            let first = frames[0].with_ack_request();
            assert_eq!(execute(&mut rx, &mut rq, &first).reply, None);
            rx.took_kept(None);
            let verdict = rx.on_request(&frames[1].packet(), &mut rq);
            if op == SendOp::Read {
                assert!(matches!(verdict, Verdict::Read(_)));
                respond_all(&mut rx);
            } else {
                assert!(rx.executed(Ok(0)).reply.is_some());
            }
            assert_eq!(rx.owed_ack(), None);
        }
    }

    /// The first of two kept packets completes a message; its completion is lost.
    #[test]
    fn message_is_not_acknowledged_if_completion_is_lost() {
        let (mut rx, mut rq, frames) = messages::<4>();
        keep(&mut rx, &mut rq, &frames[1]);
        keep(&mut rx, &mut rq, &frames[3]);
        execute(&mut rx, &mut rq, &frames[0]);
        rx.took_kept(Some(frames[3].packet().psn()));
        let outcome = execute(&mut rx, &mut rq, &frames[1]);
        assert_eq!(rx.completion_lost(outcome.reply), None);
        assert!(!rx.is_kept_due());
        assert_eq!(rx.report_gap(), None);
        assert_eq!(rx.owed_ack(), None);
        assert_eq!(rx.last_ack(), None);
    }
}
