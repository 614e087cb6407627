// SPDX-License-Identifier: GPL-2.0

//! Numbers and keys, each a type of its own so that they cannot be mixed up.

macro_rules! number {
    ($(#[$attr:meta])* $name:ident($raw:ty) & $mask:literal) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($raw);

        impl $name {
            #[doc = concat!("Makes the number from `raw & ", stringify!($mask), "`.")]
            #[inline]
            pub const fn new(raw: $raw) -> $name {
                $name(raw & $mask)
            }

            /// Returns the number, in host byte order.
            #[inline]
            pub const fn get(self) -> $raw {
                self.0
            }
        }
    };
}

number!(
    /// The number of a queue pair, 24 bits.
    Qpn(u32) & 0x00ff_ffff
);

number!(
    /// A queue key, which a datagram must present to its destination.
    Qkey(u32) & 0xffff_ffff
);

number!(
    /// A partition key: 15 bits of partition, and the bit of a full member on top.
    Pkey(u16) & 0xffff
);

number!(
    /// A remote key of a memory region.
    Rkey(u32) & 0xffff_ffff
);

impl Qpn {
    /// The queue pair of the general services interface.
    pub const GSI: Qpn = Qpn(1);

    /// The destination of a multicast packet.
    pub const MULTICAST: Qpn = Qpn(0x00ff_ffff);
}

impl Pkey {
    /// The default partition, full member: the only P_Key that a RoCE port has.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    /// The bit of a full member of a partition.
    const FULL_MEMBER: u16 = 0x8000;

    /// Returns whether holders of the two keys may communicate.
    ///
    /// They may if both are in the same, valid partition and at least one of them is a full member.
    #[inline]
    pub const fn matches(self, other: Pkey) -> bool {
        let partition = self.0 & !Self::FULL_MEMBER;
        partition != 0
            && partition == other.0 & !Self::FULL_MEMBER
            && (self.0 | other.0) & Self::FULL_MEMBER != 0
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_ids))]
mod tests {
    use super::*;

    #[test]
    fn qpn_keeps_24_bits() {
        assert_eq!(Qpn::new(0x1200_0345).get(), 0x345);
    }

    #[test]
    fn pkey_match_needs_a_full_member() {
        let full = Pkey::new(0x8001);
        let limited = Pkey::new(0x0001);
        assert!(full.matches(full));
        assert!(full.matches(limited));
        assert!(limited.matches(full));
        assert!(!limited.matches(limited));
    }

    #[test]
    fn pkey_match_needs_same_valid_partition() {
        assert!(!Pkey::DEFAULT.matches(Pkey::new(0x8001)));
        assert!(!Pkey::new(0x8000).matches(Pkey::new(0x8000)));
    }
}
