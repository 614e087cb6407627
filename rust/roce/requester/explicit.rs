// SPDX-License-Identifier: GPL-2.0

//! Explicit responses: to READs, atomics, ATOMIC WRITEs and FLUSHes (RC).

use core::ops::DerefMut;

use super::{
    Requester,
    Response,
    ResponseKind,
    Slot, //
};
use crate::{
    psn::Psn,
    time::Instant,
    wire::{
        Packet,
        Syndrome, //
    },
    wr::Status, //
};

/// The place of the data of a response in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot of the request.
    pub slot: u16,
    /// The offset of the data in the message, in bytes.
    pub offset: u32,
    /// The length of the data in bytes.
    pub len: u32,
    /// The original value of an atomic operation, which is placed in host byte order; `None` if the
    /// payload is placed.
    pub found: Option<u64>,
}

/// The effect that a response has on the slot at `done` once its data was placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accept {
    /// True if the response is the last one of a part of a READ, or the response to a request other
    /// than a READ.
    ends_part: bool,
    /// True if the response completes the request.
    ends: bool,
}

/// The outstanding requests with an explicit response.
#[derive(Default)]
pub(super) struct Explicit {
    outstanding: u8,
    /// The response whose data the driver is placing.
    accept: Option<Accept>,
}

impl Explicit {
    /// Returns the number of outstanding requests. Each part of a READ counts as one.
    #[inline]
    pub(super) fn outstanding(&self) -> u8 {
        self.outstanding
    }

    /// Returns whether any request is outstanding.
    #[inline]
    pub(super) fn is_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Returns whether another request may be sent if `max` may be outstanding.
    #[inline]
    pub(super) fn has_room(&self, max: u8) -> bool {
        self.outstanding < max
    }

    /// Accounts for a request that was sent.
    #[inline]
    pub(super) fn requested(&mut self) {
        self.outstanding = self.outstanding.saturating_add(1);
    }

    /// Goes back to `outstanding` requests, because the later ones were not sent.
    pub(super) fn restore(&mut self, outstanding: u8) {
        self.outstanding = outstanding;
    }

    /// Forgets the response whose data the driver is placing.
    #[inline]
    pub(super) fn forget_placement(&mut self) {
        self.accept = None;
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Reports the result of placing the data of the last response.
    ///
    /// This is the one for which [`Requester::on_response`] returned a [`Placement`]. On error, the
    /// request completes with the status.
    #[inline]
    pub fn placed(&mut self, now: Instant, result: Result<(), Status>) {
        let Some(accept) = self.explicit.accept.take() else {
            return;
        };
        match result {
            Ok(()) => self.accepted(now, accept),
            Err(status) => self.fail(status),
        }
    }

    /// Handles an explicit response.
    pub(super) fn on_explicit(&mut self, now: Instant, pkt: &Packet<'_>) -> Response {
        let psn = pkt.psn();
        if !self.window.is_unacknowledged(psn) {
            // No other response can be a duplicate. If it restarted the timers, an attacker could
            // delay them with forged responses.
            if self.explicit.is_outstanding() && self.window.was_acknowledged(psn) {
                self.peer_is_busy(now);
            }
            return ResponseKind::Duplicate.into();
        }
        let Some((index, first_psn)) = self.request_of(psn) else {
            return self.bad_response();
        };
        // An explicit response acknowledges the requests before its own, up to the first one whose
        // explicit response is missing.
        if index != self.queue.done() && !self.acknowledge(now, first_psn, true) {
            return self.on_early(now, psn);
        }
        if !self.is_active() {
            return ResponseKind::Ack.into();
        }
        if psn != self.window.una() {
            return self.on_early(now, psn);
        }
        self.accept_explicit(now, pkt)
    }

    /// Handles the explicit response at `una`.
    fn accept_explicit(&mut self, now: Instant, pkt: &Packet<'_>) -> Response {
        let done = self.queue.done();
        let (Some(number), Some(slot)) = (self.queue.number(done), self.queue.get(done)) else {
            return ResponseKind::Dropped.into();
        };
        let is_read = slot.is_read();
        let psn = self.window.una();
        let index = slot.first_psn.forward(psn);
        let offset = index.wrapping_mul(self.params.mtu);
        let (len, ends_part) = if is_read {
            let rest = slot.wr.length.saturating_sub(offset);
            (rest.min(self.params.mtu), slot.read_part(index) == 1)
        } else {
            (0, true)
        };
        let ends = index.wrapping_add(1) == slot.packets();
        let accept = Accept { ends_part, ends };
        let found = pkt.found();
        let positive = match pkt.aeth() {
            Some(aeth) => matches!(aeth.syndrome, Syndrome::Ack { .. }),
            None => true,
        };
        // The data is placed by PSN, so the opcode only shows where the response ends. Its start is
        // not checked: C rxe begins the response to a repeated request with MIDDLE. The responses
        // to a part that was requested again may come in pieces of any size.
        let ends_piece = pkt.opcode().ends_message();
        let fits = ends_piece == ends_part || slot.is_repeated && (ends_piece || !ends);
        if !fits
            || pkt.payload_len() != len
            || found.is_some() != slot.wr.op.is_atomic()
            || !positive
        {
            return self.bad_response();
        }
        if !ends_piece && self.probe.ends_at(psn.next()) {
            // This is a late response to the original request. The one to the probe would be a LAST
            // or an ONLY.
            self.probe.stop();
        }
        // FLUSH and ATOMIC WRITE return no data.
        let place = (is_read || found.is_some()).then_some(Placement {
            slot: number,
            offset,
            len: if is_read { len } else { slot.wr.length },
            found,
        });
        if place.is_some() {
            self.explicit.accept = Some(accept);
        } else {
            self.accepted(now, accept);
        }
        Response {
            place,
            outcome: ResponseKind::ReadResponse,
            is_early: false,
        }
    }

    /// Advances past a response whose data, if any, was placed.
    #[inline]
    fn accepted(&mut self, now: Instant, accept: Accept) {
        let before = self.window.una();
        if accept.ends_part {
            // After a rewind, late responses may arrive before they are requested again. The count
            // is 0 then, because requests are sent in order.
            self.explicit.outstanding = self.explicit.outstanding.saturating_sub(1);
        }
        if accept.ends {
            self.queue.succeed();
        }
        self.progressed(now, before, before.next(), false);
        if self.window.is_empty() {
            // A response to a piece does not decrement the count, so clear it once nothing is in
            // flight.
            self.explicit.outstanding = 0;
        }
        self.fail_if_due();
    }

    /// Returns the index and the first PSN of the request that the response with PSN `psn` is for.
    ///
    /// `psn` must be unacknowledged. Returns `None` if that request has no explicit response.
    fn request_of(&self, psn: Psn) -> Option<(usize, Psn)> {
        let index = self.slot_of(psn)?;
        let slot = self.queue.get(index)?;
        slot.has_explicit_response()
            .then_some((index, slot.first_psn))
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_explicit))]
mod tests {
    use super::*;
    use crate::testutil::*;

    fn reply(psn: u32, kind: ReplyKind) -> Frame {
        Frame::reply(kind, psn, Syndrome::ACK)
    }

    #[test]
    fn read_response_is_placed_and_acks_earlier_requests() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Send, 0), wr(SendOp::Read, MTU + 1)]);
        assert_eq!(send_all(&mut rc), 2);
        let first = read_response(Opcode::RcReadResponseFirst, 1, MTU);
        let place = respond(&mut rc, &first).place;
        assert_eq!(
            place.map(|place| (place.slot, place.offset, place.len)),
            Some((1, 0, MTU))
        );
        assert_eq!(status(&mut rc), Some(Status::Success));
        // The response may be passed in again until its data is placed.
        assert_eq!(respond(&mut rc, &first).place, place);
        rc.placed(NOW, Ok(()));
        assert_eq!(respond(&mut rc, &first).outcome, ResponseKind::Duplicate);
        let last = read_response(Opcode::RcReadResponseLast, 2, 1);
        let place = respond(&mut rc, &last).place;
        assert_eq!(status(&mut rc), None);
        rc.placed(NOW, Ok(()));
        assert_eq!(
            place.map(|place| (place.slot, place.offset, place.len)),
            Some((1, MTU, 1))
        );
        assert_eq!(status(&mut rc), Some(Status::Success));
    }

    /// Makes a send half that has requested a READ of 9 bytes.
    fn reading() -> Half {
        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Read, 9)]);
        assert_eq!(send_all(&mut rc), 1);
        rc
    }

    #[test]
    fn another_response_or_flush_ends_placement() {
        for (flushes, expected) in [(false, None), (true, Some(Status::WrFlush))] {
            let mut rc = reading();
            let only = read_response(Opcode::RcReadResponseOnly, 0, 9);
            assert!(respond(&mut rc, &only).place.is_some());
            if flushes {
                rc.flush();
            } else {
                let stale = acknowledge(&mut rc, 7, Syndrome::ACK);
                assert_eq!(stale, ResponseKind::Duplicate);
            }
            rc.placed(NOW, Ok(()));
            assert_eq!(status(&mut rc), expected);
        }
    }

    #[test]
    fn missing_read_response_is_requested_again() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, 3 * MTU), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 0));
        // Both of these show that response 1 was lost, but only the first has it requested again.
        let last = read_response(Opcode::RcReadResponseLast, 2, MTU);
        assert_eq!(respond(&mut rc, &last).outcome, ResponseKind::Gap);
        let again = rc.poll_transmit();
        let reth = again.and_then(|again| again.reth);
        assert_eq!(
            reth.map(|reth| (reth.va, reth.len)),
            Some((0x1000 + u64::from(MTU), 2 * MTU))
        );
        assert_eq!(again.map(|again| again.psn), Some(Psn::new(1)));
        assert_eq!(send_all(&mut rc), 2);
        assert_eq!(acknowledge(&mut rc, 3, Syndrome::ACK), ResponseKind::Early);
        assert_eq!(send_all(&mut rc), 0);
    }

    #[test]
    fn responses_after_lost_one_restart_timer() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, 9), wr(SendOp::Read, 9)]);
        assert_eq!(send_all(&mut rc), 2);
        let second = read_response(Opcode::RcReadResponseOnly, 1, 9);
        assert_eq!(respond(&mut rc, &second).outcome, ResponseKind::Gap);
        assert_eq!(send_all(&mut rc), 2);
        let due = NOW.after(TIMEOUT_NS);
        assert_eq!(rc.next_timeout(), Some(due));
        // The peer sent another response before it got to the repeated request.
        let before = NOW.after(TIMEOUT_NS - 1);
        let again = rc.on_response(before, &second.packet());
        assert_eq!(again.outcome, ResponseKind::Early);
        assert_eq!(rc.next_timeout(), Some(before.after(TIMEOUT_NS)));
        assert_eq!(rc.on_timeout(due), Expired::Nothing);
    }

    #[test]
    fn stray_responses_do_not_prevent_timeout() {
        let mut rc = reading();
        let stray = read_response(Opcode::RcReadResponseOnly, 0xff_ffff, 9);
        let mut now = NOW;
        let mut strays = 0;
        while rc.on_timeout(now) != Expired::Retry {
            let response = rc.on_response(now, &stray.packet());
            assert_eq!(response.outcome, ResponseKind::Duplicate);
            strays += 1;
            now = now.after(TIMEOUT_NS - 1);
        }
        assert_eq!(strays, 18);
    }

    #[test]
    fn stray_response_restarts_timer_only_for_some_time() {
        for (ns, is_restarted) in [(16 * TIMEOUT_NS - 1, true), (16 * TIMEOUT_NS, false)] {
            let mut rc = reading();
            let now = NOW.after(ns);
            let stray = read_response(Opcode::RcReadResponseOnly, 0xff_ffff, 9);
            rc.on_response(now, &stray.packet());
            let start = if is_restarted { now } else { NOW };
            assert_eq!(rc.next_timeout(), Some(start.after(TIMEOUT_NS)));
        }
    }

    #[test]
    fn response_that_cannot_be_a_duplicate_does_not_restart_timer() {
        let now = NOW.after(1);
        let mut rc = reading();
        // Ahead of all requests, and too far behind.
        for psn in [7, 0x80_0001, 0xff_bfff] {
            let stray = read_response(Opcode::RcReadResponseOnly, psn, 9);
            rc.on_response(now, &stray.packet());
            assert_eq!(rc.next_timeout(), Some(NOW.after(TIMEOUT_NS)));
        }

        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Send, 1)]);
        send(&mut rc);
        // No READ is outstanding.
        let stray = read_response(Opcode::RcReadResponseOnly, 0xff_ffff, 9);
        rc.on_response(now, &stray.packet());
        assert_eq!(rc.next_timeout(), Some(NOW.after(TIMEOUT_NS)));
    }

    #[test]
    fn read_data_placement_error_fails_read() {
        let mut rc = requester(Transport::Rc, 2);
        post(&mut rc, &[wr(SendOp::Read, 9), wr(SendOp::Send, 0)]);
        assert_eq!(send_all(&mut rc), 2);
        let only = read_response(Opcode::RcReadResponseOnly, 0, 9);
        assert!(respond(&mut rc, &only).place.is_some());
        rc.placed(NOW, Err(Status::LocProt));
        assert_eq!(status(&mut rc), Some(Status::LocProt));
        assert_eq!(status(&mut rc), Some(Status::WrFlush));
    }

    #[test]
    fn atomic_completes_only_on_atomic_ack() {
        let mut rc = requester(Transport::Rc, 3);
        let mut add = wr(SendOp::FetchAdd, 8);
        add.swap_add = 5;
        post(
            &mut rc,
            &[add, wr(SendOp::CompareSwap, 8), wr(SendOp::Send, 0)],
        );
        let sent = rc.poll_transmit();
        let expected = RareHeader::Atomic(crate::wire::AtomicEth {
            va: 0x1000,
            rkey: Rkey::new(7),
            swap_add: 5,
            compare: 0,
        });
        assert_eq!(sent.map(|sent| sent.rare), Some(expected));
        assert_eq!(sent.map(|sent| (sent.len, sent.ack_req)), Some((0, false)));
        assert_eq!(send_all(&mut rc), 3);
        // The acknowledgment of a later request shows that the response was lost.
        assert_eq!(acknowledge(&mut rc, 2, Syndrome::ACK), ResponseKind::Gap);
        assert_eq!(send_all(&mut rc), 3);
        let place = respond(&mut rc, &reply(0, ReplyKind::Found(42))).place;
        let place = place.map(|place| (place.slot, place.offset, place.len, place.found));
        assert_eq!(place, Some((0, 0, 8, Some(42))));
        assert_eq!(status(&mut rc), None);
        rc.placed(NOW, Ok(()));
        assert_eq!(status(&mut rc), Some(Status::Success));
        // A response of the wrong kind fails the request.
        let bad = respond(&mut rc, &reply(1, ReplyKind::Done)).outcome;
        assert_eq!(bad, ResponseKind::BadResponse);
        assert_eq!(status(&mut rc), Some(Status::BadResp));
    }

    #[test]
    fn flush_and_atomic_write_complete_on_empty_response() {
        for op in [SendOp::Flush, SendOp::AtomicWrite] {
            let mut rc = requester(Transport::Rc, 1);
            post(&mut rc, &[wr(op, 8)]);
            assert_eq!(send_all(&mut rc), 1);
            assert_eq!(acknowledge(&mut rc, 0, Syndrome::ACK), ResponseKind::Gap);
            let response = respond(&mut rc, &reply(0, ReplyKind::Done));
            assert_eq!(response.outcome, ResponseKind::ReadResponse);
            assert_eq!(response.place, None);
            assert_eq!(status(&mut rc), Some(Status::Success));
        }
    }

    /// Sends a READ of `length` bytes, handles its responses, and returns the outcome of the last
    /// one.
    fn outcome_of(length: u32, responses: &[Frame]) -> ResponseKind {
        let mut rc = requester(Transport::Rc, 1);
        post(&mut rc, &[wr(SendOp::Read, length)]);
        assert_eq!(send_all(&mut rc), 1);
        let mut outcome = ResponseKind::Dropped;
        for response in responses {
            let response = respond(&mut rc, response);
            rc.placed(NOW, Ok(()));
            outcome = response.outcome;
        }
        let bad = outcome == ResponseKind::BadResponse;
        assert_eq!(status(&mut rc), bad.then_some(Status::BadResp));
        outcome
    }

    #[test]
    fn read_response_of_wrong_position_or_length_is_fatal() {
        let short = read_response(Opcode::RcReadResponseOnly, 0, 8);
        assert_eq!(outcome_of(9, &[short]), ResponseKind::BadResponse);
        let first = || read_response(Opcode::RcReadResponseFirst, 0, MTU);
        let early = [
            read_response(Opcode::RcReadResponseOnly, 0, MTU),
            read_response(Opcode::RcReadResponseLast, 0, MTU),
        ];
        for response in early {
            assert_eq!(outcome_of(2 * MTU, &[response]), ResponseKind::BadResponse);
        }
        for opcode in [Opcode::RcReadResponseFirst, Opcode::RcReadResponseMiddle] {
            let late = read_response(opcode, 1, MTU);
            let outcome = outcome_of(2 * MTU, &[first(), late]);
            assert_eq!(outcome, ResponseKind::BadResponse);
        }
        assert_eq!(outcome_of(2 * MTU, &[first()]), ResponseKind::ReadResponse);
    }

    #[test]
    fn negative_explicit_response_is_fatal() {
        let bad = [
            Syndrome::Nak(NakCode::RemoteAccess),
            Syndrome::Nak(NakCode::PsnSequence),
            Syndrome::Rnr { timer: 1 },
            Syndrome::Reserved,
        ];
        for syndrome in bad {
            let mut rc = requester(Transport::Rc, 1);
            post(&mut rc, &[wr(SendOp::FetchAdd, 8)]);
            assert_eq!(send_all(&mut rc), 1);
            let frame = Frame::reply(ReplyKind::Found(1), 0, syndrome);
            let outcome = respond(&mut rc, &frame).outcome;
            assert_eq!(outcome, ResponseKind::BadResponse);
            assert_eq!(status(&mut rc), Some(Status::BadResp));
        }
    }
}
