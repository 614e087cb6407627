// SPDX-License-Identifier: GPL-2.0

//! Work queue elements (WQE) of user rings, and their validation.
//!
//! A WQE is a fixed header ([`SendWqe`], [`RecvWqe`]) followed by a tail: a list of scatter/gather
//! elements (SGE), or for a send with inline data the message itself. A process may have written
//! anything. The parsers return either a work request whose opcode, lengths and counts are within
//! the documented bounds, or an error with which the driver completes the request.
//!
//! The driver copies the header, gets the length of the tail from [`SendWqe::tail_len`], copies the
//! tail, and parses both copies. It does not read the header again after that. Once both are
//! parsed, only the tail of a send WQE is needed.

mod layout;
mod recv;
mod send;

pub use self::{
    layout::{
        AtomicArgs,
        BindArgs,
        DmaInfo,
        FlushArgs,
        RawSge,
        RdmaArgs,
        RecvWqe,
        SendWqe,
        UdArgs,
        RECV_WQE_LEN,
        SEND_FENCE,
        SEND_INLINE,
        SEND_SIGNALED,
        SEND_SOLICITED,
        SEND_WQE_LEN,
        SGE_LEN, //
    },
    recv::{
        parse_recv,
        recv_sges,
        RecvWr, //
    },
    send::{
        ah_num,
        effective_qkey,
        parse_send,
        Payload,
        SendLimits, //
    }, //
};

use crate::wr::SendOp;
use zerocopy::FromBytes;

/// The size of the operand of an atomic operation in bytes.
pub const WORD_LEN: usize = 8;

/// `IB_WR_ATOMIC_WRITE`.
const OPCODE_ATOMIC_WRITE: u32 = 15;

/// Maps `enum ib_wr_opcode` to the operations of this driver. `kernel` is true for a kernel
/// consumer.
pub fn send_op(opcode: u32, kernel: bool) -> Option<SendOp> {
    match opcode {
        0 => Some(SendOp::Write),
        1 => Some(SendOp::WriteImm),
        2 => Some(SendOp::Send),
        3 => Some(SendOp::SendImm),
        4 => Some(SendOp::Read),
        5 => Some(SendOp::CompareSwap),
        6 => Some(SendOp::FetchAdd),
        7 => Some(SendOp::LocalInv),
        8 if !kernel => Some(SendOp::BindMw),
        9 => Some(SendOp::SendInv),
        // The kernel has no structure for the arguments of these.
        14 if !kernel => Some(SendOp::Flush),
        OPCODE_ATOMIC_WRITE if !kernel => Some(SendOp::AtomicWrite),
        32 if kernel => Some(SendOp::RegMr),
        _ => None,
    }
}

/// Adds the lengths of `count` SGEs, which cannot overflow 64 bits.
///
/// Returns `None` if there are more than `max_sge`, or if the tail is shorter.
#[inline]
fn sum_sges(tail: &[u8], count: u32, max_sge: u32) -> Option<u64> {
    if count > max_sge {
        return None;
    }
    let lengths = sges(tail, count)?.iter().map(|sge| sge.length.get());
    Some(lengths.fold(0, |sum: u64, length| sum.wrapping_add(u64::from(length))))
}

/// Returns the first `count` SGEs of a tail, or `None` if the tail is shorter.
#[inline]
pub fn sges(tail: &[u8], count: u32) -> Option<&[RawSge]> {
    let (sges, _) = <[RawSge]>::ref_from_prefix_with_elems(tail, count as usize).ok()?;
    Some(sges)
}
