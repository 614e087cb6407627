// SPDX-License-Identifier: GPL-2.0

//! Driver-private parts of uverbs commands and responses.
//!
//! A ring is announced by a [`MmapInfo`]: the library maps `size` bytes of the device file at
//! `offset`.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// The offset and size to map a ring with: `struct mminfo`. All zero if there is none.
///
/// Also the whole response to CREATE_CQ and RESIZE_CQ: `struct rxe_create_cq_resp`,
/// `struct rxe_resize_cq_resp`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct MmapInfo {
    /// Cookie to pass to mmap(2) as the offset; a multiple of the page size.
    pub offset: u64,
    /// Bytes to map.
    pub size: u32,
    /// Zero.
    pub pad: u32,
}

/// Response to CREATE_AH: `struct rxe_create_ah_resp`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub struct CreateAhResp {
    /// Number by which UD sends name the address handle. It is never zero, which a library that
    /// does not know of the numbers would send.
    pub ah_num: u32,
    /// Zero.
    pub reserved: u32,
}

/// Response to CREATE_QP: `struct rxe_create_qp_resp`.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct CreateQpResp {
    /// Ring of receive WQEs; zero if the queue pair takes them from an SRQ.
    pub rq_mi: MmapInfo,
    /// Ring of send WQEs.
    pub sq_mi: MmapInfo,
}

/// Response to CREATE_SRQ: `struct rxe_create_srq_resp`.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct CreateSrqResp {
    /// Ring of receive WQEs.
    pub mi: MmapInfo,
    /// Number of the SRQ.
    pub srq_num: u32,
    /// Zero.
    pub reserved: u32,
}

/// Private part of the MODIFY_SRQ command: `struct rxe_modify_srq_cmd`.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
pub struct ModifySrqCmd {
    /// Address in the process to which the [`MmapInfo`] of a resized ring is written, because the
    /// command has no response.
    pub mmap_info_addr: u64,
}

const _: () = {
    assert!(size_of::<MmapInfo>() == 16);
    assert!(size_of::<CreateAhResp>() == 8);
    assert!(size_of::<CreateQpResp>() == 32);
    assert!(size_of::<CreateSrqResp>() == 24);
    assert!(size_of::<ModifySrqCmd>() == 8);
};
