// SPDX-License-Identifier: GPL-2.0

//! Placement of acknowledgment requests (RC).

use core::ops::DerefMut;

use super::{
    transmit::Step,
    Requester,
    SendState,
    Slot,
    ACK_EVERY, //
};
use crate::opcode::Transport;

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns whether the packet requests an acknowledgment.
    #[inline]
    pub(super) fn wants_ack(&self, step: &Step) -> bool {
        let has_explicit_response = self
            .ring
            .get(step.place)
            .is_some_and(Slot::has_explicit_response);
        if self.transport != Transport::Rc || has_explicit_response {
            return false;
        }
        // If another packet can follow at once, a later one requests the acknowledgment.
        self.ack_base.forward(step.end()) >= ACK_EVERY
            || (self.step_at(step.next_place(), step.end()).is_none() && !self.can_wait(step))
    }

    /// Returns whether the last packet may defer its acknowledgment request.
    ///
    /// The consumer does not see the completion of an unsignalled request. It only occupies its
    /// slot: as long as few slots are in use, the next acknowledgment request covers it. An
    /// acknowledgment for each small request would cost as much as the request.
    #[inline]
    fn can_wait(&self, step: &Step) -> bool {
        let slot = self.ring.get(step.place);

        step.ends_message()
            && self.state == SendState::Running
            && self.fail_at.is_none()
            && self.ring.get(step.next_place()).is_none()
            && self.ring.len() <= self.ring.capacity() / 4
            && slot.is_some_and(|slot| !slot.wr.signalled)
    }

    /// Returns the last packet again, as a probe, if nothing else can be sent and it did not
    /// request an acknowledgment.
    ///
    /// Usually [`Requester::wants_ack`] predicts that. It cannot predict that the next request
    /// fails locally, or that the queue is drained in between. It also defers the acknowledgment
    /// requests of unsignalled requests.
    #[inline]
    pub(super) fn probe(&self) -> Option<Step> {
        if self.transport != Transport::Rc || !self.ack_base.is_before(self.send_psn) {
            return None;
        }
        let awaited = self.state != SendState::Running
            || self.fail_at.is_some()
            || self.ring.get(self.send).is_some();
        if self.ack_request_at.is_some() && !awaited {
            return None;
        }
        let psn = self.send_psn.prev();
        let mut place = self.send;
        let is_it = |place: usize| {
            place < self.begun
                && self
                    .ring
                    .get(place)
                    .is_some_and(|slot| !slot.wr.op.is_local() && !slot.first_psn.is_after(psn))
        };
        while !is_it(place) {
            place = place.checked_sub(1)?;
        }
        let slot = self.ring.get(place)?;
        Some(Step {
            place,
            psn,
            index: slot.first_psn.forward(psn),
            packets: slot.packets(),
            count: 1,
            probe: true,
        })
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_requester_asking))]
mod tests {
    use super::*;
    use crate::{
        requester::ACK_REQUEST_NS,
        testutil::{
            acknowledge,
            requester,
            send,
            slots,
            wr,
            MTU,
            NOW, //
        },
        wire::Syndrome,
        wr::{
            SendOp,
            SendWr, //
        },
    };

    #[test]
    fn what_nobody_waits_for_asks_later() {
        let mut slots = slots::<8>();
        let mut rc = requester(Transport::Rc, &mut slots);
        let quiet = SendWr {
            signalled: false,
            ..wr(SendOp::Send, 0)
        };
        // A quarter of the slots.
        for _ in 0..2 {
            assert!(rc.post(quiet).is_ok());
            assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        }
        let ask = NOW.after(ACK_REQUEST_NS);
        assert_eq!(rc.next_timeout(), Some(ask));
        assert!(!rc.on_timeout(ask));
        let probe = send(&mut rc);
        assert_eq!(probe.map(|sent| sent.ack_req), Some(true));
        assert_eq!(probe.map(|sent| sent.psn.get()), Some(1));
        assert_eq!(send(&mut rc), None);
        assert!(rc.next_timeout().is_some_and(|at| at != ask));
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
        while rc.poll_completion().is_some() {}

        // The acknowledgment request of a signalled request covers all.
        assert!(rc.post(quiet).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        acknowledge(&mut rc, 3, Syndrome::ACK);
        assert_eq!(rc.next_timeout(), None);
        while rc.poll_completion().is_some() {}

        // So does one that exceeds a quarter of the slots, and one that holds up a later request.
        for ack_req in [false, false, true] {
            assert!(rc.post(quiet).is_ok());
            assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(ack_req));
        }
        acknowledge(&mut rc, 6, Syndrome::ACK);
        while rc.poll_completion().is_some() {}
        assert!(rc.post(quiet).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        assert!(rc.post(wr(SendOp::LocalInv, 0)).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
    }

    #[test]
    fn what_turns_out_to_be_the_last_packet_is_sent_again_to_be_acknowledged() {
        let mut slots = slots::<2>();
        let mut rc = requester(Transport::Rc, &mut slots);
        for _ in 0..2 {
            assert!(rc.post(wr(SendOp::Send, MTU)).is_ok());
        }
        let first = send(&mut rc);
        assert_eq!(first.map(|sent| sent.ack_req), Some(false));
        rc.drain();
        let probe = send(&mut rc);
        assert_eq!(probe.map(|sent| sent.ack_req), Some(true));
        assert_eq!(probe.map(|sent| sent.psn), first.map(|sent| sent.psn));
        assert_eq!(send(&mut rc), None);
        assert!(rc.next_timeout().is_some());
    }
}
