// SPDX-License-Identifier: GPL-2.0

//! Selection of the next packet.

use core::ops::DerefMut;

use super::{
    Requester,
    SendState,
    Slot,
    Transmit, //
};
use crate::{
    opcode::Transport,
    psn::Psn,
    time::Instant,
    wire::packets_for, //
};

/// The next packet: its slot and its position in the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The index of the slot.
    pub(super) slot: usize,
    pub(super) psn: Psn,
    /// The number of PSNs before it in the message.
    pub(super) index: u32,
    /// The number of PSNs of the whole message.
    pub(super) packets: u32,
    /// The number of PSNs of this packet.
    pub(super) count: u32,
    pub(super) kind: StepKind,
}

/// The reason to send a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StepKind {
    /// The packet is the next one in the order of PSNs.
    #[default]
    Next,
    /// The last packet is sent again to request an acknowledgment.
    AckProbe,
    /// The packet is sent again because it, or the response to it, seems to be lost.
    LossProbe,
}

impl Step {
    /// Returns the PSN after the packet.
    #[inline]
    pub(super) fn end(&self) -> Psn {
        self.psn.add(self.count)
    }

    /// Returns whether the packet is sent again outside the order of PSNs.
    #[inline]
    pub(super) fn is_probe(&self) -> bool {
        self.kind != StepKind::Next
    }

    /// Returns whether this is the last packet of the message.
    #[inline]
    pub(super) fn ends_message(&self) -> bool {
        self.index.wrapping_add(self.count) >= self.packets
    }

    /// Returns the index of the slot of the packet after this one.
    #[inline]
    pub(super) fn next_slot(&self) -> usize {
        if self.ends_message() {
            self.slot.wrapping_add(1)
        } else {
            self.slot
        }
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Reports that the packet returned by [`Requester::poll_transmit`] was sent.
    ///
    /// No other call may have come between the two. RC: starts the wait for the response. UC and
    /// UD: the last packet of a message completes it successfully.
    #[inline]
    pub fn transmitted(&mut self, now: Instant, transmit: &Transmit) {
        let step = transmit.step;
        if transmit.again {
            self.repeat(step.slot);
        }
        match step.kind {
            StepKind::Next => {}
            StepKind::AckProbe => {
                self.acks.requested(self.window.next());
                self.expect_response(now);
                return;
            }
            StepKind::LossProbe => {
                self.probed(step.end());
                self.expect_response(now);
                return;
            }
        }
        self.begin(&step);
        if self.transport == Transport::Rc {
            self.sent_reliable(now, &step, transmit.ack_req);
        } else {
            self.advance(&step);
            self.window.acknowledge(step.end());
            if step.ends_message() {
                self.queue.succeed();
                self.fail_if_due();
            }
        }
    }

    /// Marks the request in the slot at `at` as one with a packet that was sent twice.
    #[cold]
    pub(super) fn repeat(&mut self, at: usize) {
        if let Some(slot) = self.queue.get_mut(at) {
            slot.is_repeated = true;
        }
    }

    /// Starts the message or the part of a READ that begins with this packet.
    ///
    /// Assigns PSNs to a new message, and records the size of a new part of a READ, or the smaller
    /// size of a part that is requested again.
    #[inline]
    fn begin(&mut self, step: &Step) {
        let is_new = step.slot >= self.queue.begun();
        if let Some(slot) = self.queue.get_mut(step.slot) {
            slot.part = slot.part_from(&self.window, step.psn);
            if is_new {
                slot.first_psn = step.psn;
                slot.last_psn = step.psn.add(step.packets).prev();
                self.queue.begin(step.slot);
            }
        }
    }

    /// Accounts for an RC packet that was sent in the order of PSNs.
    #[inline]
    fn sent_reliable(&mut self, now: Instant, step: &Step, ack_req: bool) {
        let end = step.end();
        let is_new = step.psn == self.window.max();
        self.advance(step);
        let has_explicit_response = self.has_explicit_response(step);
        if has_explicit_response {
            self.explicit.requested();
            self.window.restart_at(end);
        }
        // An explicit response also acknowledges everything before it.
        let signalled = self
            .queue
            .get(step.slot)
            .is_some_and(|slot| slot.wr.signalled);
        self.acks
            .sent(now, end, ack_req || has_explicit_response, signalled);
        if is_new && (ack_req || has_explicit_response) {
            // The RTT sample of a READ ends with the first response.
            self.retry.rtt.sent(now, step.psn.next());
        }
        self.expect_response(now);
    }

    /// Returns whether the packet is, or belongs to, a request with an explicit response.
    #[inline]
    pub(super) fn has_explicit_response(&self, step: &Step) -> bool {
        let slot = self.queue.get(step.slot);
        slot.is_some_and(Slot::has_explicit_response)
    }

    /// Moves on to the next packet.
    #[inline]
    fn advance(&mut self, step: &Step) {
        self.queue.advance(step.next_slot());
        self.window.sent(step.end());
    }

    /// Holds the packet with PSN `psn` and all behind it back (RC), because its memory is not
    /// present.
    ///
    /// Meanwhile, earlier packets are sent again, and the last of them is sent as a probe if it did
    /// not request an acknowledgment and the delay of the deferred request is over.
    #[cold]
    pub fn hold(&mut self, psn: Psn) {
        self.held = Some(psn);
    }

    /// Returns whether a packet is held back. One that was acknowledged meanwhile is not: it had
    /// been sent before.
    pub fn is_held(&self) -> bool {
        self.held
            .is_some_and(|held| !held.is_before(self.window.una()))
    }

    /// Ends the effect of [`Requester::hold`].
    #[inline]
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Returns whether the next packet is one of a SEND or WRITE, even if it may not be sent yet.
    #[inline]
    pub fn has_data_to_send(&self) -> bool {
        let next = self.queue.get(self.queue.next());
        next.is_some_and(Slot::carries_data)
    }

    /// Returns the next packet.
    #[inline]
    pub(super) fn next_step(&self) -> Option<Step> {
        if !self.is_active() || self.retry.rnr_until().is_some() {
            return None;
        }
        self.loss_probe()
            .or_else(|| self.step_at(self.queue.next(), self.window.next()))
            .or_else(|| self.ack_probe())
    }

    /// Returns the packet with PSN `psn`, of the request in the slot at `at`, if it may be sent
    /// now.
    // Always inlined: a caller that only looks ahead needs no more than the checks.
    #[inline(always)]
    pub(super) fn step_at(&self, at: usize, psn: Psn) -> Option<Step> {
        let slot = self.queue.get(at)?;
        let begun = at < self.queue.begun();
        if slot.wr.op.is_local() {
            return None;
        }
        if (!begun && self.state == SendState::Draining) || self.queue.fails(at) {
            return None;
        }
        let (index, packets) = if begun {
            (slot.first_psn.forward(psn), slot.packets())
        } else {
            (0, self.packets_of(slot))
        };
        let mut step = Step {
            slot: at,
            psn,
            index,
            packets,
            count: 1,
            kind: StepKind::Next,
        };
        if self.transport == Transport::Rc {
            if self.held.is_some_and(|held| !psn.is_before(held)) {
                return None;
            }
            let fenced = slot.wr.fence && index == 0 && self.explicit.is_outstanding();
            if fenced {
                return None;
            }
            if slot.is_read() {
                step.count = self.part_at(slot, &step)?;
            }
            if slot.has_explicit_response() {
                return self.may_request(&step).then_some(step);
            }
            if !self.window.has_room(psn) {
                return None;
            }
        }
        Some(step)
    }

    /// Returns the packet with PSN `psn` again, outside the order of PSNs.
    ///
    /// It belongs to the request in the slot at `at`, which must have started.
    pub(super) fn step_again(&self, at: usize, psn: Psn, kind: StepKind) -> Option<Step> {
        let slot = self.queue.get(at)?;
        Some(Step {
            slot: at,
            psn,
            index: slot.first_psn.forward(psn),
            packets: slot.packets(),
            count: 1,
            kind,
        })
    }

    /// Returns whether a request with an explicit response may be sent now.
    ///
    /// While others are outstanding, the responses to all of them must fit into the window. Each
    /// part of a READ counts as a request.
    #[inline]
    fn may_request(&self, step: &Step) -> bool {
        self.explicit.has_room(self.params.max_rd_atomic)
            && (!self.explicit.is_outstanding() || self.window.has_room_for_responses(step.end()))
    }

    /// Returns the number of packets, or of READ responses, of a request.
    #[inline(always)]
    fn packets_of(&self, slot: &Slot) -> u32 {
        if self.transport == Transport::Ud || (slot.has_explicit_response() && !slot.is_read()) {
            return 1;
        }
        packets_for(slot.wr.length, self.params.mtu)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_transmit))]
mod tests {
    use super::*;
    use crate::requester::{
        window::INITIAL_WINDOW,
        ACK_REQUEST_NS, //
    };
    use crate::testutil::*;

    #[test]
    fn datagram_completes_when_sent() {
        let mut ud = requester(Transport::Ud, 2);
        assert_eq!(ud.post(wr(SendOp::SendImm, MTU)), Ok(0));
        let sent = send(&mut ud);
        assert_eq!(sent.map(|sent| sent.opcode), Some(Opcode::UdSendOnlyImm));
        assert_eq!(sent.map(|sent| sent.len), Some(MTU));
        assert_eq!(sent.map(|sent| sent.oversize), Some(false));
        assert_eq!(sent.map(|sent| sent.dest_qpn), Some(Qpn::new(0x22)));
        let rare = sent.map(|sent| sent.rare);
        assert!(matches!(rare, Some(RareHeader::Deth(deth)) if deth.src_qpn == Qpn::new(0x55)));
        let completion = ud.poll_completion();
        assert_eq!(completion.map(|end| end.status), Some(Status::Success));
        assert_eq!(completion.map(|end| end.byte_len), Some(MTU));
        assert_eq!(ud.next_psn().get(), 1);
        assert_eq!(ud.next_timeout(), None);
    }

    #[test]
    fn datagram_longer_than_current_mtu_is_not_sent() {
        let mut ud = requester(Transport::Ud, 3);
        post(&mut ud, &[wr(SendOp::Send, MTU + 1); 2]);
        ud.set_mtu(2 * MTU);
        assert!(send(&mut ud).is_some_and(|sent| !sent.oversize));
        assert!(ud.poll_completion().is_some());
        ud.set_mtu(MTU);
        let long = ud.poll_transmit().unwrap();
        assert!(long.oversize);
        ud.local_error(long.slot, Status::LocLen);
        assert_eq!((ud.state(), ud.take_error()), (SendState::SendError, true));
        assert_eq!(status(&mut ud), Some(Status::LocLen));
        // The datagram that was not sent has consumed no PSN.
        assert_eq!(ud.next_psn().get(), 1);
    }

    #[test]
    fn held_packet_does_not_delay_earlier_ones() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(false));
        rc.hold(Psn::new(1));
        assert_eq!(sent(&mut rc), [None; 4]);
        // After a while the packet before it requests the acknowledgment.
        rc.on_timeout(NOW.after(ACK_REQUEST_NS));
        assert_eq!(sent(&mut rc), [Some((0, true)), None, None, None]);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(status(&mut rc), Some(Status::Success));
        assert_eq!(sent(&mut rc), [None; 4]);
        rc.release();
        assert_eq!(sent(&mut rc), [Some((1, true)), None, None, None]);
    }

    #[test]
    fn acknowledged_packet_is_not_held() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert_eq!(
            sent(&mut rc),
            [Some((0, false)), Some((1, true)), None, None]
        );
        // Both are to be sent again when the memory of the first one is gone.
        acknowledge(&mut rc, 0, Syndrome::Rnr { timer: 1 });
        rc.on_timeout(rc.next_timeout().unwrap());
        rc.hold(Psn::new(0));
        assert!(rc.is_held());
        assert_eq!(sent(&mut rc), [None; 4]);
        // The acknowledgment was only late.
        acknowledge(&mut rc, 1, Syndrome::ACK);
        assert!(!rc.is_held());
        assert_eq!(status(&mut rc), Some(Status::Success));
    }

    /// Otherwise, half of all PSNs would be before the oldest outstanding one, and not be held.
    #[test]
    fn unreliable_packets_are_not_outstanding() {
        for transport in [Transport::Uc, Transport::Ud] {
            let mut half = requester(transport, 1);
            post(&mut half, &[wr(SendOp::Send, 0)]);
            assert!(send(&mut half).is_some());
            assert_eq!(half.oldest_psn(), half.next_psn());
            assert_eq!(half.next_psn(), Psn::new(1));
        }
    }

    #[test]
    fn retries_run_out_before_held_packet() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        assert!(send(&mut rc).is_some());
        rc.hold(Psn::new(1));
        for _ in 0..100 {
            assert!(sent(&mut rc).iter().flatten().all(|(psn, _)| *psn == 0));
            if let Some(due) = rc.next_timeout() {
                rc.on_timeout(due);
            }
        }
        assert_eq!(status(&mut rc), Some(Status::RetryExceeded));
    }

    #[test]
    fn post_checks_opcode_slots_and_length() {
        let mut ud = requester(Transport::Ud, 1);
        assert_eq!(ud.post(wr(SendOp::Write, 1)), Err(PostError::BadOpcode));
        assert_eq!(ud.post(wr(SendOp::Send, 1)), Ok(0));
        assert_eq!(ud.post(wr(SendOp::Send, 1)), Err(PostError::Full));
        let mut uc = requester(Transport::Uc, 1);
        assert_eq!(uc.post(wr(SendOp::Read, 1)), Err(PostError::BadOpcode));
        let long = wr(SendOp::Send, (1 << 31) + 1);
        assert_eq!(uc.post(long), Err(PostError::TooLong));
        assert_eq!(uc.post(wr(SendOp::Send, 1 << 31)), Ok(0));
    }

    #[test]
    fn message_is_segmented_into_packets() {
        let mut uc = requester(Transport::Uc, 1);
        assert_eq!(uc.post(wr(SendOp::WriteImm, 3 * MTU + 1)), Ok(0));
        let expected = [
            (Opcode::UcWriteFirst, MTU),
            (Opcode::UcWriteMiddle, MTU),
            (Opcode::UcWriteMiddle, MTU),
            (Opcode::UcWriteLastImm, 1),
        ];
        for (number, (opcode, len)) in (0..).zip(expected) {
            assert!(uc.poll_completion().is_none());
            let sent = send(&mut uc);
            assert_eq!(sent.map(|sent| sent.opcode), Some(opcode));
            assert_eq!(sent.map(|sent| sent.len), Some(len));
            assert_eq!(sent.map(|sent| sent.offset), Some(number * MTU));
            assert_eq!(sent.map(|sent| sent.psn.get()), Some(number));
            assert_eq!(sent.map(|sent| sent.ack_req), Some(false));
        }
        assert!(uc.poll_completion().is_some());
        assert_eq!(send(&mut uc), None);
    }

    #[test]
    fn window_is_bounded_and_requests_acks() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 1000 * MTU)).is_ok());
        for number in 1..=INITIAL_WINDOW {
            let sent = send(&mut rc);
            assert_eq!(
                sent.map(|sent| sent.ack_req),
                Some(number % (INITIAL_WINDOW / 2) == 0)
            );
        }
        assert_eq!(send(&mut rc), None);
    }

    #[test]
    fn max_rd_atomic_limits_reads_and_fence_waits() {
        let mut rc = requester(Transport::Rc, 5);
        let fenced = SendWr {
            fence: true,
            ..wr(SendOp::Send, 0)
        };
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU), fenced]);
        let sent = send(&mut rc);
        assert_eq!(sent.map(|sent| sent.opcode), Some(Opcode::RcReadRequest));
        assert_eq!(sent.map(|sent| sent.len), Some(0));
        assert_eq!(
            sent.and_then(|sent| sent.reth).map(|reth| reth.len),
            Some(3 * MTU)
        );
        assert_eq!(rc.next_psn().get(), 3);
        assert_eq!(send(&mut rc), None);

        let mut rc = requester(Transport::Rc, 5);
        post(&mut rc, &[wr(SendOp::Read, 0); 3]);
        assert!(send(&mut rc).is_some() && send(&mut rc).is_some());
        assert_eq!(send(&mut rc), None);
    }

    #[test]
    fn read_request_and_local_operation_carry_no_data() {
        let mut rc = requester(Transport::Rc, 3);
        assert!(!rc.has_data_to_send());
        post_ops(&mut rc, &[SendOp::Read, SendOp::Write], 8);
        post(&mut rc, &[wr(SendOp::LocalInv, 0)]);
        for has_data in [false, true, false] {
            assert_eq!(rc.has_data_to_send(), has_data);
            let _ = send(&mut rc);
        }
    }

    #[test]
    fn drain_finishes_started_message() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 2 * MTU); 2]);
        assert!(send(&mut rc).is_some());
        rc.drain();
        assert!(!rc.is_drained());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        assert_eq!(send(&mut rc), None);
        rc.resume();
        assert!(send(&mut rc).is_some());
    }

    #[test]
    fn local_error_is_deferred_while_drained() {
        let mut rc = requester(Transport::Rc, 3);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc).is_some());
        post(&mut rc, &[wr(SendOp::Send, 0); 2]);
        rc.local_error(1, Status::LocProt);
        rc.drain();
        let kind = acknowledge(&mut rc, 0, Syndrome::ACK);
        assert_eq!(kind, ResponseKind::Ack);
        assert!(rc.poll_completion().is_some() && rc.poll_completion().is_none());
        assert!(rc.is_drained() && !rc.take_error());
        rc.resume();
        assert!(rc.take_error());
        for status in [Status::LocProt, Status::WrFlush] {
            assert_eq!(rc.poll_completion().map(|end| end.status), Some(status));
        }
    }

    #[test]
    fn read_with_max_rd_atomic_0_fails_on_resume() {
        let mut rc = requester(Transport::Rc, 3);
        rc.drain();
        post_ops(&mut rc, &[SendOp::Send, SendOp::Read, SendOp::Send], 0);
        adjust(&mut rc, |params| params.max_rd_atomic = 0);
        rc.resume();
        assert!(send(&mut rc).is_some_and(|sent| sent.ack_req));
        assert_eq!(send(&mut rc), None);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        for status in [Status::Success, Status::LocQpOp, Status::WrFlush] {
            assert_eq!(rc.poll_completion().map(|end| end.status), Some(status));
        }
    }

    #[test]
    fn solicited_only_if_recv_wqe_is_consumed() {
        for (op, solicited) in [
            (SendOp::Send, true),
            (SendOp::SendInv, true),
            (SendOp::WriteImm, true),
            (SendOp::Write, false),
            (SendOp::Read, false),
            (SendOp::FetchAdd, false),
        ] {
            let mut rc = requester(Transport::Rc, 1);
            let wr = SendWr {
                solicited: true,
                ..wr(op, 8)
            };
            assert!(rc.post(wr).is_ok());
            assert_eq!(send(&mut rc).map(|sent| sent.solicited), Some(solicited));
        }
    }
}
