// SPDX-License-Identifier: GPL-2.0

//! Requests that the peer refuses with a NAK that ends the connection (RC).
//!
//! The peer executes no more requests and repeats no more responses. But explicit responses that it
//! sent before the NAK may only be late. So if one is missing, the NAK waits a moment for it, and
//! the requests before the refused one can still succeed. If it does not arrive, its request is
//! flushed, and so are all requests between the two: no request can succeed after one that failed.
//! Nothing is sent or executed during the wait.

use core::ops::DerefMut;

use super::{
    rtt::MIN_RTO_NS,
    Requester,
    ResponseKind,
    Slot, //
};
use crate::{
    psn::Psn,
    time::Instant,
    wire::NakCode,
    wr::Status, //
};

/// A NAK that waits for late responses to requests before the refused one.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    /// The PSN of the refused packet.
    psn: Psn,
    /// The status of the refused request.
    status: Status,
    /// The end of the wait.
    pub(super) until: Instant,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Handles a NAK that ends the connection: fails the request with PSN `psn`, now or after a
    /// wait for late responses.
    ///
    /// All requests before it that the NAK can acknowledge are acknowledged.
    #[cold]
    pub(super) fn on_fatal_nak(&mut self, now: Instant, psn: Psn, code: NakCode) -> ResponseKind {
        if self.refusal.is_some() {
            return ResponseKind::Duplicate;
        }
        let status = match code {
            NakCode::RemoteAccess => Status::RemAccess,
            NakCode::RemoteOperation => Status::RemOp,
            NakCode::PsnSequence | NakCode::InvalidRequest | NakCode::InvalidRd => {
                Status::RemInvReq
            }
        };
        let wait = self.retry.rtt.lateness().max(MIN_RTO_NS);
        let refusal = Refusal {
            psn,
            status,
            until: now.after(wait),
        };
        // If the request is the oldest one, nothing before it can succeed any more.
        if self.slot_of(psn) == Some(self.queue.done()) {
            self.refuse(&refusal);
        } else {
            self.refusal = Some(refusal);
        }
        ResponseKind::NakFatal
    }

    /// Fails the refused request if the last missing response before it has arrived.
    #[inline]
    pub(super) fn settle_refusal(&mut self, now: Instant) {
        if let Some(refusal) = self.refusal {
            self.settle(now, &refusal);
        }
    }

    #[cold]
    fn settle(&mut self, now: Instant, refusal: &Refusal) {
        self.acknowledge(now, refusal.psn, true);
        // The acknowledgment may have been the last one before a request that failed locally.
        if self.is_active() && self.slot_of(refusal.psn) == Some(self.queue.done()) {
            self.refuse(refusal);
        }
    }

    /// Ends the wait for late responses if it is over. Returns whether a NAK waits, or waited.
    pub(super) fn expire_refusal(&mut self, now: Instant) -> bool {
        let Some(refusal) = self.refusal else {
            return false;
        };
        if refusal.until.is_due(now) {
            self.refuse(&refusal);
        }
        true
    }

    /// Fails the refused request, and flushes those before it that are not finished.
    #[cold]
    fn refuse(&mut self, refusal: &Refusal) {
        let mut status = refusal.status;
        if let Some(guilty) = self.slot_of(refusal.psn) {
            while self.queue.done() < guilty {
                if let Some(failure) = self.queue.due_failure() {
                    // The request failed locally, and was not sent again yet.
                    status = failure;
                    break;
                }
                self.queue.finish(Status::WrFlush);
            }
        }
        self.fail(status);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::macros::kunit_tests(roce_requester_refusal)
)]
mod tests {
    use super::*;
    use crate::testutil::*;

    const ACCESS: Syndrome = Syndrome::Nak(NakCode::RemoteAccess);

    /// The end of the wait if no round trip was measured.
    const GIVE_UP: Instant = NOW.after(MIN_RTO_NS);

    /// Sends a SEND, a READ of two responses, and three requests of one packet.
    fn requests_around_read(rc: &mut Half) {
        post(
            rc,
            &[
                wr(SendOp::Send, 0),
                wr(SendOp::Read, 2 * MTU),
                wr(SendOp::Write, 0),
                wr(SendOp::Send, 0),
                wr(SendOp::Send, 0),
            ],
        );
        assert_eq!(send_all(rc), 5);
    }

    fn check(rc: &mut Half, statuses: &[Status]) {
        for &expected in statuses {
            assert_eq!(status(rc), Some(expected));
        }
        assert_eq!(
            (status(rc), send_all(rc), rc.next_timeout()),
            (None, 0, None)
        );
    }

    #[test]
    fn refused_request_fails_if_missing_response_does_not_arrive() {
        // The PSN of the NAK, and the status of each request.
        let cases = [
            (1, [Status::RemOp, Status::WrFlush, Status::WrFlush]),
            // A later part of the READ.
            (2, [Status::RemOp, Status::WrFlush, Status::WrFlush]),
            (3, [Status::WrFlush, Status::RemOp, Status::WrFlush]),
            (4, [Status::WrFlush, Status::WrFlush, Status::RemOp]),
        ];
        for (psn, [read, write, send]) in cases {
            let mut rc = requester(Transport::Rc, 5);
            requests_around_read(&mut rc);
            let nak = Syndrome::Nak(NakCode::RemoteOperation);
            assert_eq!(acknowledge(&mut rc, psn, nak), ResponseKind::NakFatal);
            // The refused READ itself is not waited for.
            let waits = psn > 2;
            assert_eq!(rc.take_error(), !waits);
            assert_eq!(rc.snapshot().awaits_late, waits);
            if waits {
                assert_eq!(rc.next_timeout(), Some(GIVE_UP));
                assert_eq!(rc.on_timeout(NOW.after(MIN_RTO_NS - 1)), Expired::Nothing);
                assert!(!rc.take_error());
                assert_eq!(rc.on_timeout(GIVE_UP), Expired::Nothing);
                assert!(rc.take_error());
            }
            check(
                &mut rc,
                &[Status::Success, read, write, send, Status::WrFlush],
            );
        }
    }

    #[test]
    fn late_responses_complete_requests_before_the_refused_one() {
        let mut rc = requester(Transport::Rc, 5);
        requests_around_read(&mut rc);
        assert_eq!(acknowledge(&mut rc, 4, ACCESS), ResponseKind::NakFatal);
        // The network may duplicate it, which does not prolong the wait.
        let again = acknowledge_at(&mut rc, NOW.after(1), 4, ACCESS);
        assert_eq!(again, ResponseKind::Duplicate);
        assert_eq!(rc.next_timeout(), Some(GIVE_UP));
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 1));
        assert!(!rc.take_error());
        take(&mut rc, &piece(Opcode::RcReadResponseLast, 2));
        assert!(rc.take_error());
        let [done, refused, flushed] = [Status::Success, Status::RemAccess, Status::WrFlush];
        check(&mut rc, &[done, done, done, refused, flushed]);
    }

    #[test]
    fn kept_responses_count_as_late_ones() {
        let mut rc = requester(Transport::Rc, 5);
        adjust(&mut rc, |params| params.retry_cnt = 0);
        requests_around_read(&mut rc);
        assert_eq!(acknowledge(&mut rc, 3, ACCESS), ResponseKind::NakFatal);
        // No retry is left, and none is needed.
        let last = piece(Opcode::RcReadResponseLast, 2);
        let early = respond(&mut rc, &last);
        assert!(early.is_early && early.outcome == ResponseKind::Early);
        rc.kept(Psn::new(2));
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 1));
        assert!(rc.is_kept_due());
        rc.took_kept(None);
        take(&mut rc, &piece(Opcode::RcReadResponseLast, 2));
        let [done, refused, flushed] = [Status::Success, Status::RemAccess, Status::WrFlush];
        check(&mut rc, &[done, done, refused, flushed, flushed]);
    }

    /// The peer has refused a request, so it responds to no retransmission.
    #[test]
    fn nothing_is_requested_again_after_refusal() {
        let mut rc = requester(Transport::Rc, 5);
        requests_around_read(&mut rc);
        assert_eq!(acknowledge(&mut rc, 4, ACCESS), ResponseKind::NakFatal);
        let left = rc.snapshot().retries_left;
        for syndrome in [
            Syndrome::ACK,
            Syndrome::Nak(NakCode::PsnSequence),
            Syndrome::Rnr { timer: 1 },
        ] {
            for psn in [1, 3] {
                acknowledge(&mut rc, psn, syndrome);
                assert_eq!(requested(&mut rc), None);
            }
        }
        assert_eq!(rc.snapshot().retries_left, left);
        assert_eq!(rc.next_timeout(), Some(GIVE_UP));
    }

    #[test]
    fn nothing_is_sent_or_executed_while_nak_waits() {
        for rewinds in [false, true] {
            let mut rc = requester(Transport::Rc, 7);
            requests_around_read(&mut rc);
            post(&mut rc, &[wr(SendOp::BindMw, 0), wr(SendOp::Send, 0)]);
            assert!(rc.poll_local().is_some());
            if rewinds {
                acknowledge(&mut rc, 1, Syndrome::Nak(NakCode::PsnSequence));
                assert!(rc.poll_transmit().is_some());
            }
            assert_eq!(acknowledge(&mut rc, 4, ACCESS), ResponseKind::NakFatal);
            assert_eq!((rc.poll_local(), send_all(&mut rc)), (None, 0));
            rc.on_timeout(GIVE_UP);
            let [flushed, refused] = [Status::WrFlush, Status::RemAccess];
            check(
                &mut rc,
                &[
                    Status::Success,
                    flushed,
                    flushed,
                    refused,
                    flushed,
                    flushed,
                    flushed,
                ],
            );
        }
    }

    #[test]
    fn fatal_nak_behind_local_error_does_not_hide_it() {
        for is_late in [false, true] {
            let mut rc = requester(Transport::Rc, 5);
            requests_around_read(&mut rc);
            rc.local_error(3, Status::LocProt);
            assert_eq!(acknowledge(&mut rc, 5, ACCESS), ResponseKind::NakFatal);
            let read = if is_late {
                take(&mut rc, &piece(Opcode::RcReadResponseFirst, 1));
                take(&mut rc, &piece(Opcode::RcReadResponseLast, 2));
                Status::Success
            } else {
                rc.on_timeout(GIVE_UP);
                Status::WrFlush
            };
            assert!(rc.take_error());
            let [failed, flushed] = [Status::LocProt, Status::WrFlush];
            check(&mut rc, &[Status::Success, read, read, failed, flushed]);
        }
    }

    #[test]
    fn wait_is_as_long_as_that_for_a_late_packet() {
        const RTT_NS: u64 = 40 * MIN_RTO_NS;
        const LATER: Instant = NOW.after(RTT_NS);

        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 1);
        acknowledge_at(&mut rc, LATER, 0, Syndrome::ACK);
        assert_eq!(status(&mut rc), Some(Status::Success));
        post(&mut rc, &[wr(SendOp::Read, MTU), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        acknowledge_at(&mut rc, LATER, 2, ACCESS);
        assert_eq!(rc.next_timeout(), Some(LATER.after(RTT_NS / 4 * 3)));
    }
}
