// SPDX-License-Identifier: GPL-2.0

//! Attributes of a queue pair, with their types, ranges and values in RESET.

pub use super::mask::AttrMask;

use crate::{
    ids::{
        Qkey,
        Qpn, //
    },
    psn::Psn, //
};

/// Path MTU. The numbers are those of `enum ib_mtu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Mtu {
    /// 256 bytes.
    #[default]
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Converts a number of `enum ib_mtu`.
    pub const fn from_ib(ib: u32) -> Option<Mtu> {
        match ib {
            1 => Some(Mtu::B256),
            2 => Some(Mtu::B512),
            3 => Some(Mtu::B1024),
            4 => Some(Mtu::B2048),
            5 => Some(Mtu::B4096),
            _ => None,
        }
    }

    /// Returns the largest MTU of at most `bytes`.
    pub const fn fitting(bytes: u32) -> Option<Mtu> {
        match bytes {
            0..=255 => None,
            256..=511 => Some(Mtu::B256),
            512..=1023 => Some(Mtu::B512),
            1024..=2047 => Some(Mtu::B1024),
            2048..=4095 => Some(Mtu::B2048),
            4096.. => Some(Mtu::B4096),
        }
    }

    /// Returns the number in `enum ib_mtu`.
    #[inline]
    pub const fn as_ib(self) -> u32 {
        self as u32
    }

    /// Returns the largest payload of a packet in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self.as_ib()
    }
}

/// The rights of the peer through a queue pair, and other flags of `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAccess(u32);

impl QpAccess {
    /// `IB_ACCESS_LOCAL_WRITE`: has no meaning for a queue pair, but is commonly set.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// `IB_ACCESS_REMOTE_WRITE`: RDMA WRITE.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// `IB_ACCESS_REMOTE_READ`: RDMA READ.
    pub const REMOTE_READ: u32 = 1 << 2;
    /// `IB_ACCESS_REMOTE_ATOMIC`: atomic operations.
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// `IB_ACCESS_MW_BIND`: the right to bind memory windows to a region. Accepted like
    /// `ON_DEMAND`.
    pub const MW_BIND: u32 = 1 << 4;
    /// `IB_ACCESS_ON_DEMAND`: has no meaning for a queue pair, but is set by programs that use the
    /// same flags for their memory and their queue pairs.
    pub const ON_DEMAND: u32 = 1 << 6;
    /// `IB_ACCESS_FLUSH_GLOBAL`: FLUSH for global visibility.
    pub const FLUSH_GLOBAL: u32 = 1 << 8;
    /// `IB_ACCESS_FLUSH_PERSISTENT`: FLUSH for persistence.
    pub const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// `IB_ACCESS_OPTIONAL`: hints that a driver may ignore by definition.
    pub const OPTIONAL: u32 = (1 << 30) - (1 << 20);

    /// The flags that may be set.
    ///
    /// Rights that no region can grant are accepted, because programs set all rights that they may
    /// need. They have no effect, because the region must grant each right, too.
    const SETTABLE: u32 = Self::LOCAL_WRITE
        | Self::REMOTE_WRITE
        | Self::REMOTE_READ
        | Self::REMOTE_ATOMIC
        | Self::MW_BIND
        | Self::ON_DEMAND
        | Self::FLUSH_GLOBAL
        | Self::FLUSH_PERSISTENT
        | Self::OPTIONAL;

    /// Makes flags from the bits of `enum ib_access_flags`.
    ///
    /// Returns `None` if a queue pair cannot have one of them.
    pub const fn from_bits(bits: u32) -> Option<QpAccess> {
        if bits & !Self::SETTABLE != 0 {
            return None;
        }
        Some(QpAccess(bits))
    }

    /// Returns the bits, as they were set.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether `right`, one of the flags, is set.
    #[inline]
    pub const fn allows(self, right: u32) -> bool {
        self.0 & right != 0
    }
}

/// The limits of the device, the port and the send queue at the time of a modification.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The active MTU of the port.
    pub mtu: Mtu,
    /// The most READs and atomics that a queue pair may have outstanding at its peer.
    pub max_rd_atomic: u8,
    /// The most READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// True in SQD until all started requests are finished.
    pub draining: bool,
}

/// Declares the attributes, each with its field, its value in RESET, its bit, and two conversions.
///
/// The first one converts from the value in `struct ib_qp_attr`, and returns `None` if that is out
/// of range. The second one converts back.
macro_rules! attributes {
    ($($(#[$doc:meta])* $field:ident: $ty:ty = $reset:expr, $bit:ident:
        |$value:pat_param, $limits:pat_param| $parse:expr, |$attr:pat_param| $raw:expr;)*) => {
        /// The validated attributes of a queue pair, which a query returns.
        ///
        /// The driver stores the state, the address vector and the capacities. The migration state
        /// is always `IB_MIG_MIGRATED`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Attrs {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl Attrs {
            /// The attributes in RESET.
            pub const RESET: Attrs = Attrs { $($field: $reset,)* };

            /// Sets the attributes that `mask` selects, to `value(attribute)`.
            ///
            /// # Errors
            ///
            /// Returns the first attribute that is out of range. Others may have been set then.
            pub(super) fn set(
                &mut self,
                mask: AttrMask,
                value: impl Fn(AttrMask) -> u32,
                limits: &Limits,
            ) -> Result<(), AttrMask> {
                $(if mask.contains(AttrMask::$bit) {
                    let parse = |$value: u32, $limits: &Limits| -> Option<$ty> { $parse };
                    self.$field = parse(value(AttrMask::$bit), limits).ok_or(AttrMask::$bit)?;
                })*
                Ok(())
            }

            /// Calls `f` with each attribute and its value in `struct ib_qp_attr`.
            pub fn for_each(&self, mut f: impl FnMut(AttrMask, u32)) {
                $(f(AttrMask::$bit, {
                    let raw = |$attr: $ty| -> u32 { $raw };
                    raw(self.$field)
                });)*
            }
        }
    };
}

attributes! {
    /// True if an event is raised when the send queue has drained.
    sqd_notify: bool = false, EN_SQD_ASYNC_NOTIFY: |v, _| Some(v != 0), |a| a.into();
    /// The rights of the peer.
    access: QpAccess = QpAccess(0), ACCESS_FLAGS: |v, _| QpAccess::from_bits(v), |a| a.bits();
    /// The index of the P_Key: always 0, since a RoCE port has one P_Key.
    pkey_index: u8 = 0, PKEY_INDEX: |v, _| up_to(0, v), |a| a.into();
    /// The port: always 1.
    port_num: u8 = 1, PORT: |v, _| up_to(1, v).filter(|port| *port == 1), |a| a.into();
    /// The Q_Key that datagrams must carry.
    qkey: Qkey = Qkey::new(0), QKEY: |v, _| Some(Qkey::new(v)), |a| a.get();
    /// The path MTU.
    path_mtu: Mtu = Mtu::B256, PATH_MTU:
        |v, limits| Mtu::from_ib(v).filter(|mtu| *mtu <= limits.mtu), |a| a.as_ib();
    /// The local ACK timeout, a code of 5 bits: see
    /// [`ack_timeout_ns`](crate::time::ack_timeout_ns).
    timeout: u8 = 0, TIMEOUT: |v, _| up_to(31, v), |a| a.into();
    /// The retries before a request fails, 0 to 7.
    retry_cnt: u8 = 0, RETRY_CNT: |v, _| up_to(7, v), |a| a.into();
    /// The RNR retries before a request fails, 0 to 6, or 7 for no limit.
    rnr_retry: u8 = 0, RNR_RETRY: |v, _| up_to(7, v), |a| a.into();
    /// The first PSN to expect.
    rq_psn: Psn = Psn::new(0), RQ_PSN: |v, _| bits_24(v).map(Psn::new), |a| a.get();
    /// The first PSN to send.
    sq_psn: Psn = Psn::new(0), SQ_PSN: |v, _| bits_24(v).map(Psn::new), |a| a.get();
    /// The most READs and atomics outstanding at the peer.
    max_rd_atomic: u8 = 0, MAX_QP_RD_ATOMIC:
        |v, limits| up_to(limits.max_rd_atomic, v), |a| a.into();
    /// The most READs and atomics of the peer outstanding here.
    max_dest_rd_atomic: u8 = 0, MAX_DEST_RD_ATOMIC:
        |v, limits| up_to(limits.max_dest_rd_atomic, v), |a| a.into();
    /// The timer of RNR NAKs, a code of 5 bits: see [`rnr_timer_ns`](crate::time::rnr_timer_ns).
    min_rnr_timer: u8 = 0, MIN_RNR_TIMER: |v, _| up_to(31, v), |a| a.into();
    /// The queue pair number of the peer.
    dest_qpn: Qpn = Qpn::new(0), DEST_QPN: |v, _| bits_24(v).map(Qpn::new), |a| a.get();
}

/// Returns `value` if it is at most `max`.
fn up_to(max: u8, value: u32) -> Option<u8> {
    u8::try_from(value).ok().filter(|value| *value <= max)
}

/// Returns `value` if it has at most 24 bits.
fn bits_24(value: u32) -> Option<u32> {
    (value <= 0x00ff_ffff).then_some(value)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_attr))]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_match_sizes() {
        for (ib, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let mtu = Mtu::from_ib(ib);
            assert_eq!(mtu.map(Mtu::bytes), Some(bytes));
            assert_eq!(mtu.map(Mtu::as_ib), Some(ib));
            assert_eq!(Mtu::fitting(bytes), mtu);
            assert_eq!(Mtu::fitting(bytes * 2 - 1), mtu);
        }
        assert_eq!(Mtu::from_ib(0), None);
        assert_eq!(Mtu::from_ib(6), None);
        assert_eq!(Mtu::fitting(255), None);
        assert_eq!(Mtu::fitting(u32::MAX), Some(Mtu::B4096));
    }

    #[test]
    fn unsupported_access_flags_are_refused() {
        assert_eq!(
            QpAccess::from_bits(0x3ff0_035f).map(QpAccess::bits),
            Some(0x3ff0_035f)
        );
        // Zero-based, huge pages; then undefined flags.
        for bit in [5, 7].into_iter().chain(10..20).chain(30..32) {
            assert_eq!(QpAccess::from_bits(1 << bit), None);
        }
    }

    #[test]
    fn each_right_has_its_flag() {
        let flags = [
            QpAccess::REMOTE_WRITE,
            QpAccess::REMOTE_READ,
            QpAccess::REMOTE_ATOMIC,
            QpAccess::FLUSH_GLOBAL,
            QpAccess::FLUSH_PERSISTENT,
        ];
        let rights =
            |bits| QpAccess::from_bits(bits).map(|access| flags.map(|flag| access.allows(flag)));
        for (index, flag) in flags.into_iter().enumerate() {
            let mut expected = [false; 5];
            expected[index] = true;
            assert_eq!(rights(flag), Some(expected));
        }
        assert_eq!(rights(0), Some([false; 5]));
    }
}
