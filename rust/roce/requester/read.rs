// SPDX-License-Identifier: GPL-2.0

//! Parts of a READ (RC).
//!
//! A READ is requested in parts, and each part is a READ request packet. Parts are aligned in the
//! message: each one ends at a multiple of its size, or with the message. So those that are
//! outstanding together need no record but their common size, and a READ whose part size changes
//! waits until all responses have arrived.

use core::ops::DerefMut;

use super::{
    slot::read_part,
    transmit::Step,
    window::Window,
    Requester,
    Slot, //
};
use crate::psn::Psn;

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the number of responses that the READ in `slot` requests with the packet at `step`,
    /// or `None` if it has to wait for responses to earlier parts.
    ///
    /// A new part may be outstanding together with parts of the same size. A part that is requested
    /// again may not: C rxe moves the start of a READ forward when it repeats responses, and drops
    /// a request for earlier ones. If the window is smaller now, the part is requested in pieces.
    pub(super) fn part_at(&self, slot: &Slot, step: &Step) -> Option<u32> {
        let is_new = step.psn == self.window.max();
        let is_oldest = step.psn == self.window.una();
        let size = self.window.read_part();
        let may_overlap = step.index == 0 || is_new && size == slot.part;
        if !is_oldest && !may_overlap {
            return None;
        }
        if is_oldest && self.probe.was_sent() {
            // The peer may have received only the probe. It drops a duplicate READ that is longer
            // than the original.
            return Some(1);
        }
        let part = slot.part_from(&self.window, step.psn);
        Some(read_part(step.index, step.packets, part))
    }
}

impl Slot {
    /// Returns the size of a part of a READ that begins at `psn`.
    ///
    /// The peer may have received a request for the part: it was sent before, or refused by a queue
    /// of this host although a copy has left. The peer drops one that is longer than that.
    #[inline]
    pub(super) fn part_from(&self, window: &Window, psn: Psn) -> u32 {
        let size = window.read_part();
        // The size is 0 before the first part was sent or refused.
        let again = self.part > 0 && (psn != window.max() || window.was_refused(psn));
        if again {
            size.min(self.part)
        } else {
            size
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_read))]
mod tests {
    use crate::requester::window::INITIAL_WINDOW;
    use crate::testutil::*;

    /// The size of the parts while the window has its initial size.
    const PART: u32 = INITIAL_WINDOW as u32 / 2;

    /// Makes a send half with a window of `size` packets, and with room for `reads` parts.
    fn reader(slots: usize, size: u16, reads: u8) -> Half {
        let mut rc = requester(Transport::Rc, slots);
        adjust(&mut rc, |params| params.max_rd_atomic = reads);
        rc.window.set_size(size);
        rc
    }

    /// Handles the responses with PSNs from `first` to `last`, the last one of its part.
    fn respond_all(rc: &mut Half, first: u32, last: u32) {
        for psn in first..=last {
            let opcode = match psn {
                psn if psn == last => Opcode::RcReadResponseLast,
                psn if psn == first => Opcode::RcReadResponseFirst,
                _ => Opcode::RcReadResponseMiddle,
            };
            take(rc, &piece(opcode, psn));
        }
    }

    #[test]
    fn next_part_is_requested_before_the_last_response() {
        let mut rc = reader(1, INITIAL_WINDOW, 16);
        post(&mut rc, &[wr(SendOp::Read, 100 * MTU)]);
        assert_eq!(next_read(&mut rc), Some((0, PART)));
        assert_eq!(next_read(&mut rc), Some((PART, PART)));
        assert_eq!(next_read(&mut rc), None);
        // The window grows to 24 packets, for which new parts have 16.
        respond_all(&mut rc, 0, PART - 1);
        assert_eq!(next_read(&mut rc), None);
        rc.window.set_size(INITIAL_WINDOW);
        assert_eq!(next_read(&mut rc), Some((2 * PART, PART)));
        assert_eq!(next_read(&mut rc), None);
    }

    #[test]
    fn parts_count_as_reads() {
        let mut rc = reader(1, INITIAL_WINDOW, 1);
        post(&mut rc, &[wr(SendOp::Read, 100 * MTU)]);
        assert_eq!(next_read(&mut rc), Some((0, PART)));
        assert_eq!(next_read(&mut rc), None);
        respond_all(&mut rc, 0, PART - 1);
        assert!(next_read(&mut rc).is_some());
    }

    #[test]
    fn part_of_another_size_waits_for_all_responses() {
        let mut rc = reader(1, INITIAL_WINDOW, 16);
        post(&mut rc, &[wr(SendOp::Read, 200 * MTU)]);
        assert_eq!(next_read(&mut rc), Some((0, PART)));
        rc.window.set_size(64);
        assert_eq!(next_read(&mut rc), None);
        respond_all(&mut rc, 0, PART - 1);
        // The parts are 32 packets long now; the first one ends at a multiple of that.
        assert_eq!(next_read(&mut rc), Some((PART, 32 - PART)));
        assert_eq!(next_read(&mut rc), Some((32, 32)));
    }

    #[test]
    fn part_that_is_requested_again_is_not_longer() {
        let mut rc = reader(2, 64, 1);
        // The window grows to 127 packets, and with the first response to 128.
        post(&mut rc, &[wr(SendOp::Write, 63 * MTU)]);
        assert_eq!(send_all(&mut rc), 63);
        acknowledge(&mut rc, 62, Syndrome::ACK);
        post(&mut rc, &[wr(SendOp::Read, 256 * MTU)]);
        assert_eq!(requested(&mut rc), Some((63, 64)));
        take(&mut rc, &piece(Opcode::RcReadResponseFirst, 63));
        acknowledge(&mut rc, 64, Syndrome::Rnr { timer: 1 });
        rc.on_timeout(rc.next_timeout().unwrap());
        assert_eq!(requested(&mut rc), Some((64, 63)));
    }

    #[test]
    fn part_that_is_requested_again_fits_into_the_window() {
        let mut rc = reader(1, 96, 16);
        post(&mut rc, &[wr(SendOp::Read, 64 * MTU)]);
        assert_eq!(requested(&mut rc), Some((0, 64)));
        rc.on_timeout(rc.next_timeout().unwrap());
        assert_eq!(requested(&mut rc), Some((0, 16)));
        // The other piece waits, although there is room.
        rc.window.set_size(96);
        assert_eq!(requested(&mut rc), None);
    }

    #[test]
    fn read_waits_until_its_responses_fit() {
        let mut rc = reader(2, 64, 16);
        post(&mut rc, &[wr(SendOp::Read, 64 * MTU), wr(SendOp::Read, 1)]);
        assert_eq!(next_read(&mut rc), Some((0, 32)));
        assert_eq!(next_read(&mut rc), Some((32, 32)));
        assert_eq!(next_read(&mut rc), None);
    }
}
