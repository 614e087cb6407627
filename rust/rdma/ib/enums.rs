// SPDX-License-Identifier: GPL-2.0

//! Numbers of the verbs, a type for each enumeration of the core.
//!
//! The core, consumers and programs may pass numbers that a driver does not know, so these are
//! integers with names for values, not Rust enumerations. Only values with users have a name.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::bindings;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident { $($value:ident = $c:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name(u32);

            impl $name {
                $(
                    #[doc = concat!("`", stringify!($c), "`.")]
                    // CAST: Lossless; enumerations with a negative value are signed.
                    pub const $value: Self = Self(bindings::$c as u32);
                )*

                /// Wraps a number of the core.
                #[inline]
                pub const fn from_raw(number: u32) -> Self {
                    Self(number)
                }

                /// Returns the number as the core has it.
                #[inline]
                pub const fn raw(self) -> u32 {
                    self.0
                }
            }
        )*
    };
}

/// Implements sets of flags, for tuple structs of a `u32`.
macro_rules! sets {
    ($($name:ident,)*) => {
        $(impl $name {
            /// The empty set.
            pub const NONE: Self = Self(0);

            /// Returns the union of both sets.
            pub const fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns `true` if `self` has everything that `other` has.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        })*
    };
}

pub(super) use sets;

numbers! {
    /// The service type of a queue pair (`enum ib_qp_type`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::QpType;
    ///
    /// fn is_connected(ty: QpType) -> bool {
    ///     ty == QpType::RC || ty == QpType::UC
    /// }
    /// ```
    QpType {
        RC = ib_qp_type_IB_QPT_RC,
        UC = ib_qp_type_IB_QPT_UC,
    }

    /// The state of a queue pair (`enum ib_qp_state`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::QpState;
    ///
    /// fn can_receive(state: QpState) -> bool {
    ///     state != QpState::RESET && state != QpState::INIT && state != QpState::ERR
    /// }
    /// ```
    QpState {
        RESET = ib_qp_state_IB_QPS_RESET,
        INIT = ib_qp_state_IB_QPS_INIT,
        RTS = ib_qp_state_IB_QPS_RTS,
        ERR = ib_qp_state_IB_QPS_ERR,
    }

    /// A set of features requested for a new queue pair (`enum ib_qp_create_flags`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::QpCreateFlags;
    ///
    /// /// Returns whether datagrams to a group reach its members on the sending host.
    /// fn loops_back(flags: QpCreateFlags) -> bool {
    ///     !flags.contains(QpCreateFlags::BLOCK_MULTICAST_LOOPBACK)
    /// }
    /// ```
    QpCreateFlags {
        BLOCK_MULTICAST_LOOPBACK = ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK,
    }

    /// A set of attributes of a queue pair (`enum ib_qp_attr_mask`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::QpAttrMask;
    ///
    /// const PSNS: QpAttrMask = QpAttrMask::SQ_PSN.or(QpAttrMask::RQ_PSN);
    ///
    /// assert!(PSNS.contains(QpAttrMask::SQ_PSN));
    /// assert!(!PSNS.contains(QpAttrMask::STATE));
    /// ```
    QpAttrMask {
        // The bits of numbers are in `attributes!`.
        AV = ib_qp_attr_mask_IB_QP_AV,
    }

    /// The status of a completion (`enum ib_wc_status`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::WcStatus;
    ///
    /// fn is_flushed(status: WcStatus) -> bool {
    ///     status == WcStatus::WR_FLUSH_ERR
    /// }
    /// ```
    WcStatus {
        SUCCESS = ib_wc_status_IB_WC_SUCCESS,
        WR_FLUSH_ERR = ib_wc_status_IB_WC_WR_FLUSH_ERR,
    }

    /// The operation that completed (`enum ib_wc_opcode`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::WcOpcode;
    ///
    /// /// The core defines the numbers so that this bit distinguishes receives from sends.
    /// fn is_receive(opcode: WcOpcode) -> bool {
    ///     opcode.raw() & WcOpcode::RECV.raw() != 0
    /// }
    /// ```
    WcOpcode {
        SEND = ib_wc_opcode_IB_WC_SEND,
        RECV = ib_wc_opcode_IB_WC_RECV,
    }

    /// A set of flags of a completion (`enum ib_wc_flags`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::WcFlags;
    ///
    /// let flags = WcFlags::GRH.or(WcFlags::WITH_IMM);
    /// assert!(flags.contains(WcFlags::GRH));
    /// ```
    WcFlags {
        GRH = ib_wc_flags_IB_WC_GRH,
        WITH_IMM = ib_wc_flags_IB_WC_WITH_IMM,
        WITH_VLAN = ib_wc_flags_IB_WC_WITH_VLAN,
        WITH_NETWORK_HDR_TYPE = ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE,
    }

    /// The network header of a received datagram (`enum rdma_network_type`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::NetworkType;
    ///
    /// fn header_len(ty: NetworkType) -> usize {
    ///     if ty == NetworkType::IPV6 {
    ///         40
    ///     } else {
    ///         20
    ///     }
    /// }
    /// ```
    NetworkType {
        IPV4 = rdma_network_type_RDMA_NETWORK_IPV4,
        IPV6 = rdma_network_type_RDMA_NETWORK_IPV6,
    }

    /// The operation of a send work request (`enum ib_wr_opcode`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::WrOpcode;
    ///
    /// fn carries_immediate(opcode: WrOpcode) -> bool {
    ///     opcode == WrOpcode::SEND_WITH_IMM || opcode == WrOpcode::RDMA_WRITE_WITH_IMM
    /// }
    /// ```
    WrOpcode {
        RDMA_WRITE = ib_wr_opcode_IB_WR_RDMA_WRITE,
        RDMA_WRITE_WITH_IMM = ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM,
        SEND_WITH_IMM = ib_wr_opcode_IB_WR_SEND_WITH_IMM,
    }

    /// A set of flags of a send work request (`enum ib_send_flags`).
    ///
    /// # Examples
    ///
    /// ```
    /// use rdma::ib::enums::SendFlags;
    ///
    /// fn completes(flags: SendFlags) -> bool {
    ///     flags.contains(SendFlags::SIGNALED)
    /// }
    /// ```
    SendFlags {
        SIGNALED = ib_send_flags_IB_SEND_SIGNALED,
        INLINE = ib_send_flags_IB_SEND_INLINE,
    }
}

sets! {
    QpCreateFlags,
    QpAttrMask,
    WcFlags,
    SendFlags,
}
