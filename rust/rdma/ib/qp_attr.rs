// SPDX-License-Identifier: GPL-2.0

//! The attributes of a queue pair.

use super::enums::QpAttrMask;
use crate::bindings;

/// The attributes of a modify or a query, each named by its bit of [`QpAttrMask`].
///
/// # Examples
///
/// ```
/// # use rdma::ib::{enums::QpAttrMask, qp::QpAttr};
/// /// Returns the path MTU (`enum ib_mtu`), if the mask selects it.
/// fn path_mtu(attr: &QpAttr<'_>, mask: QpAttrMask) -> Option<u32> {
///     let mtu = QpAttrMask::PATH_MTU;
///     mask.contains(mtu).then(|| attr.get(mtu))
/// }
/// ```
pub struct QpAttr<'a>(pub(super) &'a mut bindings::ib_qp_attr);

macro_rules! attributes {
    ($($bit:ident = $c:ident: $field:ident: $ty:ty,)*) => {
        impl QpAttrMask {
            $(
                #[doc = concat!("`", stringify!($c), "`.")]
                pub const $bit: Self = Self::from_raw(bindings::$c);
            )*
        }

        impl QpAttr<'_> {
            /// Returns the value of an attribute, or 0 for one that is none of these.
            #[expect(clippy::cast_lossless, reason = "the fields have different types")]
            pub fn get(&self, bit: QpAttrMask) -> u32 {
                match bit {
                    // CAST: Flags are signed in C; the others are unsigned and not wider.
                    $(QpAttrMask::$bit => self.0.$field as u32,)*
                    _ => 0,
                }
            }

            /// Sets an attribute, which must fit; does nothing for one that is none of these.
            pub fn set(&mut self, bit: QpAttrMask, value: u32) {
                match bit {
                    // CAST: The value fits, and flags are signed in C.
                    $(QpAttrMask::$bit => self.0.$field = value as $ty,)*
                    _ => {}
                }
            }
        }
    };
}

attributes! {
    STATE = ib_qp_attr_mask_IB_QP_STATE: qp_state: u32,
    CUR_STATE = ib_qp_attr_mask_IB_QP_CUR_STATE: cur_qp_state: u32,
    EN_SQD_ASYNC_NOTIFY = ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify: u8,
    ACCESS_FLAGS = ib_qp_attr_mask_IB_QP_ACCESS_FLAGS: qp_access_flags: i32,
    PKEY_INDEX = ib_qp_attr_mask_IB_QP_PKEY_INDEX: pkey_index: u16,
    PORT = ib_qp_attr_mask_IB_QP_PORT: port_num: u32,
    QKEY = ib_qp_attr_mask_IB_QP_QKEY: qkey: u32,
    PATH_MTU = ib_qp_attr_mask_IB_QP_PATH_MTU: path_mtu: u32,
    TIMEOUT = ib_qp_attr_mask_IB_QP_TIMEOUT: timeout: u8,
    RETRY_CNT = ib_qp_attr_mask_IB_QP_RETRY_CNT: retry_cnt: u8,
    RNR_RETRY = ib_qp_attr_mask_IB_QP_RNR_RETRY: rnr_retry: u8,
    RQ_PSN = ib_qp_attr_mask_IB_QP_RQ_PSN: rq_psn: u32,
    MAX_QP_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC: max_rd_atomic: u8,
    MIN_RNR_TIMER = ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER: min_rnr_timer: u8,
    SQ_PSN = ib_qp_attr_mask_IB_QP_SQ_PSN: sq_psn: u32,
    MAX_DEST_RD_ATOMIC = ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic: u8,
    PATH_MIG_STATE = ib_qp_attr_mask_IB_QP_PATH_MIG_STATE: path_mig_state: u32,
    DEST_QPN = ib_qp_attr_mask_IB_QP_DEST_QPN: dest_qp_num: u32,
}

impl QpAttr<'_> {
    /// Sets whether the send queue is draining, which has no bit.
    pub fn set_sq_draining(&mut self, draining: bool) {
        self.0.sq_draining = draining.into();
    }
}
