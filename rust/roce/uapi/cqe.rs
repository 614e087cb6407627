// SPDX-License-Identifier: GPL-2.0

//! Completion queue elements (CQE) of user rings.

use crate::{
    ids::{
        Qpn,
        Rkey, //
    },
    wr::{
        SendOp,
        Status, //
    }, //
};
use core::mem::{
    offset_of,
    size_of, //
};
use zerocopy::byteorder::native_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Bytes in a CQE. Slots of the ring are longer: see [`Ring::new`](super::ring::Ring::new).
pub const CQE_LEN: usize = size_of::<RawCqe>();

/// `IB_WC_GRH`: the first 40 bytes of the receive buffer are the GRH area.
pub const WC_GRH: u32 = 1 << 0;
/// `IB_WC_WITH_IMM`: the immediate data is valid.
pub const WC_WITH_IMM: u32 = 1 << 1;
/// `IB_WC_WITH_INVALIDATE`: the key in the field of immediate data was invalidated.
pub const WC_WITH_INVALIDATE: u32 = 1 << 2;
/// `IBV_WC_WITH_INV`: the same for a program, for which the bit of the kernel has another meaning.
pub const WC_USER_WITH_INVALIDATE: u32 = 1 << 3;

/// The service level of a datagram that was received over IPv6.
pub const WC_SL_IPV6: u8 = 1;
/// The same for IPv4.
pub const WC_SL_IPV4: u8 = 2;

/// Layout of `struct ib_uverbs_wc`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCqe {
    wr_id: U64,
    status: U32,
    opcode: U32,
    vendor_err: U32,
    byte_len: U32,
    /// Immediate data, in network order, or the key that was invalidated, in host order.
    ex: [u8; 4],
    qp_num: U32,
    src_qp: U32,
    wc_flags: U32,
    pkey_index: U16,
    slid: U16,
    sl: u8,
    dlid_path_bits: u8,
    port_num: u8,
    reserved: u8,
}

const _: () = {
    assert!(CQE_LEN == 48);
    assert!(offset_of!(RawCqe, status) == 8);
    assert!(offset_of!(RawCqe, ex) == 24);
    assert!(offset_of!(RawCqe, src_qp) == 32);
    assert!(offset_of!(RawCqe, wc_flags) == 36);
    assert!(offset_of!(RawCqe, pkey_index) == 40);
    assert!(offset_of!(RawCqe, port_num) == 46);
};

/// The operation that completed: the values of `enum ib_wc_opcode` that this driver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WcOpcode {
    /// A SEND, with or without immediate data.
    Send = 0,
    /// An RDMA WRITE, with or without immediate data.
    RdmaWrite = 1,
    /// An RDMA READ.
    RdmaRead = 2,
    /// A compare and swap.
    CompSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// The binding of a memory window.
    BindMw = 5,
    /// The invalidation of a local key.
    LocalInv = 6,
    /// A FLUSH.
    Flush = 8,
    /// An ATOMIC WRITE.
    AtomicWrite = 9,
    /// A fast registration. Kernel consumers only.
    RegMr = 10,
    /// A receive that a SEND filled.
    Recv = 1 << 7,
    /// A receive that an RDMA WRITE with immediate data consumed.
    RecvRdmaWithImm = (1 << 7) | 1,
}

impl WcOpcode {
    /// Returns the number in `enum ib_wc_opcode`.
    #[inline]
    pub const fn as_ib(self) -> u32 {
        self as u32
    }
}

impl From<SendOp> for WcOpcode {
    #[inline]
    fn from(op: SendOp) -> Self {
        match op {
            SendOp::Send | SendOp::SendImm | SendOp::SendInv => Self::Send,
            SendOp::Write | SendOp::WriteImm => Self::RdmaWrite,
            SendOp::Read => Self::RdmaRead,
            SendOp::CompareSwap => Self::CompSwap,
            SendOp::FetchAdd => Self::FetchAdd,
            SendOp::AtomicWrite => Self::AtomicWrite,
            SendOp::Flush => Self::Flush,
            SendOp::LocalInv => Self::LocalInv,
            SendOp::RegMr => Self::RegMr,
            SendOp::BindMw => Self::BindMw,
        }
    }
}

/// A completion, for a user ring or for the kernel's poll verb.
///
/// Fields without a meaning on RoCE (LID, path bits) are reported as zero.
#[derive(Clone, Copy, Debug)]
pub struct Cqe {
    /// Cookie of the work request.
    pub wr_id: u64,
    /// The status. On error, only this, `wr_id` and `qpn` are defined.
    pub status: Status,
    /// The operation.
    pub opcode: WcOpcode,
    /// Bytes transferred; for a UD receive including the 40 bytes of GRH area.
    pub byte_len: u32,
    /// Immediate data in network order.
    pub imm: Option<[u8; 4]>,
    /// The key that the peer invalidated. Never together with immediate data.
    pub invalidated: Option<Rkey>,
    /// The queue pair that the work request was posted to.
    pub qpn: Qpn,
    /// The source QPN of a UD message, otherwise zero.
    pub src_qpn: Qpn,
    /// True if the receive buffer starts with the GRH area (UD).
    pub grh: bool,
    /// The service level, which RoCE does not have.
    ///
    /// For a UD receive it is the version of the IP header in the GRH area (`WC_SL_IPV4`,
    /// `WC_SL_IPV6`), as with mlx5. UCX reads it to find the destination address in the GRH area,
    /// and drops datagrams that seem to be for another address.
    pub sl: u8,
}

impl Cqe {
    /// Returns the flags of `enum ib_wc_flags` that apply.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.common_flags() | self.invalidated.map_or(0, |_| WC_WITH_INVALIDATE)
    }

    /// Returns the immediate data or the invalidated key, which share a union.
    #[inline]
    pub fn ex(&self) -> [u8; 4] {
        match (self.imm, self.invalidated) {
            (Some(imm), _) => imm,
            (None, Some(rkey)) => rkey.get().to_ne_bytes(),
            (None, None) => [0; 4],
        }
    }

    /// Returns the flags that have the same bits for programs and in the kernel.
    #[inline]
    fn common_flags(&self) -> u32 {
        let imm = if self.imm.is_some() { WC_WITH_IMM } else { 0 };
        let grh = if self.grh { WC_GRH } else { 0 };
        imm | grh
    }

    /// Writes the completion as `struct ib_uverbs_wc`. Every byte is written.
    ///
    /// `port_num` and `pkey_index` stay zero: both are defined for management queue pairs only,
    /// which processes do not have.
    #[inline]
    pub fn write(&self, out: &mut [u8; CQE_LEN]) {
        let raw = RawCqe {
            wr_id: U64::new(self.wr_id),
            status: U32::new(self.status.as_ib()),
            opcode: U32::new(self.opcode.as_ib()),
            vendor_err: U32::ZERO,
            byte_len: U32::new(self.byte_len),
            ex: self.ex(),
            qp_num: U32::new(self.qpn.get()),
            src_qp: U32::new(self.src_qpn.get()),
            wc_flags: U32::new(
                self.common_flags() | self.invalidated.map_or(0, |_| WC_USER_WITH_INVALIDATE),
            ),
            pkey_index: U16::ZERO,
            slid: U16::ZERO,
            sl: self.sl,
            dlid_path_bits: 0,
            port_num: 0,
            reserved: 0,
        };
        *out = zerocopy::transmute!(raw);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_uapi_cqe))]
mod tests {
    use super::*;

    const RECV: Cqe = Cqe {
        wr_id: 0x0102_0304_0506_0708,
        status: Status::Success,
        opcode: WcOpcode::RecvRdmaWithImm,
        byte_len: 4096,
        imm: Some([0xde, 0xad, 0xbe, 0xef]),
        invalidated: None,
        qpn: Qpn::new(0x11),
        src_qpn: Qpn::new(0x22),
        grh: true,
        sl: WC_SL_IPV4,
    };

    #[test]
    fn cqe_layout_matches_uapi() {
        let mut out = [0xff; CQE_LEN];
        RECV.write(&mut out);
        let word = |at: usize| u32::from_ne_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
        assert_eq!(out[..8], 0x0102_0304_0506_0708u64.to_ne_bytes());
        assert_eq!(word(8), 0);
        assert_eq!(word(12), 129);
        assert_eq!(word(16), 0);
        assert_eq!(word(20), 4096);
        assert_eq!(out[24..28], [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(word(28), 0x11);
        assert_eq!(word(32), 0x22);
        assert_eq!(word(36), WC_GRH | WC_WITH_IMM);
        assert_eq!(out[40..], [0, 0, 0, 0, WC_SL_IPV4, 0, 0, 0]);
    }

    #[test]
    fn with_invalidate_flag_differs_in_uapi() {
        let mut out = [0; CQE_LEN];
        let invalidated = Cqe {
            imm: None,
            invalidated: Some(Rkey::new(0x1234)),
            grh: false,
            ..RECV
        };
        invalidated.write(&mut out);
        assert_eq!(out[24..28], 0x1234u32.to_ne_bytes());
        assert_eq!(out[36..40], 8u32.to_ne_bytes());
        assert_eq!(invalidated.flags(), 4);
    }

    #[test]
    fn error_cqe_carries_status() {
        let mut out = [0; CQE_LEN];
        let flushed = Cqe {
            status: Status::WrFlush,
            imm: None,
            grh: false,
            ..RECV
        };
        flushed.write(&mut out);
        assert_eq!(out[8..12], 5u32.to_ne_bytes());
        assert_eq!(out[24..28], [0; 4]);
        assert_eq!(out[36..40], [0; 4]);
    }
}
