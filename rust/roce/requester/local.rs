// SPDX-License-Identifier: GPL-2.0

//! Local operations, executed in queue order (RC, UC).

use core::ops::DerefMut;

use super::{
    Requester,
    SendState,
    Slot, //
};
use crate::{
    ids::Rkey,
    wr::{
        LocalArgs,
        SendOp,
        Status, //
    }, //
};

/// A local operation to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The slot of the request.
    pub slot: u16,
    /// The operation.
    pub op: SendOp,
    /// The key to invalidate, or the new key of the memory.
    pub key: Rkey,
    /// The arguments ([`SendOp::BindMw`] and [`SendOp::RegMr`] only).
    pub args: LocalArgs,
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the local operation to execute now, if there is one.
    ///
    /// This does not change the state; see [`Requester::local_done`].
    ///
    /// An operation is due once everything before it was sent and, if it is fenced, no explicit
    /// response is outstanding. A local invalidate waits until everything before it has finished,
    /// because a retransmission may need the key.
    #[inline]
    pub fn poll_local(&self) -> Option<Local> {
        let next = self.queue.next();
        let slot = self.queue.get(next)?;
        if !slot.wr.op.is_local() || next < self.queue.begun() || self.state != SendState::Running {
            return None;
        }
        let fenced = slot.wr.fence && self.explicit.is_outstanding();
        let early = slot.wr.op == SendOp::LocalInv && next != self.queue.done();
        if fenced || early || self.queue.fails(next) {
            return None;
        }
        Some(Local {
            slot: self.queue.number(next)?,
            op: slot.wr.op,
            key: slot.wr.rkey,
            args: slot.wr.local(),
        })
    }

    /// Reports the result of the operation that [`Requester::poll_local`] returned.
    pub fn local_done(&mut self, result: Result<(), Status>) {
        if self.poll_local().is_none() {
            return;
        }
        if let Err(status) = result {
            self.fail_slot(self.queue.next(), status);
            return;
        }
        self.queue.execute();
        self.fail_if_due();
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_local))]
mod tests {
    use super::*;
    use crate::testutil::*;

    fn local(rc: &Half) -> Option<u16> {
        rc.poll_local().map(|local| local.slot)
    }

    fn completion(rc: &mut Half) -> Option<(SendOp, Status)> {
        rc.poll_completion().map(|end| (end.op, end.status))
    }

    #[test]
    fn finished_request_cannot_fail() {
        let mut uc = requester(Transport::Uc, 2);
        assert!(uc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut uc).is_some());
        for slot in 0..3 {
            uc.local_error(slot, Status::LocProt);
        }
        assert!(!uc.take_error());
        assert_eq!(completion(&mut uc), Some((SendOp::Send, Status::Success)));
    }

    #[test]
    fn request_after_error_is_flushed_even_if_it_fails() {
        let mut uc = requester(Transport::Uc, 2);
        post(&mut uc, &[wr(SendOp::Send, 0); 2]);
        uc.local_error(0, Status::LocLen);
        assert!(uc.take_error());
        uc.local_error(1, Status::LocProt);
        assert!(!uc.take_error());
        for status in [Status::LocLen, Status::WrFlush] {
            assert_eq!(completion(&mut uc), Some((SendOp::Send, status)));
        }
    }

    #[test]
    fn local_operations_execute_in_order() {
        let mut rc = requester(Transport::Rc, 4);
        post_ops(&mut rc, &[SendOp::RegMr, SendOp::Write], 0);
        post_ops(&mut rc, &[SendOp::LocalInv, SendOp::Write], 0);
        assert!(rc.poll_transmit().is_none());
        assert_eq!(local(&rc), Some(0));
        assert_eq!(completion(&mut rc), None);
        rc.local_done(Ok(()));
        assert_eq!(completion(&mut rc), Some((SendOp::RegMr, Status::Success)));
        assert_eq!(rc.poll_local(), None);
        let first = rc.poll_transmit();
        assert_eq!(
            first.map(|packet| (packet.slot, packet.ack_req)),
            Some((1, true))
        );
        send(&mut rc);
        // A retransmission may need the key, and later requests do not overtake.
        assert_eq!(rc.poll_local(), None);
        assert!(rc.poll_transmit().is_none());
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(local(&rc), Some(2));
        rc.local_done(Ok(()));
        assert_eq!(rc.poll_local(), None);
        let last = rc.poll_transmit();
        assert_eq!(
            last.map(|packet| (packet.slot, packet.psn.get())),
            Some((3, 1))
        );
    }

    #[test]
    fn retransmission_skips_local_operations() {
        let mut rc = requester(Transport::Rc, 5);
        let ops = [SendOp::Write, SendOp::BindMw, SendOp::BindMw, SendOp::Send];
        post_ops(&mut rc, &ops, 4);
        send(&mut rc);
        for slot in [1, 2] {
            assert_eq!(local(&rc), Some(slot));
            rc.local_done(Ok(()));
        }
        send(&mut rc);
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        for slot in [0, 3] {
            assert_eq!(rc.poll_transmit().map(|packet| packet.slot), Some(slot));
            assert_eq!(rc.poll_local(), None);
            send(&mut rc);
        }
        acknowledge(&mut rc, 1, Syndrome::ACK);
        for op in ops {
            assert_eq!(completion(&mut rc), Some((op, Status::Success)));
        }
        assert_eq!(completion(&mut rc), None);
    }

    #[test]
    fn failed_local_operation_completes_in_order() {
        let mut rc = requester(Transport::Rc, 3);
        post_ops(&mut rc, &[SendOp::Write, SendOp::BindMw, SendOp::Send], 4);
        send(&mut rc);
        rc.local_done(Err(Status::MwBind));
        assert_eq!(completion(&mut rc), None);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(completion(&mut rc), Some((SendOp::Write, Status::Success)));
        assert_eq!(completion(&mut rc), Some((SendOp::BindMw, Status::MwBind)));
        assert_eq!(completion(&mut rc), Some((SendOp::Send, Status::WrFlush)));
        assert!(rc.take_error());
    }

    #[test]
    fn fenced_bind_waits_for_read_response() {
        let mut rc = requester(Transport::Rc, 2);
        assert!(rc.post(wr(SendOp::Read, MTU)).is_ok());
        let mut bind = wr(SendOp::BindMw, 0);
        bind.fence = true;
        assert!(rc.post(bind).is_ok());
        send(&mut rc);
        assert_eq!(rc.poll_local(), None);
        let late = Instant::from_ns(1 << 40);
        rc.on_timeout(late);
        assert_eq!(rc.poll_local(), None);
    }

    #[test]
    fn uc_supports_local_operations_and_ud_does_not() {
        let mut uc = requester(Transport::Uc, 2);
        post_ops(&mut uc, &[SendOp::Send, SendOp::LocalInv], 0);
        send(&mut uc);
        assert_eq!(local(&uc), Some(1));
        uc.local_done(Err(Status::LocQpOp));
        assert_eq!(completion(&mut uc), Some((SendOp::Send, Status::Success)));
        assert_eq!(
            completion(&mut uc),
            Some((SendOp::LocalInv, Status::LocQpOp))
        );
        let mut ud = requester(Transport::Ud, 1);
        assert!(ud.post(wr(SendOp::LocalInv, 0)).is_err());
    }

    #[test]
    fn local_operation_without_fence_does_not_wait_for_responses() {
        let mut rc = requester(Transport::Rc, 3);
        post_ops(&mut rc, &[SendOp::Read, SendOp::BindMw, SendOp::BindMw], 1);
        send(&mut rc);
        assert_eq!(local(&rc), Some(1));
        rc.local_done(Ok(()));
        // In SQD no request starts.
        rc.drain();
        assert_eq!(local(&rc), None);
    }

    #[test]
    fn failure_is_due_after_local_operation() {
        let mut rc = requester(Transport::Rc, 2);
        post_ops(&mut rc, &[SendOp::BindMw, SendOp::Send], 1);
        rc.local_error(1, Status::LocProt);
        assert!(!rc.take_error());
        rc.local_done(Ok(()));
        assert!(rc.take_error());
        assert_eq!(completion(&mut rc), Some((SendOp::BindMw, Status::Success)));
        assert_eq!(completion(&mut rc), Some((SendOp::Send, Status::LocProt)));
    }

    #[test]
    fn local_operation_completes_behind_acknowledged_request() {
        let mut rc = requester(Transport::Rc, 2);
        post_ops(&mut rc, &[SendOp::Send, SendOp::BindMw], 1);
        send(&mut rc);
        rc.local_done(Ok(()));
        assert_eq!(rc.snapshot().waiting, 0);
        assert_eq!(completion(&mut rc), None);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        for op in [SendOp::Send, SendOp::BindMw] {
            assert_eq!(completion(&mut rc), Some((op, Status::Success)));
        }
    }

    /// Sends up to three packets, and returns their PSNs.
    fn psns(rc: &mut Half) -> [Option<u32>; 3] {
        [(); 3].map(|()| send(rc).map(|sent| sent.psn.get()))
    }

    #[test]
    fn requests_before_failed_one_are_sent_again() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 2 * MTU); 2]);
        assert_eq!(psns(&mut rc), [Some(0), Some(1), Some(2)]);
        // The second request is about to be sent.
        rc.local_error(1, Status::LocProt);
        assert_eq!(rc.next_psn().get(), 3);
        assert_eq!(psns(&mut rc), [Some(1), None, None]);
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        assert_eq!(psns(&mut rc), [Some(0), Some(1), None]);
    }

    #[test]
    fn failure_after_rewind_leaves_earlier_requests() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 2 * MTU); 2]);
        assert_eq!(psns(&mut rc), [Some(0), Some(1), Some(2)]);
        assert_eq!(psns(&mut rc), [Some(3), None, None]);
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Retry);
        rc.local_error(1, Status::LocProt);
        assert_eq!(psns(&mut rc), [Some(0), Some(1), None]);
    }

    #[test]
    fn fence_waits_only_for_outstanding_responses() {
        let mut rc = requester(Transport::Rc, 1);
        let mut fenced = wr(SendOp::Send, 0);
        fenced.fence = true;
        assert!(rc.post(fenced).is_ok());
        assert!(send(&mut rc).is_some());
    }
}
