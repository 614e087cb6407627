// SPDX-License-Identifier: GPL-2.0

//! Numbers of the verbs, a type for each enumeration of the core.
//!
//! The core, consumers and programs may pass numbers that a driver does not know, so these are
//! integers with names for values, not Rust enumerations.
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
        SMI = ib_qp_type_IB_QPT_SMI,
        GSI = ib_qp_type_IB_QPT_GSI,
        RC = ib_qp_type_IB_QPT_RC,
        UC = ib_qp_type_IB_QPT_UC,
        UD = ib_qp_type_IB_QPT_UD,
        RAW_PACKET = ib_qp_type_IB_QPT_RAW_PACKET,
        XRC_INI = ib_qp_type_IB_QPT_XRC_INI,
        XRC_TGT = ib_qp_type_IB_QPT_XRC_TGT,
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
        RTR = ib_qp_state_IB_QPS_RTR,
        RTS = ib_qp_state_IB_QPS_RTS,
        SQD = ib_qp_state_IB_QPS_SQD,
        SQE = ib_qp_state_IB_QPS_SQE,
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
        INTEGRITY_EN = ib_qp_create_flags_IB_QP_CREATE_INTEGRITY_EN,
        SCATTER_FCS = ib_qp_create_flags_IB_QP_CREATE_SCATTER_FCS,
        CVLAN_STRIPPING = ib_qp_create_flags_IB_QP_CREATE_CVLAN_STRIPPING,
        SOURCE_QPN = ib_qp_create_flags_IB_QP_CREATE_SOURCE_QPN,
        PCI_WRITE_END_PADDING = ib_qp_create_flags_IB_QP_CREATE_PCI_WRITE_END_PADDING,
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
        STATE = ib_qp_attr_mask_IB_QP_STATE,
        CUR_STATE = ib_qp_attr_mask_IB_QP_CUR_STATE,
        EN_SQD_ASYNC_NOTIFY = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY,
        ACCESS_FLAGS = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
        PKEY_INDEX = ib_qp_attr_mask_IB_QP_PKEY_INDEX,
        PORT = ib_qp_attr_mask_IB_QP_PORT,
        QKEY = ib_qp_attr_mask_IB_QP_QKEY,
        AV = ib_qp_attr_mask_IB_QP_AV,
        PATH_MTU = ib_qp_attr_mask_IB_QP_PATH_MTU,
        TIMEOUT = ib_qp_attr_mask_IB_QP_TIMEOUT,
        RETRY_CNT = ib_qp_attr_mask_IB_QP_RETRY_CNT,
        RNR_RETRY = ib_qp_attr_mask_IB_QP_RNR_RETRY,
        RQ_PSN = ib_qp_attr_mask_IB_QP_RQ_PSN,
        MAX_QP_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        MIN_RNR_TIMER = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        SQ_PSN = ib_qp_attr_mask_IB_QP_SQ_PSN,
        MAX_DEST_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
        PATH_MIG_STATE = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE,
        DEST_QPN = ib_qp_attr_mask_IB_QP_DEST_QPN,
        RATE_LIMIT = ib_qp_attr_mask_IB_QP_RATE_LIMIT,
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
        LOC_LEN_ERR = ib_wc_status_IB_WC_LOC_LEN_ERR,
        LOC_QP_OP_ERR = ib_wc_status_IB_WC_LOC_QP_OP_ERR,
        LOC_PROT_ERR = ib_wc_status_IB_WC_LOC_PROT_ERR,
        WR_FLUSH_ERR = ib_wc_status_IB_WC_WR_FLUSH_ERR,
        MW_BIND_ERR = ib_wc_status_IB_WC_MW_BIND_ERR,
        BAD_RESP_ERR = ib_wc_status_IB_WC_BAD_RESP_ERR,
        LOC_ACCESS_ERR = ib_wc_status_IB_WC_LOC_ACCESS_ERR,
        REM_INV_REQ_ERR = ib_wc_status_IB_WC_REM_INV_REQ_ERR,
        REM_ACCESS_ERR = ib_wc_status_IB_WC_REM_ACCESS_ERR,
        REM_OP_ERR = ib_wc_status_IB_WC_REM_OP_ERR,
        RETRY_EXC_ERR = ib_wc_status_IB_WC_RETRY_EXC_ERR,
        RNR_RETRY_EXC_ERR = ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
        FATAL_ERR = ib_wc_status_IB_WC_FATAL_ERR,
        GENERAL_ERR = ib_wc_status_IB_WC_GENERAL_ERR,
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
        RDMA_WRITE = ib_wc_opcode_IB_WC_RDMA_WRITE,
        RDMA_READ = ib_wc_opcode_IB_WC_RDMA_READ,
        COMP_SWAP = ib_wc_opcode_IB_WC_COMP_SWAP,
        FETCH_ADD = ib_wc_opcode_IB_WC_FETCH_ADD,
        BIND_MW = ib_wc_opcode_IB_WC_BIND_MW,
        LOCAL_INV = ib_wc_opcode_IB_WC_LOCAL_INV,
        FLUSH = ib_wc_opcode_IB_WC_FLUSH,
        ATOMIC_WRITE = ib_wc_opcode_IB_WC_ATOMIC_WRITE,
        REG_MR = ib_wc_opcode_IB_WC_REG_MR,
        RECV = ib_wc_opcode_IB_WC_RECV,
        RECV_RDMA_WITH_IMM = ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM,
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
        WITH_INVALIDATE = ib_wc_flags_IB_WC_WITH_INVALIDATE,
        WITH_VLAN = ib_wc_flags_IB_WC_WITH_VLAN,
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
        SEND = ib_wr_opcode_IB_WR_SEND,
        SEND_WITH_IMM = ib_wr_opcode_IB_WR_SEND_WITH_IMM,
        SEND_WITH_INV = ib_wr_opcode_IB_WR_SEND_WITH_INV,
        RDMA_READ = ib_wr_opcode_IB_WR_RDMA_READ,
        ATOMIC_CMP_AND_SWP = ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP,
        ATOMIC_FETCH_AND_ADD = ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD,
        LOCAL_INV = ib_wr_opcode_IB_WR_LOCAL_INV,
        REG_MR = ib_wr_opcode_IB_WR_REG_MR,
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
        FENCE = ib_send_flags_IB_SEND_FENCE,
        SIGNALED = ib_send_flags_IB_SEND_SIGNALED,
        SOLICITED = ib_send_flags_IB_SEND_SOLICITED,
        INLINE = ib_send_flags_IB_SEND_INLINE,
    }
}

sets! {
    QpCreateFlags,
    QpAttrMask,
    WcFlags,
    SendFlags,
}
