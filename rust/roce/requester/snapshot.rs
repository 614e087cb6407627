// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a send half, to debug stalls.

use core::{
    ffi::CStr,
    ops::DerefMut, //
};

use super::{
    Requester,
    SendState,
    Slot, //
};
use crate::{
    psn::Psn,
    time::Instant,
    wr::SendOp, //
};

/// The state of a send half, for diagnostics only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSnapshot {
    /// The state of the half.
    pub state: SendState,
    /// The number of work requests that were posted and are not retired.
    pub taken: usize,
    /// The number of slots.
    pub slots: usize,
    /// The number of posted work requests that have neither started nor finished.
    pub waiting: usize,
    /// The oldest unacknowledged PSN.
    pub una: Psn,
    /// The PSN of the next packet: before `max` only during a retransmission.
    pub next: Psn,
    /// The PSN after the last one ever sent.
    pub max: Psn,
    /// The most unacknowledged PSNs.
    pub window: u32,
    /// The number of requests with an explicit response in flight.
    pub reads: u8,
    /// The remaining retransmissions of the packet at `una`.
    pub retries_left: u8,
    /// The remaining RNR retries of the packet at `una`, unless they are unlimited.
    pub rnr_left: u8,
    /// The expiry of the retransmission timer.
    pub ack_due: Option<Instant>,
    /// The end of the RNR wait.
    pub rnr_until: Option<Instant>,
    /// True while the half waits for a missing packet or response that may only be late.
    pub awaits_late: bool,
    /// The oldest unfinished request.
    pub oldest: Option<OldestRequest>,
}

/// The oldest unfinished request of a send half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestRequest {
    /// The operation.
    pub op: SendOp,
    /// The length of the message in bytes.
    pub length: u32,
    /// The PSNs of the first and the last packet or response, once the request has started; `None`
    /// for a local operation.
    pub psns: Option<(Psn, Psn)>,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns a snapshot of the half.
    pub fn snapshot(&self) -> SendSnapshot {
        let (done, begun) = (self.queue.done(), self.queue.begun());
        let oldest = self.queue.get(done).map(|slot| OldestRequest {
            op: slot.wr.op,
            length: slot.wr.length,
            psns: (done < begun && !slot.wr.op.is_local())
                .then_some((slot.first_psn, slot.last_psn)),
        });
        let (retries_left, rnr_left) = self.retry.left();
        SendSnapshot {
            state: self.state(),
            taken: self.queue.len(),
            slots: self.queue.capacity(),
            waiting: self.queue.len().saturating_sub(begun.max(done)),
            una: self.window.una(),
            next: self.window.next(),
            max: self.window.max(),
            window: self.window.size(),
            reads: self.explicit.outstanding(),
            retries_left,
            rnr_left,
            ack_due: self.retry.deadline(),
            rnr_until: self.retry.rnr_until(),
            awaits_late: self.gap.awaits_late(),
            oldest,
        }
    }
}

impl SendState {
    /// Returns the name of the state.
    pub const fn name(self) -> &'static CStr {
        match self {
            SendState::Stopped => c"stopped",
            SendState::Running => c"running",
            SendState::Draining => c"draining",
            SendState::Drained => c"drained",
            SendState::SendError => c"send-error",
            SendState::Error => c"error",
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_snapshot))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn snapshot_shows_outstanding_requests() {
        let mut rc = requester(Transport::Rc, 4);
        let idle = rc.snapshot();
        assert_eq!((idle.taken, idle.waiting, idle.oldest), (0, 0, None));
        assert_eq!((idle.slots, idle.ack_due), (4, None));

        post(&mut rc, &[wr(SendOp::Send, 2 * MTU), wr(SendOp::Write, 3)]);
        let posted = rc.snapshot();
        assert_eq!((posted.taken, posted.waiting), (2, 2));
        assert_eq!(posted.oldest.and_then(|oldest| oldest.psns), None);

        assert_eq!(send_all(&mut rc), 3);
        let sent = rc.snapshot();
        assert_eq!((sent.taken, sent.waiting), (2, 0));
        assert_eq!((sent.una.get(), sent.next.get(), sent.max.get()), (0, 3, 3));
        assert_eq!(sent.ack_due, Some(NOW.after(TIMEOUT_NS)));
        let oldest = OldestRequest {
            op: SendOp::Send,
            length: 2 * MTU,
            psns: Some((Psn::new(0), Psn::new(1))),
        };
        assert_eq!(sent.oldest, Some(oldest));

        acknowledge(&mut rc, 1, Syndrome::ACK);
        let oldest = rc.snapshot().oldest;
        assert_eq!(oldest.map(|oldest| oldest.op), Some(SendOp::Write));
        rc.on_timeout(NOW.after(TIMEOUT_NS));
        let again = rc.snapshot();
        assert_eq!((again.next.get(), again.max.get()), (2, 3));
        assert_eq!((again.retries_left, again.ack_due), (0, None));
        assert!(again.window < sent.window);
    }

    #[test]
    fn snapshot_shows_rnr_wait() {
        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 1);
        acknowledge(&mut rc, 0, Syndrome::Rnr { timer: 1 });
        let snapshot = rc.snapshot();
        assert_eq!(snapshot.rnr_until, Some(NOW.after(10_000)));
        assert_eq!((snapshot.ack_due, snapshot.rnr_left), (None, 0));
        rc.flush();
        assert_eq!(rc.snapshot().state.name(), c"error");
        assert_eq!(rc.snapshot().rnr_until, None);
    }

    #[test]
    fn late_acknowledgment_ends_rnr_wait() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert_eq!(send_all(&mut rc), 2);
        acknowledge(&mut rc, 0, Syndrome::Rnr { timer: 1 });
        assert!(rc.snapshot().rnr_until.is_some());
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(rc.snapshot().rnr_until, None);
        assert_eq!(send_all(&mut rc), 1);
    }

    #[test]
    fn timeout_follows_slowest_progress() {
        let mut rc = requester(Transport::Rc, 4);
        post(&mut rc, &[wr(SendOp::Send, 0); 4]);
        assert_eq!(send_all(&mut rc), 4);
        let mut now = NOW;
        let half = TIMEOUT_NS / 2;
        for (psn, took, timeout) in [
            (0, half, 4 * half),
            (1, half, 4 * half),
            // The slowest one fades, by 1/256.
            (2, 0, 4 * (half - half / 256)),
        ] {
            now = now.after(took);
            acknowledge_at(&mut rc, now, psn, Syndrome::ACK);
            assert_eq!(rc.snapshot().ack_due, Some(now.after(timeout)));
        }
    }

    #[test]
    fn timeout_ends_wait_for_late_packet() {
        let far = NOW.after(4_000_000);
        let mut rc = requester(Transport::Rc, 8);
        adjust(&mut rc, |params| {
            params.ack_timeout = core::num::NonZero::new(LONG_TIMEOUT_NS)
        });
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 1);
        acknowledge_at(&mut rc, far, 0, Syndrome::ACK);
        // The packet that is reported as missing arrives before it is sent again.
        for (missing, awaits_late) in [(2, false), (6, true)] {
            post(&mut rc, &[wr(SendOp::Write, 4 * MTU)]);
            assert!(send_all(&mut rc) > 0);
            let nak = Syndrome::Nak(NakCode::PsnSequence);
            acknowledge_at(&mut rc, far, missing, nak);
            assert_eq!(rc.snapshot().awaits_late, awaits_late);
            if !awaits_late {
                acknowledge_at(&mut rc, far, 4, Syndrome::ACK);
            }
        }
        let due = rc.snapshot().ack_due.unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        assert!(!rc.snapshot().awaits_late);
    }
}
