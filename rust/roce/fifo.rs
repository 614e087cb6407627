// SPDX-License-Identifier: GPL-2.0

//! The completion queue of a kernel consumer, for completions that were not polled.
//!
//! A completion names its queue pair. When a queue pair is destroyed, its completions are removed
//! from the queue, and those of others stay in order. A removal is divided into steps, and the
//! queue can be used between two of them.
//!
//! A removal visits the completions from the newest at its beginning to the oldest. Completions
//! that stay move towards the newest, so the freed slots form a gap, which is at the front in the
//! end. Completions that are added during a removal are not visited.
//!
//! ```text
//!            head
//!             v
//!   |        | a B a B B a |           | B a B | b b b |     |
//!            '--- left ----'--- gap ---'-------'-------'
//!              not visited     free      stay    added
//!                      <---
//! ```

use core::ops::DerefMut;

/// A queue in storage of the caller, which can be replaced by larger storage.
pub struct Fifo<S> {
    slots: S,
    /// The index of the oldest completion.
    head: usize,
    /// The number of slots in use, including the gap.
    used: usize,
    /// The removal in progress, which has at least one completion left to visit.
    removal: Option<Removal>,
}

/// The progress of a removal.
#[derive(Clone, Copy)]
struct Removal {
    /// The number of completions at the front that were not visited.
    left: usize,
    /// The number of free slots behind them.
    gap: usize,
}

impl<T, S: DerefMut<Target = [Option<T>]>> Fifo<S> {
    /// Makes an empty queue that holds as many completions as there are slots.
    pub fn new(slots: S) -> Self {
        Self {
            slots,
            head: 0,
            used: 0,
            removal: None,
        }
    }

    /// Returns the most completions that the queue can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of completions.
    pub fn len(&self) -> usize {
        let gap = self.removal.map_or(0, |removal| removal.gap);
        self.used.saturating_sub(gap)
    }

    /// Returns whether there is no completion.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the index of the slot of the oldest completion.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Returns the index of the slot of the next completion.
    pub fn tail(&self) -> usize {
        self.index(self.used)
    }

    /// Adds a completion, or returns `false` if there is no room.
    ///
    /// Slots of the gap cannot be used before the end of the removal.
    #[must_use]
    pub fn push(&mut self, completion: T) -> bool {
        if self.used >= self.slots.len() {
            return false;
        }
        self.set(self.used, Some(completion));
        self.used = self.used.saturating_add(1);
        true
    }

    /// Takes the oldest completion.
    pub fn pop(&mut self) -> Option<T> {
        if self.used == 0 {
            return None;
        }
        let completion = self.take(0);
        self.advance(1);
        if let Some(removal) = &mut self.removal {
            removal.left = removal.left.saturating_sub(1);
        }
        self.end_removal();
        completion
    }

    /// Moves the completions to other storage, and returns the old one. Returns the new one instead
    /// if it does not have more slots, or during a removal.
    pub fn move_to(&mut self, mut slots: S) -> S {
        if slots.len() <= self.slots.len() || self.removal.is_some() {
            return slots;
        }
        for (offset, slot) in slots.iter_mut().enumerate().take(self.used) {
            *slot = self.take(offset);
        }
        self.head = 0;
        core::mem::replace(&mut self.slots, slots)
    }

    /// Begins a removal among the completions that are in the queue now; see [`Fifo::remove`].
    ///
    /// No other removal may be in progress.
    pub fn begin_removal(&mut self) {
        self.removal = Some(Removal {
            left: self.used,
            gap: 0,
        });
        self.end_removal();
    }

    /// Visits at most `budget` completions, and removes those that `matches` accepts.
    ///
    /// Returns whether there are more to visit.
    pub fn remove(&mut self, budget: usize, matches: impl Fn(&T) -> bool) -> bool {
        for _ in 0..budget {
            let Some(Removal { left, gap }) = self.removal else {
                return false;
            };
            let at = left.saturating_sub(1);
            let mut gap = gap;
            match self.take(at) {
                Some(completion) if !matches(&completion) => {
                    self.set(at.saturating_add(gap), Some(completion));
                }
                _ => gap = gap.saturating_add(1),
            }
            self.removal = Some(Removal { left: at, gap });
            self.end_removal();
        }
        self.removal.is_some()
    }

    /// Ends a removal that has visited all completions: the gap is at the front.
    fn end_removal(&mut self) {
        if let Some(Removal { left: 0, gap }) = self.removal {
            self.removal = None;
            self.advance(gap);
        }
    }

    /// Moves the front over slots that are free.
    fn advance(&mut self, slots: usize) {
        self.head = self.index(slots);
        self.used = self.used.saturating_sub(slots);
    }

    /// Returns the index of the slot that is `offset` behind the front.
    fn index(&self, offset: usize) -> usize {
        // OVERFLOW: Both are at most the number of slots, which is far below the largest number.
        self.head
            .wrapping_add(offset)
            .checked_rem(self.slots.len())
            .unwrap_or(0)
    }

    fn take(&mut self, offset: usize) -> Option<T> {
        let index = self.index(offset);
        self.slots.get_mut(index)?.take()
    }

    fn set(&mut self, offset: usize, completion: Option<T>) {
        let index = self.index(offset);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = completion;
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_fifo))]
mod tests {
    use super::*;

    /// The queue pair, and the number of the entry.
    type Entry = (u32, u32);
    type Slots = [Option<Entry>; 7];

    fn of(qp: u32) -> impl Fn(&Entry) -> bool {
        move |entry| entry.0 == qp
    }

    #[test]
    fn first_in_first_out() {
        let mut fifo: Fifo<&mut [Option<Entry>]> = Fifo::new(&mut []);
        assert!(!fifo.push((1, 0)));
        assert!(fifo.pop().is_none() && fifo.is_empty());

        let mut slots: Slots = [None; 7];
        let mut fifo = Fifo::new(&mut slots[..]);
        for round in 0..5 {
            for i in 0..7 {
                assert!(fifo.push((round, i)));
            }
            assert!(!fifo.push((round, 7)));
            assert_eq!((fifo.len(), fifo.capacity()), (7, 7));
            for i in 0..5 {
                assert_eq!(fifo.pop(), Some((round, i)));
            }
            assert!(fifo.push((round, 7)));
            for i in 5..8 {
                assert_eq!(fifo.pop(), Some((round, i)));
            }
            assert!(fifo.is_empty());
            assert_eq!(fifo.pop(), None);
        }
    }

    #[test]
    fn head_and_tail_are_slots_of_completions() {
        let mut slots: Slots = [None; 7];
        let mut fifo = Fifo::new(&mut slots[..]);
        for i in 0..5 {
            assert!(fifo.push((1, i)));
            assert!(!fifo.is_empty());
        }
        assert_eq!((fifo.head(), fifo.tail()), (0, 5));
        for i in 0..3 {
            assert_eq!(fifo.pop(), Some((1, i)));
        }
        for i in 5..10 {
            assert!(fifo.push((1, i)));
        }
        assert_eq!((fifo.head(), fifo.tail()), (3, 3));
    }

    #[test]
    fn completions_keep_their_order_in_larger_storage() {
        let (mut slots, mut more, mut few): (Slots, _, Slots) = ([None; 7], [None; 9], [None; 7]);
        let mut fifo = Fifo::new(&mut slots[..]);
        for i in 0..7 {
            assert!(fifo.push((1, i)));
        }
        assert_eq!(fifo.pop(), Some((1, 0)));
        assert!(fifo.push((1, 7)));
        fifo.begin_removal();
        assert_eq!(fifo.move_to(&mut more[..]).len(), 9);
        assert!(!fifo.remove(7, of(2)));
        let mut more = [None; 9];
        assert_eq!(fifo.move_to(&mut more[..]).len(), 7);
        assert_eq!(fifo.move_to(&mut few[..]).len(), 7);
        assert!(fifo.push((1, 8)) && fifo.push((1, 9)) && !fifo.push((1, 10)));
        for i in 1..10 {
            assert_eq!(fifo.pop(), Some((1, i)));
        }
        assert!(fifo.is_empty());
    }

    #[test]
    fn removal_from_empty_queue_ends_at_once() {
        let mut slots: Slots = [None; 7];
        let mut fifo = Fifo::new(&mut slots[..]);
        fifo.begin_removal();
        assert!(fifo.push((1, 0)));
        assert!(!fifo.remove(1, of(1)));
        assert_eq!(fifo.pop(), Some((1, 0)));
    }

    #[test]
    fn removal_frees_slots() {
        let mut slots: Slots = [None; 7];
        let mut fifo = Fifo::new(&mut slots[..]);
        for i in 0..7 {
            assert!(fifo.push((i & 1, i)));
        }
        fifo.begin_removal();
        assert!(fifo.remove(6, of(0)));
        // One of the four has not been visited yet; the slots of the others are not free yet.
        assert_eq!(fifo.len(), 4);
        assert!(!fifo.push((2, 0)));
        assert!(!fifo.remove(6, of(0)));
        assert_eq!(fifo.len(), 3);
        for i in 0..4 {
            assert!(fifo.push((2, i)));
        }
        assert!(!fifo.push((2, 4)));
        for i in [1, 3, 5] {
            assert_eq!(fifo.pop(), Some((1, i)));
        }
        for i in 0..4 {
            assert_eq!(fifo.pop(), Some((2, i)));
        }
        assert_eq!(fifo.pop(), None);
    }

    #[test]
    fn removal_ends_when_rest_is_polled() {
        let mut slots: Slots = [None; 7];
        let mut fifo = Fifo::new(&mut slots[..]);
        for i in 0..6 {
            assert!(fifo.push((i / 3, i)));
        }
        fifo.begin_removal();
        assert!(fifo.remove(4, of(1)));
        assert_eq!(fifo.pop(), Some((0, 0)));
        assert_eq!(fifo.pop(), Some((0, 1)));
        assert_eq!(fifo.pop(), Some((0, 2)));
        assert!(fifo.is_empty());
        assert_eq!(fifo.pop(), None);
        assert!(!fifo.remove(4, of(1)));
        for i in 0..7 {
            assert!(fifo.push((3, i)));
        }
        assert_eq!(fifo.len(), 7);
    }

    /// Compares with counters, with pushes and pops between the steps of the removal.
    #[test]
    fn removal_preserves_order_of_others() {
        let mut seed = 1u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };

        for _ in 0..200 {
            let mut slots: Slots = [None; 7];
            let mut fifo = Fifo::new(&mut slots[..]);
            // The next entry of each queue pair to be added, and to be polled.
            let mut added = [0; 3];
            let mut polled = [0; 3];
            for _ in 0..random(20) {
                let qp = random(3);
                if fifo.push((qp, added[qp as usize])) {
                    added[qp as usize] += 1;
                }
                if random(3) == 0 {
                    if let Some((qp, i)) = fifo.pop() {
                        assert_eq!(i, polled[qp as usize]);
                        polled[qp as usize] += 1;
                    }
                }
            }
            fifo.begin_removal();
            let gone = random(3);
            while fifo.remove(random(3) as usize, of(gone)) {
                // The destroyed queue pair adds no more completions.
                let qp = (gone + 1 + random(2)) % 3;
                if random(2) == 0 && fifo.push((qp, added[qp as usize])) {
                    added[qp as usize] += 1;
                }
                if random(4) == 0 {
                    if let Some((qp, i)) = fifo.pop() {
                        assert_eq!(i, polled[qp as usize]);
                        polled[qp as usize] += 1;
                    }
                }
            }
            let mut len = fifo.len();
            while let Some((qp, i)) = fifo.pop() {
                assert_ne!(qp, gone);
                assert_eq!(i, polled[qp as usize]);
                polled[qp as usize] += 1;
                len -= 1;
            }
            assert_eq!(len, 0);
            for qp in [(gone + 1) % 3, (gone + 2) % 3] {
                assert_eq!(added[qp as usize], polled[qp as usize]);
            }
        }
    }
}
