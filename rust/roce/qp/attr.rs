// SPDX-License-Identifier: GPL-2.0

//! Attributes of a queue pair: as they are asked for, and as they are kept.

pub use super::mask::AttrMask;

use super::state::State;
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
    /// Finds the MTU that `enum ib_mtu` gives this number.
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

    /// Returns the number that `enum ib_mtu` gives it.
    #[inline]
    pub const fn as_ib(self) -> u32 {
        self as u32
    }

    /// Returns the bytes of payload that one packet carries at most.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self.as_ib()
    }
}

/// What the peer may do through a queue pair, and other flags of `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// `IB_ACCESS_LOCAL_WRITE`: without meaning for a queue pair, but commonly set.
    pub const LOCAL_WRITE: u32 = 1 << 0;
    /// `IB_ACCESS_REMOTE_WRITE`: RDMA WRITE.
    pub const REMOTE_WRITE: u32 = 1 << 1;
    /// `IB_ACCESS_REMOTE_READ`: RDMA READ.
    pub const REMOTE_READ: u32 = 1 << 2;
    /// `IB_ACCESS_REMOTE_ATOMIC`: atomic operations.
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    /// `IB_ACCESS_MW_BIND`: as `ON_DEMAND`. The region says whether windows may be bound to it.
    pub const MW_BIND: u32 = 1 << 4;
    /// `IB_ACCESS_ON_DEMAND`: without meaning for a queue pair, but set by programs that have one
    /// set of flags for their memory and their queue pairs.
    pub const ON_DEMAND: u32 = 1 << 6;
    /// `IB_ACCESS_FLUSH_GLOBAL`: FLUSH, for other devices to see what was written.
    pub const FLUSH_GLOBAL: u32 = 1 << 8;
    /// `IB_ACCESS_FLUSH_PERSISTENT`: FLUSH, for what was written to survive a loss of power.
    pub const FLUSH_PERSISTENT: u32 = 1 << 9;
    /// `IB_ACCESS_OPTIONAL`: hints that a driver may ignore by definition.
    pub const OPTIONAL: u32 = (1 << 30) - (1 << 20);

    /// The flags that may be set.
    ///
    /// Each permits what the region has to permit too, so those that no region can have are
    /// accepted: programs set what they may come to need without asking.
    const SETTABLE: u32 = Self::LOCAL_WRITE
        | Self::REMOTE_WRITE
        | Self::REMOTE_READ
        | Self::REMOTE_ATOMIC
        | Self::MW_BIND
        | Self::ON_DEMAND
        | Self::FLUSH_GLOBAL
        | Self::FLUSH_PERSISTENT
        | Self::OPTIONAL;

    /// Makes flags from the bits of `enum ib_access_flags`, unless one is not settable on a queue
    /// pair.
    pub const fn from_bits(bits: u32) -> Option<Access> {
        if bits & !Self::SETTABLE != 0 {
            return None;
        }
        Some(Access(bits))
    }

    /// Returns the bits, as they were set.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Tells whether the peer may write.
    #[inline]
    pub const fn remote_write(self) -> bool {
        self.0 & Self::REMOTE_WRITE != 0
    }

    /// Tells whether the peer may read.
    #[inline]
    pub const fn remote_read(self) -> bool {
        self.0 & Self::REMOTE_READ != 0
    }

    /// Tells whether the peer may execute atomic operations.
    #[inline]
    pub const fn remote_atomic(self) -> bool {
        self.0 & Self::REMOTE_ATOMIC != 0
    }

    /// Tells whether the peer may ask until what it wrote is visible to all.
    #[inline]
    pub const fn flush_global(self) -> bool {
        self.0 & Self::FLUSH_GLOBAL != 0
    }

    /// Tells whether the peer may ask until what it wrote is persistent.
    #[inline]
    pub const fn flush_persistent(self) -> bool {
        self.0 & Self::FLUSH_PERSISTENT != 0
    }
}

/// Values as `struct ib_qp_attr` brings them, before any was checked.
///
/// Only those that the mask selects mean anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// [`AttrMask::STATE`]: a number of `enum ib_qp_state`.
    pub qp_state: u32,
    /// [`AttrMask::CUR_STATE`]: a number of `enum ib_qp_state`.
    pub cur_qp_state: u32,
    /// [`AttrMask::PATH_MTU`]: a number of `enum ib_mtu`.
    pub path_mtu: u32,
    /// [`AttrMask::PATH_MIG_STATE`]: a number of `enum ib_mig_state`.
    pub path_mig_state: u32,
    /// [`AttrMask::QKEY`].
    pub qkey: u32,
    /// [`AttrMask::RQ_PSN`]: 24 bits.
    pub rq_psn: u32,
    /// [`AttrMask::SQ_PSN`]: 24 bits.
    pub sq_psn: u32,
    /// [`AttrMask::DEST_QPN`]: 24 bits.
    pub dest_qp_num: u32,
    /// [`AttrMask::ACCESS_FLAGS`]: bits of `enum ib_access_flags`.
    pub qp_access_flags: u32,
    /// [`AttrMask::PKEY_INDEX`].
    pub pkey_index: u16,
    /// [`AttrMask::EN_SQD_ASYNC_NOTIFY`]: zero means no.
    pub en_sqd_async_notify: u8,
    /// [`AttrMask::MAX_QP_RD_ATOMIC`].
    pub max_rd_atomic: u8,
    /// [`AttrMask::MAX_DEST_RD_ATOMIC`].
    pub max_dest_rd_atomic: u8,
    /// [`AttrMask::MIN_RNR_TIMER`]: a code of 5 bits.
    pub min_rnr_timer: u8,
    /// [`AttrMask::PORT`]: from 1.
    pub port_num: u32,
    /// [`AttrMask::TIMEOUT`]: a code of 5 bits.
    pub timeout: u8,
    /// [`AttrMask::RETRY_CNT`]: 3 bits.
    pub retry_cnt: u8,
    /// [`AttrMask::RNR_RETRY`]: 3 bits.
    pub rnr_retry: u8,
}

/// The attributes of a queue pair, checked: what a query returns.
///
/// The address vector and the capacities are kept by the shell. Of path migration nothing is kept:
/// it is always migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// The state that the last successful modification led to. The queue pair may have left it by
    /// itself since.
    pub state: State,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Q_Key that datagrams must present.
    pub qkey: Qkey,
    /// First PSN to expect.
    pub rq_psn: Psn,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// Queue pair number of the peer.
    pub dest_qpn: Qpn,
    /// What the peer may do.
    pub access: Access,
    /// Index of the P_Key: always zero, since a RoCE port has one P_Key.
    pub pkey_index: u16,
    /// Whether an event tells when the send queue has drained.
    pub sqd_notify: bool,
    /// How many RDMA READs may be outstanding.
    pub max_rd_atomic: u8,
    /// How many RDMA READs of the peer may be outstanding.
    pub max_dest_rd_atomic: u8,
    /// How long a peer must wait after this side was not ready: a code of 5 bits, see
    /// [`rnr_timer_ns`](crate::time::rnr_timer_ns).
    pub min_rnr_timer: u8,
    /// The port: always 1.
    pub port_num: u32,
    /// Time to wait for an ACK: a code of 5 bits, see
    /// [`ack_timeout_ns`](crate::time::ack_timeout_ns).
    pub timeout: u8,
    /// How often to retransmit before giving up: 0 to 7.
    pub retry_cnt: u8,
    /// How often to wait for a receiver that is not ready: 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
}

impl Attrs {
    /// The attributes of a queue pair that was just created, or reset.
    pub const RESET: Attrs = Attrs {
        state: State::Reset,
        path_mtu: Mtu::B256,
        qkey: Qkey::new(0),
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        dest_qpn: Qpn::new(0),
        access: Access(0),
        pkey_index: 0,
        sqd_notify: false,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        port_num: 1,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
    };
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_attr))]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_bytes_agree() {
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
    fn access_flags_are_kept_or_refused() {
        assert_eq!(
            Access::from_bits(0x3ff0_035f).map(Access::bits),
            Some(0x3ff0_035f)
        );
        // Zero-based, huge pages; then what no one defined.
        for bit in [5, 7].into_iter().chain(10..20).chain(30..32) {
            assert_eq!(Access::from_bits(1 << bit), None);
        }
    }
}
