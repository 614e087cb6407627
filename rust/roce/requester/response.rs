// SPDX-License-Identifier: GPL-2.0

//! Handling of responses from the peer (RC).

use core::ops::DerefMut;

use super::{
    Placement,
    Requester,
    Slot, //
};
use crate::{
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    time::Instant,
    wire::{
        NakCode,
        Packet,
        Syndrome, //
    },
    wr::Status, //
};

/// The kind of a response, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// A positive acknowledgment.
    Ack,
    /// The next expected explicit response.
    ReadResponse,
    /// A NAK for a PSN sequence error: the missing packet is retransmitted.
    NakSequence,
    /// Any other NAK: the request fails.
    NakFatal,
    /// An RNR NAK: the peer has no receive request yet.
    Rnr,
    /// A response that shows that an explicit response before it is missing. That one is requested
    /// again.
    Gap,
    /// A response behind a missing one that is not requested again now.
    Early,
    /// A response that changes nothing: a duplicate, or the report of a loss that is known or may
    /// be a late packet.
    Duplicate,
    /// A congestion notification: the window is narrowed, once for all packets in flight.
    Congestion,
    /// An invalid response: the request fails.
    BadResponse,
    /// A response that is not expected by this queue pair or in this state, or has a reserved
    /// syndrome.
    Dropped,
}

impl ResponseKind {
    /// Returns whether a request waited for the response.
    #[inline]
    pub fn is_expected(self) -> bool {
        matches!(
            self,
            Self::Ack | Self::ReadResponse | Self::NakSequence | Self::Rnr
        )
    }
}

/// The handling of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The destination of its data, if it has any. The response then takes effect only with
    /// [`Requester::placed`].
    pub place: Option<Placement>,
    /// The kind of the response.
    pub outcome: ResponseKind,
    /// True if the response arrived before a missing explicit response.
    ///
    /// The driver may keep it, and then hands it in again when [`Requester::is_kept_due`].
    pub is_early: bool,
}

impl From<ResponseKind> for Response {
    #[inline]
    fn from(outcome: ResponseKind) -> Response {
        Response {
            place: None,
            outcome,
            is_early: false,
        }
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Handles a response: acknowledgment, READ response, atomic acknowledgment or CNP.
    #[inline]
    pub fn on_response(&mut self, now: Instant, pkt: &Packet<'_>) -> Response {
        // UC and UD queue pairs expect no responses.
        if pkt.opcode().transport() != self.transport {
            return ResponseKind::Dropped.into();
        }
        if pkt.opcode() == Opcode::Cnp && self.params.has_ecn {
            // If the CNP is for READ responses of this side, this has no effect on them: the peer
            // limits them by its requests.
            self.narrow_window();
            return ResponseKind::Congestion.into();
        }
        if !self.is_active() {
            return ResponseKind::Dropped.into();
        }
        self.explicit.forget_placement();
        match pkt.opcode().operation() {
            Operation::Acknowledge => self.on_acknowledge(now, pkt),
            Operation::ReadResponse | Operation::AtomicAck => self.on_explicit(now, pkt),
            Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::Atomic
            | Operation::AtomicWrite
            | Operation::Flush
            | Operation::Cnp
            | Operation::Invalid => ResponseKind::Dropped.into(),
        }
    }

    /// Handles a response that a congested network has marked, before [`Requester::on_response`].
    ///
    /// Returns whether the driver must notify the peer: of READ responses, but not of
    /// acknowledgments, whose number it cannot reduce. Stale and forged responses have no effect.
    #[cold]
    pub fn on_mark(&mut self, pkt: &Packet<'_>) -> bool {
        let counts = self.params.has_ecn
            && pkt.opcode().operation() == Operation::ReadResponse
            && self.window.is_unacknowledged(pkt.psn());
        if counts {
            self.narrow_window();
        }
        counts
    }

    /// Narrows the window because of congestion, unless nothing is in flight that may cause it.
    #[cold]
    fn narrow_window(&mut self) {
        if self.is_active() && !self.window.is_empty() {
            self.window.narrow_once();
        }
    }

    /// Handles an acknowledgment or a NAK.
    #[inline]
    fn on_acknowledge(&mut self, now: Instant, pkt: &Packet<'_>) -> Response {
        let Some(aeth) = pkt.aeth() else {
            return ResponseKind::Dropped.into();
        };
        let (psn, syndrome) = self.response_to_sent(pkt.psn(), aeth.syndrome);
        if !self.window.is_unacknowledged(psn) {
            // A duplicate of an old acknowledgment, or a stale one from before a reset.
            return ResponseKind::Duplicate.into();
        }
        // A NAK acknowledges the packets before its PSN.
        let end = match syndrome {
            Syndrome::Ack { .. } => psn.next(),
            Syndrome::Rnr { .. } | Syndrome::Nak(_) => psn,
            Syndrome::Reserved => return ResponseKind::Dropped.into(),
        };
        // The RNR NAK shows that the peer has received the packet.
        let has_more = matches!(syndrome, Syndrome::Rnr { .. });
        let complete = self.acknowledge(now, end, has_more);
        if !self.is_active() {
            // The acknowledgment was the last one before a request that failed locally.
            return ResponseKind::Ack.into();
        }
        let kind = match syndrome {
            Syndrome::Nak(code) if code != NakCode::PsnSequence => self.on_fatal_nak(psn, code),
            _ if !complete => return self.on_early(now, psn),
            Syndrome::Nak(_) => self.on_gap(now, psn, ResponseKind::NakSequence, true),
            Syndrome::Rnr { timer } if self.wait_rnr(now, timer) => ResponseKind::Rnr,
            Syndrome::Rnr { .. } => ResponseKind::Duplicate,
            Syndrome::Ack { .. } | Syndrome::Reserved => ResponseKind::Ack,
        };
        kind.into()
    }

    /// Returns the PSN and the syndrome of a response, as far as they concern packets that were
    /// sent.
    ///
    /// A response to a packet that was refused, of which a copy has left, only shows that all
    /// packets that were sent have arrived. The packet itself has yet to be sent.
    #[inline]
    fn response_to_sent(&self, psn: Psn, syndrome: Syndrome) -> (Psn, Syndrome) {
        if syndrome != Syndrome::Reserved && self.window.was_refused(psn) {
            (self.window.max().prev(), Syndrome::ACK)
        } else {
            (psn, syndrome)
        }
    }

    /// Advances `una` up to `end`, and completes the requests before it.
    ///
    /// Stops at a request that needs an explicit response or has failed locally. Returns whether
    /// `una` reached `end`. `has_more` is true if the peer has also received the packet at `end`.
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Instant, end: Psn, has_more: bool) -> bool {
        let before = self.window.una();
        let mut una = before;
        while una != end && self.queue.due_failure().is_none() {
            let Some(slot) = self.queue.get(self.queue.done()) else {
                break;
            };
            if slot.has_explicit_response() {
                break;
            }
            let slot_end = slot.last_psn.next();
            if una.forward(slot_end) > una.forward(end) {
                una = end;
            } else {
                una = slot_end;
                self.queue.succeed();
            }
        }
        if una != before {
            self.progressed(now, before, una, has_more || una != end);
            self.fail_if_due();
        }
        una == end
    }

    /// Handles a response with PSN `psn` that shows a loss: of the packet at `una`, or of the
    /// response to it.
    ///
    /// The requester retransmits once per loss. If `can_wait`, it may first wait for the
    /// missing packet or response.
    #[cold]
    pub(super) fn on_gap(
        &mut self,
        now: Instant,
        psn: Psn,
        kind: ResponseKind,
        can_wait: bool,
    ) -> ResponseKind {
        let is_packet = kind == ResponseKind::NakSequence;
        let is_known = self.is_rewound() || self.retry.is_known_loss(psn);
        if is_known || can_wait && self.start_wait(now, is_packet) {
            self.peer_is_busy(now);
            return ResponseKind::Duplicate;
        }
        self.retry_gap(now, is_packet);
        kind
    }

    /// Fails the request with PSN `psn`, which the peer refused.
    ///
    /// The peer executes no more requests and repeats no more responses. So an earlier request
    /// whose response is missing is flushed, and so are all requests between the two: no request
    /// can succeed after one that failed.
    #[cold]
    fn on_fatal_nak(&mut self, psn: Psn, code: NakCode) -> ResponseKind {
        let mut status = match code {
            NakCode::RemoteAccess => Status::RemAccess,
            NakCode::RemoteOperation => Status::RemOp,
            NakCode::PsnSequence | NakCode::InvalidRequest | NakCode::InvalidRd => {
                Status::RemInvReq
            }
        };
        if let Some(refused) = self.slot_of(psn) {
            while self.queue.done() < refused {
                if let Some(failure) = self.queue.due_failure() {
                    // The request failed locally, and was not sent again yet.
                    status = failure;
                    break;
                }
                self.queue.finish(Status::WrFlush);
            }
        }
        self.fail(status);
        ResponseKind::NakFatal
    }

    /// Returns the index of the request that `psn` belongs to.
    ///
    /// `psn` must be unacknowledged.
    #[inline]
    pub(super) fn slot_of(&self, psn: Psn) -> Option<usize> {
        let una = self.window.una();
        let distance = una.forward(psn);
        let mut begun = self.queue.done()..self.queue.begun();
        begun.find(|&index| {
            let covers = |slot: &Slot| una.forward(slot.last_psn) >= distance;
            self.queue
                .get(index)
                .is_some_and(|slot| !slot.wr.op.is_local() && covers(slot))
        })
    }

    /// Fails the oldest unfinished request because of an invalid response.
    #[cold]
    pub(super) fn bad_response(&mut self) -> Response {
        self.fail(Status::BadResp);
        ResponseKind::BadResponse.into()
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_response))]
mod tests {
    use super::*;
    use crate::congestion::Cnp;
    use crate::testutil::*;

    #[test]
    fn ack_completes_all_earlier_messages() {
        let mut rc = requester(Transport::Rc, 3);
        post(&mut rc, &[wr(SendOp::Send, 2 * MTU), wr(SendOp::Write, 1)]);
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 4);
        assert_eq!(acknowledge(&mut rc, 2, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), None);
        assert!(rc.next_timeout().is_some());
        assert_eq!(acknowledge(&mut rc, 3, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(rc.next_timeout(), None);
    }

    #[test]
    fn stale_and_invalid_acks_are_ignored() {
        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Send, MTU)]);
        assert_eq!(send_all(&mut rc), 1);
        for psn in [0x00ff_ffff, 1, 0x0080_0000] {
            assert_eq!(
                acknowledge(&mut rc, psn, Syndrome::ACK),
                ResponseKind::Duplicate
            );
        }
        let kind = acknowledge(&mut rc, 0, Syndrome::Reserved);
        assert_eq!(kind, ResponseKind::Dropped);
        assert_eq!(status(&mut rc), None);
    }

    #[test]
    fn sequence_nak_resends_missing_packet_once() {
        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Send, 3 * MTU)]);
        assert_eq!(send_all(&mut rc), 3);
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        assert_eq!(acknowledge(&mut rc, 1, nak), ResponseKind::NakSequence);
        let again = rc.poll_transmit();
        assert_eq!(again.map(|again| again.opcode), Some(Opcode::RcSendMiddle));
        assert_eq!(again.map(|again| again.offset), Some(MTU));
        assert_eq!(send_all(&mut rc), 1);
        assert_eq!(acknowledge(&mut rc, 1, nak), ResponseKind::Duplicate);
        assert_eq!(send_all(&mut rc), 0);
    }

    #[test]
    fn fatal_nak_fails_request_and_flushes_rest() {
        let mut rc = requester(Transport::Rc, 3);
        post_ops(&mut rc, &[SendOp::Send, SendOp::Write, SendOp::Send], 0);
        assert_eq!(send_all(&mut rc), 3);
        let nak = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(acknowledge(&mut rc, 1, nak), ResponseKind::NakFatal);
        assert!(rc.take_error());
        assert!(!rc.take_error());
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::RemAccess));
        assert_eq!(status(&mut rc), Some(Status::WrFlush));
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert_eq!(status(&mut rc), Some(Status::WrFlush));
        assert_eq!(send_all(&mut rc), 0);
    }

    /// Sends a SEND, a READ of two responses, and three requests of one packet.
    fn requests_around_read(rc: &mut Half) {
        post(rc, &[wr(SendOp::Send, 0), wr(SendOp::Read, 2 * MTU)]);
        post_ops(rc, &[SendOp::Write, SendOp::Send, SendOp::Send], 0);
        assert_eq!(send_all(rc), 5);
    }

    fn ends_with(rc: &mut Half, statuses: [Status; 5]) {
        assert!(rc.take_error());
        for expected in statuses {
            assert_eq!(status(rc), Some(expected));
        }
        let rest = (status(rc), send_all(rc), rc.next_timeout());
        assert_eq!(rest, (None, 0, None));
    }

    #[test]
    fn fatal_nak_behind_incomplete_read_fails_the_refused_request() {
        let [done, refused, flushed] = [Status::Success, Status::RemOp, Status::WrFlush];
        let cases = [
            (1, [done, refused, flushed, flushed, flushed]),
            // A later part of the READ.
            (2, [done, refused, flushed, flushed, flushed]),
            (3, [done, flushed, refused, flushed, flushed]),
            (4, [done, flushed, flushed, refused, flushed]),
        ];
        for (psn, statuses) in cases {
            let mut rc = requester(Transport::Rc, 5);
            requests_around_read(&mut rc);
            let nak = Syndrome::Nak(NakCode::RemoteOperation);
            assert_eq!(acknowledge(&mut rc, psn, nak), ResponseKind::NakFatal);
            ends_with(&mut rc, statuses);
        }
    }

    #[test]
    fn fatal_nak_behind_local_error_does_not_hide_it() {
        let mut rc = requester(Transport::Rc, 5);
        requests_around_read(&mut rc);
        rc.local_error(3, Status::LocProt);
        let nak = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(acknowledge(&mut rc, 5, nak), ResponseKind::NakFatal);
        let [done, failed, flushed] = [Status::Success, Status::LocProt, Status::WrFlush];
        ends_with(&mut rc, [done, flushed, flushed, failed, flushed]);
    }

    #[test]
    fn local_error_waits_for_earlier_requests() {
        let mut rc = requester(Transport::Rc, 3);
        post(&mut rc, &[0, MTU, 0].map(|length| wr(SendOp::Send, length)));
        assert_eq!(rc.poll_transmit().map(|sent| sent.ack_req), Some(false));
        send(&mut rc);
        rc.local_error(1, Status::LocProt);
        assert_eq!(status(&mut rc), None);
        assert!(!rc.take_error());
        // The first message is the last one now, and must be acknowledged.
        assert_eq!(rc.poll_transmit().map(|sent| sent.ack_req), Some(true));
        assert_eq!(send_all(&mut rc), 1);
        assert_eq!(acknowledge(&mut rc, 0, Syndrome::ACK), ResponseKind::Ack);
        assert!(rc.take_error());
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::LocProt));
        assert_eq!(status(&mut rc), Some(Status::WrFlush));
    }

    #[test]
    fn locally_failed_request_is_not_sent() {
        let mut rc = requester(Transport::Rc, 3);
        let empty = wr(SendOp::Send, 0);
        post(&mut rc, &[empty; 3]);
        for _ in 0..2 {
            send(&mut rc);
        }
        rc.local_error(2, Status::LocProt);
        assert_eq!(acknowledge(&mut rc, 0, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), None);
        assert_eq!(rc.poll_transmit().map(|sent| sent.slot), Some(1));
        assert_eq!(send_all(&mut rc), 1);
        assert_eq!(acknowledge(&mut rc, 1, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(status(&mut rc), Some(Status::LocProt));
    }

    /// Makes a requester with `retry_cnt` retries.
    fn with_retries(slots: usize, retry_cnt: u8) -> Half {
        let mut rc = requester(Transport::Rc, slots);
        adjust(&mut rc, |params| params.retry_cnt = retry_cnt);
        rc
    }

    #[test]
    fn nak_after_timeout_reports_another_loss() {
        let mut rc = with_retries(3, 7);
        let nak = Syndrome::Nak(NakCode::PsnSequence);
        post(&mut rc, &[wr(SendOp::Send, 0); 3]);
        assert_eq!(send_all(&mut rc), 3);
        assert_eq!(acknowledge(&mut rc, 0, nak), ResponseKind::NakSequence);
        assert_eq!(send_all(&mut rc), 1);
        assert_eq!(acknowledge(&mut rc, 0, nak), ResponseKind::Duplicate);
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        assert_eq!(send_all(&mut rc), 3);
        assert_eq!(acknowledge(&mut rc, 0, nak), ResponseKind::NakSequence);
        assert_eq!(rc.snapshot().retries_left, 4);
    }

    #[test]
    fn each_loss_consumes_one_retry() {
        let mut rc = with_retries(8, 3);
        post(&mut rc, &[wr(SendOp::Read, 9)]);
        // Each new SEND is acknowledged, which proves that the response to the READ was lost again.
        for (psn, left) in (1..).zip([2, 1, 0, 0]) {
            post(&mut rc, &[wr(SendOp::Send, 0)]);
            assert!(send_all(&mut rc) > 0);
            assert!(!rc.take_error());
            let outcome = acknowledge(&mut rc, psn, Syndrome::ACK);
            assert_eq!(outcome, ResponseKind::Gap);
            assert_eq!(rc.snapshot().retries_left, left);
        }
        assert!(rc.take_error());
    }

    fn cnp() -> Frame {
        let cnp = Cnp {
            dest_qpn: Qpn::new(1),
        };
        Frame::new(&cnp)
    }

    #[test]
    fn notification_of_congestion_narrows_window() {
        let mut rc = requester(Transport::Rc, 1);
        let cnp = cnp();
        let before = rc.window.size();
        // Nothing is in flight: the CNP is for READ responses, or forged.
        assert_eq!(respond(&mut rc, &cnp).outcome, ResponseKind::Congestion);
        assert_eq!(rc.window.size(), before);
        post(&mut rc, &[wr(SendOp::Write, MTU)]);
        assert_eq!(send_all(&mut rc), 1);
        assert_eq!(respond(&mut rc, &cnp).outcome, ResponseKind::Congestion);
        assert_eq!(rc.window.size(), before / 2);
        rc.flush();
        assert_eq!(respond(&mut rc, &cnp).outcome, ResponseKind::Congestion);
        assert_eq!(rc.window.size(), before / 2);
    }

    #[test]
    fn notification_without_ecn_is_dropped() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.has_ecn = false);
        post(&mut rc, &[wr(SendOp::Write, MTU)]);
        assert_eq!(send_all(&mut rc), 1);
        let cnp = cnp();
        let before = rc.window.size();
        assert_eq!(respond(&mut rc, &cnp).outcome, ResponseKind::Dropped);
        assert_eq!(rc.window.size(), before);
    }

    #[test]
    fn mark_counts_on_expected_read_responses_only() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, 2 * MTU), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        let before = rc.window.size();
        let stray = read_response(Opcode::RcReadResponseMiddle, 9, MTU);
        let ack = Frame::ack(2, Syndrome::ACK);
        assert!(!rc.on_mark(&stray.packet()) && !rc.on_mark(&ack.packet()));
        assert_eq!(rc.window.size(), before);
        let first = read_response(Opcode::RcReadResponseFirst, 0, MTU);
        assert!(rc.on_mark(&first.packet()));
        assert_eq!(rc.window.size(), before / 2);
    }

    #[test]
    fn only_awaited_responses_are_expected() {
        assert!(ResponseKind::Ack.is_expected() && ResponseKind::Rnr.is_expected());
        assert!(!ResponseKind::Duplicate.is_expected());
        assert!(!ResponseKind::Dropped.is_expected());
    }
}
