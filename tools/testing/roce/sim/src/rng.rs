// SPDX-License-Identifier: GPL-2.0

//! Repeatable random numbers (splitmix64).

use std::ops::RangeInclusive;

/// A source of repeatable random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Makes a source from a seed.
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed ^ 0x6665_7272_6f63_6531);
        rng.next();
        rng
    }

    /// Returns 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in the range, which must not be empty.
    pub fn range(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end() - range.start();
        range.start() + self.next() % span.saturating_add(1).max(1)
    }

    /// Returns true in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        // Draw nothing if the result is certain, so that a run without faults does not depend on
        // the kinds of faults.
        per_mille > 0 && self.next() % 1000 < per_mille
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }
}
