// SPDX-License-Identifier: GPL-2.0

//! The FLUSH extended transport header.

/// Bits of a FETH: global visibility.
const GLOBAL: u32 = 1 << 0;
/// Bits of a FETH: persistent.
const PERSISTENT: u32 = 1 << 1;
/// Bits of a FETH for the placement type.
const PLACEMENT: u32 = 0xf;
/// Bits of a FETH for the selectivity: 0 is a range, 1 the whole memory region.
const SELECTIVITY: u32 = 0x30;
const WHOLE: u32 = 1 << 4;

/// The scope of a FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth(u32);

impl Feth {
    /// Makes a FETH from a set of `enum ib_placement_type` and an `enum ib_selectivity_level`.
    ///
    /// Returns `None` if they select nothing, or something undefined.
    #[inline]
    pub const fn new(placement: u8, level: u8) -> Option<Feth> {
        // CAST: Widening.
        let feth = Feth(((level as u32) << 4) | placement as u32);
        if placement as u32 & !PLACEMENT == 0 && feth.is_valid() {
            Some(feth)
        } else {
            None
        }
    }

    /// Returns the number on the wire.
    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Converts from the number on the wire. Ignores reserved bits.
    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Feth {
        Feth(bits & (PLACEMENT | SELECTIVITY))
    }

    /// Returns whether the FETH selects something, and nothing reserved.
    #[inline]
    pub const fn is_valid(self) -> bool {
        let placement = self.0 & PLACEMENT;
        placement != 0
            && placement & !(GLOBAL | PERSISTENT) == 0
            && self.0 & SELECTIVITY & !WHOLE == 0
            && self.0 & !(PLACEMENT | SELECTIVITY) == 0
    }

    /// Returns whether the data must be globally visible at the responder.
    #[inline]
    pub const fn global(self) -> bool {
        self.0 & GLOBAL != 0
    }

    /// Returns whether the data must be persistent at the responder.
    #[inline]
    pub const fn persistent(self) -> bool {
        self.0 & PERSISTENT != 0
    }

    /// Returns whether the whole memory region is selected, instead of the range of the request.
    #[inline]
    pub const fn whole(self) -> bool {
        self.0 & SELECTIVITY == WHOLE
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_wire_feth))]
mod tests {
    use super::*;

    #[test]
    fn feth_rejects_undefined_values() {
        assert_eq!(Feth::new(0, 0), None);
        assert_eq!(Feth::new(4, 0), None);
        assert_eq!(Feth::new(0x10, 0), None);
        assert_eq!(Feth::new(1, 2), None);
        assert_eq!(Feth::new(1, 0xff), None);
        let range = Feth::new(1, 0).unwrap_or_default();
        assert!(range.global() && !range.persistent() && !range.whole());
        let all = Feth::new(3, 1).unwrap_or_default();
        assert!(all.global() && all.persistent() && all.whole());
        assert_eq!(Feth::from_bits(all.bits()), all);
        assert!(!Feth::default().is_valid());
    }
}
