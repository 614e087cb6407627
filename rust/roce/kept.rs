// SPDX-License-Identifier: GPL-2.0

//! The PSNs of packets that are kept until earlier ones arrive (RC).
//!
//! Packets are kept in a queue in the order of arrival, which needs neither a search nor a bitmap.
//! A packet with a PSN below that of the last kept one is dropped, and is missing later. This is
//! rare, because packets nearly always arrive in the order of PSNs.

use crate::psn::Psn;

/// The most PSNs between the missing packet and one that is kept.
///
/// Hardly any packet is that far ahead. A late packet of an earlier connection of the queue pair is
/// likely to be further ahead, and is dropped.
const MOST_AHEAD: u32 = 1 << 12;

/// The PSNs of the kept packets.
///
/// # Invariants
///
/// `last` is not before `first`, if there is one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kept {
    /// The PSN of the first kept packet, if `is_any`.
    first: Psn,
    /// The PSN of the last kept packet, if `is_any`.
    last: Psn,
    /// True if any packet is kept. Two `Option`s would take more memory.
    is_any: bool,
    /// True if packets after the last kept one were dropped.
    is_incomplete: bool,
}

impl Kept {
    /// Returns the PSN of the first kept packet, if any is kept.
    #[inline]
    pub(crate) fn first(&self) -> Option<Psn> {
        self.is_any.then_some(self.first)
    }

    /// Returns whether the first kept packet is to be handled now that `expected` is the next PSN.
    #[inline]
    pub(crate) fn is_due(&self, expected: Psn) -> bool {
        self.is_any && !self.first.is_after(expected)
    }

    /// Returns whether to keep a packet with PSN `psn` while `expected` is missing.
    #[inline]
    pub(crate) fn may_keep(&self, expected: Psn, psn: Psn) -> bool {
        expected.forward(psn) <= MOST_AHEAD && (!self.is_any || psn.is_after(self.last))
    }

    /// Accounts for a packet that was kept. [`Kept::may_keep`] must have allowed that.
    pub(crate) fn kept(&mut self, psn: Psn) {
        if !self.is_any {
            self.first = psn;
            self.is_any = true;
        }
        // The dropped packets are between the last kept one and this one: an ordinary gap.
        self.is_incomplete = false;
        // INVARIANT: It is after the last one, or the only one.
        self.last = psn;
    }

    /// Accounts for a packet with PSN `psn` that was not kept.
    pub(crate) fn not_kept(&mut self, psn: Psn) {
        self.is_incomplete |= self.is_any && psn.is_after(self.last);
    }

    /// Returns whether packets after the last kept one were dropped.
    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        self.is_incomplete
    }

    /// Accounts for a retransmission of all missing packets.
    #[inline]
    pub(crate) fn forget_dropped(&mut self) {
        self.is_incomplete = false;
    }

    /// Returns whether packets may be missing before the first kept one, or after the last.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        self.is_any || self.is_incomplete
    }

    /// Accounts for the first kept packet, which is about to be handled.
    ///
    /// `next` is the PSN of the kept packet after it, if there is one.
    pub(crate) fn took(&mut self, next: Option<Psn>) {
        // INVARIANT: The last one is the same, or there is none.
        self.is_any = next.is_some();
        self.first = next.unwrap_or_default();
    }

    /// Returns whether a packet is missing, given that no kept one is due.
    ///
    /// Returns true only once for packets that were dropped after the last kept one.
    pub(crate) fn take_missing(&mut self) -> bool {
        let is_missing = self.has_gap();
        self.is_incomplete &= self.is_any;
        is_missing
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_kept))]
mod tests {
    use super::*;

    /// The largest PSN, which is followed by 0.
    const EXPECTED: Psn = Psn::new(0xff_ffff);

    #[test]
    fn packet_far_ahead_is_not_kept() {
        let kept = Kept::default();
        assert!(kept.may_keep(EXPECTED, EXPECTED.add(MOST_AHEAD)));
        assert!(!kept.may_keep(EXPECTED, EXPECTED.add(MOST_AHEAD + 1)));
        assert!(!kept.may_keep(EXPECTED, EXPECTED.prev()));
    }

    #[test]
    fn packets_are_kept_in_the_order_of_psns() {
        let mut kept = Kept::default();
        kept.kept(EXPECTED.add(2));
        for (ahead, may_keep) in [(1, false), (2, false), (3, true)] {
            assert_eq!(kept.may_keep(EXPECTED, EXPECTED.add(ahead)), may_keep);
        }
    }

    #[test]
    fn kept_packet_is_due_once_it_is_expected() {
        let mut kept = Kept::default();
        assert!(!kept.is_due(EXPECTED));
        kept.kept(EXPECTED.add(2));
        for (ahead, is_due) in [(0, false), (1, false), (2, true), (3, true)] {
            assert_eq!(kept.is_due(EXPECTED.add(ahead)), is_due);
        }
        kept.took(None);
        assert!(!kept.is_due(EXPECTED.add(3)));
    }

    #[test]
    fn packets_dropped_behind_the_last_kept_one_are_missing_once() {
        const KEPT: bool = true;
        const DROPPED: bool = false;

        // The packets in the order of arrival.
        for (arrivals, is_missing) in [
            (&[(DROPPED, 1), (KEPT, 1), (DROPPED, 2)][..], true),
            (&[(KEPT, 1), (DROPPED, 2), (DROPPED, 3)], true),
            // An ordinary gap.
            (&[(KEPT, 1), (DROPPED, 2), (KEPT, 3)], false),
            (&[(KEPT, 2), (DROPPED, 1), (DROPPED, 2)], false),
        ] {
            let mut kept = Kept::default();
            for &(is_kept, ahead) in arrivals {
                let psn = EXPECTED.add(ahead);
                match is_kept {
                    KEPT if kept.first().is_some() => {
                        kept.kept(psn);
                        kept.took(Some(psn));
                    }
                    KEPT => kept.kept(psn),
                    DROPPED => kept.not_kept(psn),
                }
                assert_eq!(kept.take_missing(), kept.first().is_some());
            }
            kept.took(None);
            assert_eq!(kept.take_missing(), is_missing);
            assert!(!kept.take_missing());
        }
    }
}
