// SPDX-License-Identifier: GPL-2.0

//! The wait after an RNR NAK.

use core::ops::DerefMut;

use crate::{
    requester::{
        Requester,
        Slot,
        RNR_RETRY_FOREVER, //
    },
    time::{
        rnr_timer_ns,
        Instant, //
    },
    wr::Status, //
};

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Starts the RNR wait for the packet at `una`, or fails the request if no RNR retry is left.
    ///
    /// Returns false if the NAK is a duplicate.
    pub(in crate::requester) fn wait_rnr(&mut self, now: Instant, timer: u8) -> bool {
        if self.is_rewound() {
            return false;
        }
        if self.params.rnr_retry != RNR_RETRY_FOREVER {
            match self.retry.rnr_left.checked_sub(1) {
                Some(left) => self.retry.rnr_left = left,
                None => {
                    self.fail(Status::RnrRetryExceeded);
                    return true;
                }
            }
        }
        // The RNR NAK shows that the peer is alive. It may lack a receive request for long, and
        // packets that are lost meanwhile must not use up the retries.
        self.retry.retries_left = self.params.retry_cnt;
        self.rewind();
        self.retry.rnr_until = Some(now.after(rnr_timer_ns(timer)));
        true
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_rnr))]
mod tests {
    use super::*;
    use crate::{
        opcode::Transport,
        requester::{
            Expired,
            ResponseKind, //
        },
        testutil::{
            acknowledge_at as acknowledge,
            adjust,
            requester,
            send_at as send,
            status,
            wr,
            NOW,
            TIMEOUT_NS, //
        },
        wire::Syndrome,
        wr::SendOp, //
    };

    #[test]
    fn rnr_nak_is_retried_after_timer() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc, NOW));
        let rnr = Syndrome::Rnr { timer: 1 };
        assert_eq!(acknowledge(&mut rc, NOW, 0, rnr), ResponseKind::Rnr);
        assert!(!send(&mut rc, NOW));
        // The network may duplicate it.
        assert_eq!(acknowledge(&mut rc, NOW, 0, rnr), ResponseKind::Duplicate);
        let due = NOW.after(10_000);
        assert_eq!(rc.next_timeout(), Some(due));
        // The end of the RNR wait is not a response timeout.
        assert_eq!(rc.on_timeout(due), Expired::Nothing);
        assert!(send(&mut rc, due));
        assert_eq!(acknowledge(&mut rc, due, 0, rnr), ResponseKind::Rnr);
        assert_eq!(status(&mut rc), Some(Status::RnrRetryExceeded));
    }

    #[test]
    fn rnr_retry_7_is_unlimited() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.rnr_retry = RNR_RETRY_FOREVER);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let rnr = Syndrome::Rnr { timer: 1 };
        let mut now = NOW;
        for _ in 0..20 {
            assert!(send(&mut rc, now));
            assert_eq!(acknowledge(&mut rc, now, 0, rnr), ResponseKind::Rnr);
            now = now.after(10_000);
            rc.on_timeout(now);
        }
        assert!(rc.poll_completion().is_none());
    }

    #[test]
    fn rnr_nak_resets_retry_count() {
        let mut rc = requester(Transport::Rc, 1);
        adjust(&mut rc, |params| params.rnr_retry = RNR_RETRY_FOREVER);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let mut now = NOW;
        // Every other packet is lost.
        for _ in 0..20 {
            assert!(send(&mut rc, now));
            now = now.after(TIMEOUT_NS);
            assert_eq!(rc.on_timeout(now), Expired::Retry);
            assert!(send(&mut rc, now));
            let rnr = Syndrome::Rnr { timer: 1 };
            assert_eq!(acknowledge(&mut rc, now, 0, rnr), ResponseKind::Rnr);
            now = now.after(10_000);
            rc.on_timeout(now);
        }
        assert!(rc.poll_completion().is_none());
        // Two losses in a row are more than one retry.
        for _ in 0..2 {
            assert!(send(&mut rc, now));
            now = now.after(TIMEOUT_NS);
            rc.on_timeout(now);
        }
        assert_eq!(status(&mut rc), Some(Status::RetryExceeded));
    }
}
