// SPDX-License-Identifier: GPL-2.0

//! Posted work requests and the ring that holds them.

use core::ops::DerefMut;

use crate::{
    psn::Psn,
    wr::{
        SendOp,
        SendWr,
        Status, //
    }, //
};

/// Storage for one outstanding work request.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    pub(super) wr: SendWr,
    /// The PSN of the first packet, once the request has started.
    pub(super) first_psn: Psn,
    /// The PSN of the last packet, or of the last response, once the request has started.
    pub(super) last_psn: Psn,
    /// The size of the parts in which a READ is requested, in PSNs; a power of two.
    pub(super) part: u32,
    /// The completion status, once the request has finished or must fail.
    pub(super) status: Status,
    /// True if a packet was sent again. A response to a READ may then end a piece of a part.
    pub(super) is_repeated: bool,
}

impl Slot {
    /// Returns whether the request is an RDMA READ.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        self.wr.op == SendOp::Read
    }

    /// Returns whether the request needs an explicit response: an acknowledgment of a later request
    /// does not complete it.
    #[inline]
    pub(super) fn has_explicit_response(&self) -> bool {
        self.wr.op.has_explicit_response()
    }

    /// Returns whether the request is a SEND or WRITE: not local, and without an explicit response.
    #[inline]
    pub(super) fn carries_data(&self) -> bool {
        !self.wr.op.is_local() && !self.has_explicit_response()
    }

    /// Returns the number of PSNs of the request, at least one.
    ///
    /// The request must have started, and must not be local.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.first_psn.forward(self.last_psn).wrapping_add(1)
    }

    /// Returns the most PSNs that a READ may request again from packet `index` on.
    ///
    /// That packet must be in a part that is outstanding: all of these have the size `part`.
    #[inline]
    pub(super) fn read_part(&self, index: u32) -> u32 {
        read_part(index, self.packets(), self.part)
    }
}

/// Returns the number of PSNs that a READ of `packets` requests from packet `index` on, in parts of
/// `part` PSNs.
///
/// Parts end at multiples of their size within the message, so a piece of a part that is requested
/// again does not go beyond the part: the responder repeats only responses to earlier requests.
#[inline]
pub(super) fn read_part(index: u32, packets: u32, part: u32) -> u32 {
    let used = index & part.wrapping_sub(1);
    part.wrapping_sub(used).min(packets.saturating_sub(index))
}

/// A ring of slots, oldest first.
///
/// An *index* counts from the oldest slot; a slot *number* is the position in the storage, which
/// does not change while the slot is in use.
///
/// # Invariants
///
/// `head` is below the capacity or 0, and `len` is at most the capacity.
pub(super) struct Ring<S> {
    slots: S,
    head: usize,
    len: usize,
}

impl<S: DerefMut<Target = [Slot]>> Ring<S> {
    pub(super) fn new(slots: S) -> Ring<S> {
        // INVARIANT: an empty ring.
        Ring {
            slots,
            head: 0,
            len: 0,
        }
    }

    /// Removes all slots.
    pub(super) fn clear(&mut self) {
        // INVARIANT: an empty ring.
        self.head = 0;
        self.len = 0;
    }

    /// Returns the number of slots, capped so that a slot number fits in 16 bits.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.slots.len().min(1 << 16)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Slot> {
        if index >= self.len {
            return None;
        }
        self.slots.get(self.position(index))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        if index >= self.len {
            return None;
        }
        let position = self.position(index);
        self.slots.get_mut(position)
    }

    /// Returns the number of the slot at `index`.
    #[inline]
    pub(super) fn number(&self, index: usize) -> Option<u16> {
        if index >= self.len {
            return None;
        }
        u16::try_from(self.position(index)).ok()
    }

    /// Returns the number that the next slot will have, if one is free.
    #[inline]
    pub(super) fn next_number(&self) -> Option<u16> {
        if self.len >= self.capacity() {
            return None;
        }
        u16::try_from(self.position(self.len)).ok()
    }

    /// Returns the index of the slot with a number, if it is in use.
    #[inline]
    pub(super) fn find(&self, number: u16) -> Option<usize> {
        let number = usize::from(number);
        if number >= self.capacity() {
            return None;
        }
        let index = match number.checked_sub(self.head) {
            Some(index) => index,
            None => number.wrapping_add(self.capacity()).wrapping_sub(self.head),
        };
        (index < self.len).then_some(index)
    }

    /// Appends a slot and returns its number, or `None` if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, slot: Slot) -> Option<u16> {
        let number = self.next_number()?;
        *self.slots.get_mut(usize::from(number))? = slot;
        // INVARIANT: `len` was below the capacity.
        self.len = self.len.wrapping_add(1);
        Some(number)
    }

    /// Removes the oldest slot.
    #[inline]
    pub(super) fn pop(&mut self) {
        if self.len == 0 {
            return;
        }
        // INVARIANT: `len` was not 0, so the capacity is not.
        self.head = self.position(1);
        self.len = self.len.wrapping_sub(1);
    }

    /// Returns the position of an index up to the capacity, which wraps to 0 there.
    #[inline]
    fn position(&self, index: usize) -> usize {
        let position = self.head.wrapping_add(index);
        position.checked_sub(self.capacity()).unwrap_or(position)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_slot))]
mod tests {
    use super::*;

    fn slot(wr_id: u64) -> Slot {
        let mut slot = Slot::default();
        slot.wr.wr_id = wr_id;
        slot
    }

    #[test]
    fn slots_are_compact() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn slot_numbers_match_positions_across_wrap() {
        let mut slots = [const { None::<()> }; 3].map(|_| Slot::default());
        let mut ring = Ring::new(&mut slots[..]);
        for wr_id in 0..7 {
            let next = ring.next_number();
            let number = ring.push(slot(wr_id));
            assert_eq!(number.map(u64::from), Some(wr_id % 3));
            assert_eq!(number, next);
            if wr_id >= 2 {
                assert_eq!(ring.len(), 3);
                assert_eq!(ring.get(0).map(|slot| slot.wr.wr_id), Some(wr_id - 2));
                assert_eq!(number.and_then(|number| ring.find(number)), Some(2));
                assert_eq!(ring.next_number(), None);
                assert_eq!(ring.push(slot(0)), None);
                assert!(ring.get(3).is_none());
                ring.pop();
                assert_eq!(ring.len(), 2);
                assert_eq!(ring.get(0).map(|slot| slot.wr.wr_id), Some(wr_id - 1));
                assert_eq!(number.and_then(|number| ring.find(number)), Some(1));
            }
        }
    }

    #[test]
    fn only_numbers_in_use_are_found() {
        let mut slots = [Slot::default(), Slot::default()];
        let mut ring = Ring::new(&mut slots[..]);
        assert_eq!(ring.push(slot(0)), Some(0));
        assert_eq!((ring.find(0), ring.find(1)), (Some(0), None));
        ring.pop();
        assert!(ring.push(slot(1)).is_some() && ring.push(slot(2)).is_some());
        assert_eq!((ring.find(1), ring.find(0)), (Some(0), Some(1)));
        assert_eq!(ring.find(2), None);
    }

    #[test]
    fn part_of_read_ends_at_multiple_of_its_size() {
        for (index, count) in [(0, 16), (3, 13), (16, 16), (31, 1), (32, 8), (39, 1)] {
            assert_eq!(read_part(index, 40, 16), count);
        }
    }

    #[test]
    fn ring_without_slots_rejects_push() {
        let mut slots: [Slot; 0] = [];
        let mut ring = Ring::new(&mut slots[..]);
        assert_eq!(ring.push(slot(0)), None);
        ring.pop();
        assert_eq!(ring.len(), 0);
    }
}
