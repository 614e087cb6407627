// SPDX-License-Identifier: GPL-2.0

//! Rollback of packets that the network stack did not accept (RC).
//!
//! The driver passes several packets to the network stack at once, and learns only then whether a
//! queue below had room. So it saves the position of the first packet, reports each one as sent
//! when it has built it, and takes all of them back if they are refused. No other call may come in
//! between.

use core::ops::DerefMut;

use super::{
    ack_request::AckRequests,
    retry::Timers,
    transmit::Step,
    window::Window,
    Requester,
    Slot, //
};
use crate::psn::Psn;

/// A position in the sequence of packets; see [`Requester::checkpoint`].
pub struct Checkpoint {
    window: Window,
    acks: AckRequests,
    timers: Timers,
    outstanding: u8,
    begun: usize,
    send: usize,
}

impl Window {
    /// Returns whether the packet with PSN `psn` was refused and not sent since, so that only a
    /// copy of it may have left.
    #[inline]
    pub(super) fn was_refused(&self, psn: Psn) -> bool {
        !psn.is_before(self.max()) && psn.is_before(self.refused)
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the position of the next packet.
    #[inline]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            window: self.window,
            acks: self.acks,
            timers: self.retry.timers(),
            outstanding: self.explicit.outstanding(),
            begun: self.queue.begun(),
            send: self.queue.next(),
        }
    }

    /// Takes back all packets since `checkpoint`: they were reported as sent, and were refused.
    ///
    /// Some of them may have left nevertheless, as copies (tc mirred) or the first ones of a train
    /// that a device has split. A READ request may be shorter when it is sent again. The responses
    /// to its copy then end at another PSN. The peer may acknowledge packets that are not sent yet.
    ///
    /// RC only. Since [`Requester::checkpoint`], only [`Requester::poll_transmit`] and
    /// [`Requester::transmitted`] may have been called.
    #[cold]
    pub fn take_back(&mut self, checkpoint: &Checkpoint) {
        for slot in checkpoint.send..self.queue.begun() {
            self.repeat(slot);
        }
        let end = self.window.max();
        self.window = checkpoint.window;
        self.window.refused.advance_to(end);
        self.acks = checkpoint.acks;
        self.retry.restore(checkpoint.timers);
        self.explicit.restore(checkpoint.outstanding);
        self.queue.restore(checkpoint.begun, checkpoint.send);
    }

    /// Handles the refusal of a packet by a full queue of this host: halves the window once for all
    /// packets in flight, as for a loss (as TCP does: `tcp_enter_cwr()`).
    ///
    /// A packet that was taken back is not in flight. The next packet is the one that was refused,
    /// or the first of those that were taken back.
    #[cold]
    pub fn on_refusal(&mut self) {
        if let Some(step) = self.next_step() {
            self.note_refused(&step);
        }
        if self.is_active() && !self.window.is_empty() {
            self.window.halve_once();
        }
    }

    /// Accounts for a packet that was refused, of which a copy may have left.
    fn note_refused(&mut self, step: &Step) {
        self.repeat(step.slot);
        if !step.is_probe() {
            if let Some(slot) = self.queue.get_mut(step.slot) {
                slot.part = slot.part_from(&self.window, step.psn);
            }
        }
        self.window.refused.advance_to(step.end());
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_checkpoint))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Sends up to `N` packets.
    fn send_all<const N: usize>(rc: &mut Half) -> [Option<Transmit>; N] {
        [(); N].map(|()| send(rc))
    }

    #[test]
    fn packets_taken_back_are_sent_again_as_new() {
        let mut rc = requester(Transport::Rc, 4);
        // As many READs as may be outstanding.
        for (op, len) in [
            (SendOp::Write, 2 * MTU),
            (SendOp::Read, 3 * MTU),
            (SendOp::Read, 1),
            (SendOp::Send, 1),
        ] {
            assert!(rc.post(wr(op, len)).is_ok());
        }
        let checkpoint = rc.checkpoint();
        let first: [_; 6] = send_all(&mut rc);
        assert!(first.iter().filter(|sent| sent.is_some()).count() == 5);
        assert!(rc.next_timeout().is_some());
        rc.take_back(&checkpoint);
        assert_eq!((rc.next_timeout(), rc.next_psn().get()), (None, 0));
        assert_eq!(send_all(&mut rc), first);
    }

    #[test]
    fn packets_before_the_checkpoint_stay_sent() {
        let mut rc = requester(Transport::Rc, 4);
        post(&mut rc, &[wr(SendOp::Send, MTU); 3]);
        assert!(send(&mut rc).is_some());
        let due = rc.next_timeout();
        let checkpoint = rc.checkpoint();
        assert!(send(&mut rc).is_some() && send(&mut rc).is_some());
        rc.take_back(&checkpoint);
        assert_eq!(rc.next_timeout(), due);
        acknowledge(&mut rc, 0, Syndrome::ACK);
        assert!(rc.poll_completion().is_some() && rc.poll_completion().is_none());
        let again: [_; 3] = send_all(&mut rc);
        assert_eq!(
            again.map(|sent| sent.map(|sent| sent.psn.get())),
            [Some(1), Some(2), None]
        );
    }

    /// Sends a packet, and returns how much a READ requests with it.
    fn read_len(rc: &mut Half) -> Option<u32> {
        send(rc)?.reth.map(|reth| reth.len)
    }

    /// Takes the first eight responses to a READ. The last of them has opcode `last`.
    fn take_responses(rc: &mut Half, last: Opcode) {
        for psn in 0..8 {
            let opcode = match psn {
                0 => Opcode::RcReadResponseFirst,
                7 => last,
                _ => Opcode::RcReadResponseMiddle,
            };
            take(rc, &piece(opcode, psn));
        }
    }

    #[test]
    fn responses_to_read_taken_back_are_accepted() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Read, 32 * MTU)).is_ok());
        rc.window.set_size(64);
        let checkpoint = rc.checkpoint();
        assert_eq!(read_len(&mut rc), Some(32 * MTU));
        rc.take_back(&checkpoint);
        // A smaller window makes smaller parts.
        rc.window.set_size(16);
        assert_eq!(read_len(&mut rc), Some(8 * MTU));
        take_responses(&mut rc, Opcode::RcReadResponseMiddle);
    }

    /// The peer drops a repetition that is longer than the copy that it has received.
    #[test]
    fn part_of_read_taken_back_does_not_grow() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Read, 32 * MTU)).is_ok());
        rc.window.set_size(16);
        let checkpoint = rc.checkpoint();
        assert_eq!(read_len(&mut rc), Some(8 * MTU));
        rc.take_back(&checkpoint);
        // A larger window makes larger parts, but not of this one.
        rc.window.set_size(64);
        assert_eq!(read_len(&mut rc), Some(8 * MTU));
        take_responses(&mut rc, Opcode::RcReadResponseLast);
        // The rest up to a multiple of the new size.
        assert_eq!(read_len(&mut rc), Some(24 * MTU));
    }

    #[test]
    fn responses_to_copy_of_refused_read_are_accepted() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Read, 32 * MTU)).is_ok());
        for (size, part) in [(64, 32), (16, 8), (64, 8)] {
            rc.window.set_size(size);
            let next = rc.poll_transmit().and_then(|next| next.reth);
            assert_eq!(next.map(|reth| reth.len), Some(part * MTU));
            rc.on_refusal();
        }
        assert_eq!(read_len(&mut rc), Some(8 * MTU));
        take_responses(&mut rc, Opcode::RcReadResponseMiddle);
    }

    #[test]
    fn response_to_copy_of_refused_probe_is_accepted() {
        let mut rc = measured(8);
        assert!(rc.post(wr(SendOp::Read, 8 * MTU)).is_ok());
        assert_eq!(read_len(&mut rc), Some(8 * MTU));
        let due = rc.next_timeout().unwrap();
        assert_eq!(rc.on_timeout(due), Expired::Probe);
        rc.on_refusal();
        let response = read_response(Opcode::RcReadResponseOnly, 1, MTU);
        assert!(respond(&mut rc, &response).place.is_some());
    }

    #[test]
    fn request_taken_back_has_not_started() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 1)).is_ok());
        let checkpoint = rc.checkpoint();
        let first = send(&mut rc);
        assert!(first.is_some());
        rc.take_back(&checkpoint);
        rc.drain();
        assert!(rc.is_drained());
        assert_eq!(send(&mut rc), None);
        rc.resume();
        assert_eq!(send(&mut rc), first);
    }

    /// The peer has received copies of all packets, so it acknowledges more than the window has
    /// room for now.
    #[test]
    fn copies_of_packets_taken_back_may_be_acknowledged() {
        let mut rc = requester(Transport::Rc, 1);
        assert!(rc.post(wr(SendOp::Send, 40 * MTU)).is_ok());
        let sent: [_; 4] = send_all(&mut rc);
        assert!(sent.iter().all(Option::is_some));
        let checkpoint = rc.checkpoint();
        let refused: [_; 12] = send_all(&mut rc);
        assert!(refused.iter().all(Option::is_some));
        rc.take_back(&checkpoint);
        rc.on_refusal();
        // The window has room for no other packet, so the last one is sent again.
        let probe: [_; 2] = send_all(&mut rc);
        assert_eq!(
            probe.map(|sent| sent.map(|sent| sent.psn.get())),
            [Some(3), None]
        );
        // No copy has this PSN.
        assert_eq!(
            acknowledge(&mut rc, 16, Syndrome::ACK),
            ResponseKind::Duplicate
        );
        assert_eq!(acknowledge(&mut rc, 15, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(rc.oldest_psn(), Psn::new(4));
        let again = send(&mut rc);
        assert_eq!(again.map(|sent| sent.psn.get()), Some(4));
        // The peer acknowledges the duplicate.
        assert_eq!(acknowledge(&mut rc, 15, Syndrome::ACK), ResponseKind::Ack);
        assert_eq!(rc.oldest_psn(), Psn::new(5));
    }

    #[test]
    fn copy_of_single_packet_that_was_refused_may_be_acknowledged() {
        for psn in [4, 5] {
            let mut rc = requester(Transport::Rc, 1);
            assert!(rc.post(wr(SendOp::Send, 40 * MTU)).is_ok());
            let sent: [_; 4] = send_all(&mut rc);
            assert!(sent.iter().all(Option::is_some));
            rc.on_refusal();
            let is_refused = psn == 4;
            let kind = acknowledge(&mut rc, psn, Syndrome::ACK);
            assert_eq!(matches!(kind, ResponseKind::Ack), is_refused);
            let una = if is_refused { 4 } else { 0 };
            assert_eq!(rc.oldest_psn(), Psn::new(una));
        }
    }

    /// The requests before that packet were executed, but it was not sent yet.
    #[test]
    fn nak_to_copy_acknowledges_requests_before() {
        for syndrome in [
            Syndrome::Rnr { timer: 1 },
            Syndrome::Nak(NakCode::PsnSequence),
        ] {
            let mut rc = requester(Transport::Rc, 2);
            assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
            assert!(send(&mut rc).is_some());
            let checkpoint = rc.checkpoint();
            assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
            assert!(send(&mut rc).is_some());
            rc.take_back(&checkpoint);
            assert_eq!(acknowledge(&mut rc, 1, syndrome), ResponseKind::Ack);
            assert!(rc.poll_completion().is_some() && rc.poll_completion().is_none());
            assert_eq!(send(&mut rc).map(|sent| sent.psn.get()), Some(1));
            // Now it is not a copy.
            assert_ne!(acknowledge(&mut rc, 1, syndrome), ResponseKind::Ack);
        }
    }

    #[test]
    fn acknowledgment_of_copy_behind_read_shows_missing_response() {
        let mut rc = requester(Transport::Rc, 3);
        for op in [SendOp::Send, SendOp::Read] {
            assert!(rc.post(wr(op, 1)).is_ok());
            assert!(send(&mut rc).is_some());
        }
        let checkpoint = rc.checkpoint();
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc).is_some());
        rc.take_back(&checkpoint);
        let ack = Frame::ack(2, Syndrome::ACK);
        assert_eq!(respond(&mut rc, &ack).outcome, ResponseKind::Gap);
        assert!(rc.poll_completion().is_some() && rc.poll_completion().is_none());
        assert_eq!(next_read(&mut rc), Some((1, 1)));
    }

    #[test]
    fn refusal_halves_window_once_if_packets_are_in_flight() {
        // The packets in flight, whether they are flushed, and the window afterwards.
        for (packets, is_flushed, after) in [(40, false, 20), (40, true, 64), (0, false, 64)] {
            let mut rc = requester(Transport::Rc, 1);
            rc.window.set_size(64);
            if packets > 0 {
                post(&mut rc, &[wr(SendOp::Send, packets * MTU)]);
            }
            for _ in 0..packets {
                assert!(send(&mut rc).is_some());
            }
            assert_eq!(rc.snapshot().window, 64);
            if is_flushed {
                rc.flush();
            }
            for _ in 0..2 {
                rc.on_refusal();
            }
            assert_eq!(rc.snapshot().window, after);
        }
    }

    #[test]
    fn timer_of_packet_before_checkpoint_goes_on() {
        let mut rc = requester(Transport::Rc, 2);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert_eq!(send(&mut rc).map(|sent| sent.ack_req), Some(true));
        let due = Some(NOW.after(TIMEOUT_NS));
        assert_eq!(rc.snapshot().ack_due, due);
        let checkpoint = rc.checkpoint();
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc).is_some());
        rc.take_back(&checkpoint);
        assert_eq!(rc.snapshot().ack_due, due);
    }

    #[test]
    fn round_trip_of_packet_taken_back_is_not_measured() {
        let mut rc = untimed(2);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        let checkpoint = rc.checkpoint();
        assert!(send(&mut rc).is_some());
        rc.take_back(&checkpoint);
        let later = NOW.after(100 * MIN_RTO_NS);
        let again = rc.poll_transmit().unwrap();
        rc.transmitted(later, &again);
        acknowledge_at(&mut rc, later, 0, Syndrome::ACK);
        assert!(rc.post(wr(SendOp::Send, 0)).is_ok());
        assert!(send(&mut rc).is_some());
        assert_eq!(rc.next_timeout(), Some(NOW.after(MIN_RTO_NS)));
    }
}
