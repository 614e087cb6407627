// SPDX-License-Identifier: GPL-2.0

//! Layout of work queue elements in user rings.
//!
//! All integers are in host byte order unless noted. The types have no alignment, so a copy of a
//! WQE can lie anywhere.

use super::{
    SendLimits,
    OPCODE_ATOMIC_WRITE,
    WORD_LEN, //
};
use crate::wr::LocalArgs;
use core::mem::{
    offset_of,
    size_of, //
};
use zerocopy::{
    byteorder::native_endian::{
        U16,
        U32,
        U64, //
    },
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Bytes in one scatter/gather element.
pub const SGE_LEN: usize = size_of::<RawSge>();

/// Bytes in the header of a send WQE; its tail follows.
pub const SEND_WQE_LEN: usize = size_of::<SendWqe>();

/// Bytes in the header of a receive WQE; its list of SGEs follows.
pub const RECV_WQE_LEN: usize = size_of::<RecvWqe>();

/// `IB_SEND_FENCE`: wait for the explicit responses to all earlier requests of this queue.
pub const SEND_FENCE: u32 = 1 << 0;
/// `IB_SEND_SIGNALED`: make a completion also on success.
pub const SEND_SIGNALED: u32 = 1 << 1;
/// `IB_SEND_SOLICITED`: ask for a solicited event at the receiver.
pub const SEND_SOLICITED: u32 = 1 << 2;
/// `IB_SEND_INLINE`: the tail is the message, not a list of SGEs.
pub const SEND_INLINE: u32 = 1 << 3;

/// Fixed part of a send WQE: `struct rxe_send_wqe`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SendWqe {
    /// Cookie of the program, returned in the completion.
    pub wr_id: U64,
    /// Unused.
    pub reserved: U32,
    /// One of `enum ib_uverbs_wr_opcode`.
    pub opcode: U32,
    /// Set of `SEND_*`. Unknown bits are ignored, as C rxe does.
    pub send_flags: U32,
    /// Immediate data in network order, or the key that a SEND with invalidate or a LOCAL_INV
    /// names.
    pub ex: [u8; 4],
    /// A union that the opcode and the transport select: [`RdmaArgs`], [`AtomicArgs`],
    /// [`FlushArgs`], [`BindArgs`] or [`UdArgs`].
    pub args: [u8; 120],
    /// The progress of a WQE in C rxe. A process could forge it, so it is neither read nor written.
    pub scratch: [u8; 40],
    /// Lengths and counts of the tail.
    pub dma: DmaInfo,
}

/// Arguments of RDMA READ, RDMA WRITE and ATOMIC WRITE: `rdma` in the union of
/// `struct rxe_send_wr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RdmaArgs {
    /// Virtual address at the peer.
    pub remote_addr: U64,
    /// Key of the peer's memory region.
    pub rkey: U32,
    /// Unused.
    pub reserved: U32,
}

/// Arguments of compare and swap, and of fetch and add: `atomic` in the union of
/// `struct rxe_send_wr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct AtomicArgs {
    /// Virtual address of the word at the peer.
    pub remote_addr: U64,
    /// The value to compare with, or to add.
    pub compare_add: U64,
    /// The value to store. Compare and swap only.
    pub swap: U64,
    /// Key of the peer's memory region.
    pub rkey: U32,
    /// Unused.
    pub reserved: U32,
}

/// Arguments of FLUSH: `flush` in the union of `struct rxe_send_wr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FlushArgs {
    /// Virtual address at the peer.
    pub remote_addr: U64,
    /// Unused: the library puts the bytes of the range into [`DmaInfo::length`].
    pub length: U32,
    /// Key of the peer's memory region.
    pub rkey: U32,
    /// Set of `enum ib_placement_type`.
    pub placement: u8,
    /// `enum ib_selectivity_level`.
    pub level: u8,
}

/// Arguments of the binding of a memory window: `mw` in the union of `struct rxe_send_wr`.
///
/// A fast registration, which only kernel consumers request, uses them too.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BindArgs {
    /// First byte, in the address space of the memory region. Registration: the address that
    /// requests use for it.
    pub addr: U64,
    /// Bytes. Binding only.
    pub length: U64,
    /// Key of the memory region. Binding only.
    pub mr_lkey: U32,
    /// Current key of the window. Binding only.
    pub mw_rkey: U32,
    /// New key of the window, or of the region to register.
    pub rkey: U32,
    /// Set of `enum ib_access_flags`.
    pub access: U32,
}

/// Arguments of a send on a UD queue pair: `ud` in the union of `struct rxe_send_wr`.
///
/// The address vector that a process may have put behind these is ignored. The kernel uses its own
/// validated copy, which `ah_num` names.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UdArgs {
    /// Queue pair number at the peer.
    pub remote_qpn: U32,
    /// Q_Key to send; see [`effective_qkey`](super::effective_qkey).
    pub remote_qkey: U32,
    /// Unused: a RoCE port has one P_Key.
    pub pkey_index: U16,
    /// Unused.
    pub reserved: U16,
    /// Number of the address handle, from [`CreateAhResp`](crate::uapi::resp::CreateAhResp); never
    /// zero.
    pub ah_num: U32,
}

/// Lengths and counts of a tail: `struct rxe_dma_info`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DmaInfo {
    /// Bytes in the message. Authoritative for inline data, ATOMIC WRITE and FLUSH only.
    pub length: U32,
    /// Progress of C rxe: ignored.
    pub resid: U32,
    /// Progress of C rxe: ignored.
    pub cur_sge: U32,
    /// Elements in the list of SGEs.
    pub num_sge: U32,
    /// Progress of C rxe: ignored.
    pub sge_offset: U32,
    /// Unused.
    pub reserved: U32,
}

/// A scatter/gather element in a ring: `struct rxe_sge`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSge {
    /// First byte, in the address space of the memory region.
    pub addr: U64,
    /// Bytes.
    pub length: U32,
    /// Key of the memory region.
    pub lkey: U32,
}

/// Fixed part of a receive WQE: `struct rxe_recv_wqe`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RecvWqe {
    /// Cookie of the program, returned in the completion.
    pub wr_id: U64,
    /// Unused.
    pub reserved: U32,
    /// Unused.
    pub padding: U32,
    /// Counts of the tail.
    pub dma: DmaInfo,
}

const _: () = {
    assert!(size_of::<SendWqe>() == 208);
    assert!(offset_of!(SendWqe, opcode) == 12);
    assert!(offset_of!(SendWqe, send_flags) == 16);
    assert!(offset_of!(SendWqe, ex) == 20);
    assert!(offset_of!(SendWqe, args) == 24);
    assert!(offset_of!(SendWqe, scratch) == 144);
    assert!(offset_of!(SendWqe, dma) == 184);
    assert!(size_of::<AtomicArgs>() >= size_of::<RdmaArgs>());
    assert!(size_of::<AtomicArgs>() >= size_of::<FlushArgs>());
    assert!(size_of::<AtomicArgs>() >= size_of::<BindArgs>());
    assert!(size_of::<AtomicArgs>() >= size_of::<UdArgs>());
    assert!(offset_of!(RdmaArgs, rkey) == 8);
    assert!(offset_of!(AtomicArgs, compare_add) == 8);
    assert!(offset_of!(AtomicArgs, swap) == 16);
    assert!(offset_of!(AtomicArgs, rkey) == 24);
    assert!(offset_of!(FlushArgs, rkey) == 12);
    assert!(offset_of!(FlushArgs, placement) == 16);
    assert!(offset_of!(BindArgs, mr_lkey) == 16);
    assert!(offset_of!(BindArgs, access) == 28);
    assert!(offset_of!(UdArgs, remote_qkey) == 4);
    assert!(offset_of!(UdArgs, ah_num) == 12);
    assert!(size_of::<DmaInfo>() == 24);
    assert!(offset_of!(DmaInfo, num_sge) == 12);
    assert!(size_of::<RawSge>() == 16);
    assert!(size_of::<RecvWqe>() == 40);
    assert!(offset_of!(RecvWqe, dma) == 16);
};

impl From<&BindArgs> for LocalArgs {
    fn from(bind: &BindArgs) -> LocalArgs {
        LocalArgs {
            addr: bind.addr.get(),
            length: bind.length.get(),
            mr_lkey: bind.mr_lkey.get(),
            mw_rkey: bind.mw_rkey.get(),
            access: bind.access.get(),
        }
    }
}

impl SendWqe {
    /// The offset of [`DmaInfo`] in an element, in bytes.
    pub const DMA: usize = offset_of!(SendWqe, dma);

    /// Returns the front of an element up to the end of the longest arguments. A copy needs no more
    /// than this and [`DmaInfo`].
    #[inline]
    pub fn front_mut(&mut self) -> &mut [u8] {
        const LEN: usize = offset_of!(SendWqe, args) + size_of::<AtomicArgs>();

        self.as_mut_bytes().get_mut(..LEN).unwrap_or_default()
    }

    /// Returns the number of bytes of the tail that [`parse_send`](super::parse_send) needs.
    ///
    /// The result is bounded by `limits`, not by the contents of the WQE.
    #[inline]
    pub fn tail_len(&self, limits: &SendLimits) -> usize {
        if self.opcode.get() == OPCODE_ATOMIC_WRITE {
            WORD_LEN
        } else if self.send_flags.get() & SEND_INLINE != 0 {
            self.dma.length.get().min(limits.max_inline) as usize
        } else {
            (self.dma.num_sge.get().min(limits.max_sge) as usize).saturating_mul(SGE_LEN)
        }
    }
}

impl SendLimits {
    /// Returns the maximum of [`SendWqe::tail_len`], in bytes.
    pub fn max_tail_len(&self) -> usize {
        let sges = (self.max_sge as usize).saturating_mul(SGE_LEN);

        sges.max(self.max_inline as usize).max(WORD_LEN)
    }
}

impl RecvWqe {
    /// Returns the number of bytes of the tail that [`parse_recv`](super::parse_recv) needs.
    #[inline]
    pub fn tail_len(&self, max_sge: u32) -> usize {
        (self.dma.num_sge.get().min(max_sge) as usize).saturating_mul(SGE_LEN)
    }
}
