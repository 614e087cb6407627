// SPDX-License-Identifier: GPL-2.0

//! The mask that selects attributes of a queue pair.

/// A set of attributes: bits of `enum ib_qp_attr_mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrMask(u32);

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl AttrMask {
            $($(#[$doc])* pub const $name: AttrMask = AttrMask(1 << $bit);)*

            /// Every attribute and its name, in the order of the bits.
            pub const NAMES: &'static [(AttrMask, &'static str)] = &[
                $((AttrMask::$name, stringify!($name)),)*
            ];
        }
    };
}

attributes! {
    /// The state to go to.
    STATE = 0;
    /// The state that the caller assumes the queue pair to be in.
    CUR_STATE = 1;
    /// The event for a drained send queue.
    EN_SQD_ASYNC_NOTIFY = 2;
    /// The rights of the peer (RC, UC).
    ACCESS_FLAGS = 3;
    /// Index of the P_Key.
    PKEY_INDEX = 4;
    /// The port of the device.
    PORT = 5;
    /// Q_Key that datagrams must present (UD).
    QKEY = 6;
    /// Address vector: the path to the peer (RC, UC).
    AV = 7;
    /// Path MTU (RC, UC).
    PATH_MTU = 8;
    /// The local ACK timeout (RC).
    TIMEOUT = 9;
    /// The retries before a request fails (RC).
    RETRY_CNT = 10;
    /// The RNR retries before a request fails (RC).
    RNR_RETRY = 11;
    /// First PSN to expect (RC, UC).
    RQ_PSN = 12;
    /// The most READs and atomics outstanding (RC).
    MAX_QP_RD_ATOMIC = 13;
    /// The alternate path to the peer. Not supported: the core refuses it on RoCE.
    ALT_PATH = 14;
    /// The timer of RNR NAKs (RC).
    MIN_RNR_TIMER = 15;
    /// First PSN to send.
    SQ_PSN = 16;
    /// The most READs and atomics of the peer outstanding (RC).
    MAX_DEST_RD_ATOMIC = 17;
    /// State of path migration.
    PATH_MIG_STATE = 18;
    /// New capacities. Not supported: queues keep their size.
    CAP = 19;
    /// Queue pair number of the peer (RC, UC).
    DEST_QPN = 20;
    /// Limit of the sending rate. Not supported: it is defined for raw packets.
    RATE_LIMIT = 25;
}

impl AttrMask {
    /// The empty set.
    pub const NONE: AttrMask = AttrMask(0);

    /// The attributes that [`modify`](super::modify::modify) refuses with `EOPNOTSUPP`.
    ///
    /// These are the ones that are not supported, and every bit without a name.
    pub const NOT_CARRIED: AttrMask =
        AttrMask(Self::ALT_PATH.0 | Self::CAP.0 | !((Self::DEST_QPN.0 << 1).wrapping_sub(1)));

    /// Makes a set from the bits of `enum ib_qp_attr_mask`; unknown ones are kept.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the set contains all of `other`.
    #[inline]
    pub const fn contains(self, other: AttrMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union.
    #[inline]
    pub const fn or(self, other: AttrMask) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection.
    #[inline]
    pub const fn and(self, other: AttrMask) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns this set without `other`.
    #[inline]
    pub const fn without(self, other: AttrMask) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_mask))]
mod tests {
    use super::*;

    #[test]
    fn set_operations() {
        let both = AttrMask::AV.or(AttrMask::PORT);
        assert!(both.contains(AttrMask::AV));
        assert!(!AttrMask::AV.contains(both));
        assert_eq!(both.without(AttrMask::AV), AttrMask::PORT);
        assert_eq!(both.and(AttrMask::AV), AttrMask::AV);
    }

    #[test]
    fn each_named_attribute_is_one_bit() {
        assert_eq!(AttrMask::NAMES.len(), 22);
        for (mask, _) in AttrMask::NAMES {
            assert_eq!(mask.bits().count_ones(), 1);
        }
    }

    #[test]
    fn not_carried_covers_all_unnamed_bits() {
        assert_eq!(AttrMask::NOT_CARRIED.bits(), 0xffe8_4000);
        assert!(AttrMask::NOT_CARRIED.contains(AttrMask::RATE_LIMIT));
    }
}
