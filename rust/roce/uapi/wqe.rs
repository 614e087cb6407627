// SPDX-License-Identifier: GPL-2.0

//! Work queue elements (WQE) of user rings, and their validation.
//!
//! A WQE is a fixed header ([`SendWqe`], [`RecvWqe`]) followed by a tail: a list of scatter/gather
//! elements (SGE), or for a send with inline data the message itself. A process may have written
//! anything. The parsers return either a work request whose opcode, lengths and counts are within
//! the documented bounds, or an error that completes the request.
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
        RegArgs,
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

use crate::wr::{
    SendOp,
    SendWr,
    Status, //
};
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

/// The reason for refusing a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeErrorKind {
    /// The copy is shorter than the WQE. This cannot happen if it is as long as `tail_len` says.
    Truncated,
    /// The opcode is unknown, reserved for the kernel or not supported by this driver.
    Opcode,
    /// The opcode does not exist on this transport.
    Transport,
    /// Inline data in a request that cannot carry any.
    NotInline,
    /// More SGEs than the queue pair was created for.
    SgeCount,
    /// More inline data than the queue pair was created for, a message over
    /// [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN), or an atomic operation whose buffers are
    /// not as long as a word.
    Length,
    /// A UD send without an address handle.
    AddressHandle,
    /// A FLUSH that selects nothing, or something reserved.
    Flush,
}

/// A refused WQE, with the data that its completion needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqeError {
    /// Cookie of the program, or zero if the WQE is too short to have one.
    pub wr_id: u64,
    /// Reason of the refusal.
    pub kind: WqeErrorKind,
}

impl WqeError {
    /// Returns the status that the request completes with.
    pub fn status(&self) -> Status {
        match self.kind {
            WqeErrorKind::Length => Status::LocLen,
            WqeErrorKind::Truncated
            | WqeErrorKind::Opcode
            | WqeErrorKind::Transport
            | WqeErrorKind::NotInline
            | WqeErrorKind::SgeCount
            | WqeErrorKind::AddressHandle
            | WqeErrorKind::Flush => Status::LocQpOp,
        }
    }

    /// Returns an empty send that takes the place of the refused WQE in the order of completions.
    ///
    /// The driver posts it and immediately fails its slot with [`status`](Self::status), so it is
    /// never transmitted.
    pub fn placeholder(&self) -> SendWr {
        SendWr {
            wr_id: self.wr_id,
            op: SendOp::Send,
            signalled: true,
            ..SendWr::default()
        }
    }
}

/// Adds the lengths of `count` SGEs, which cannot overflow 64 bits.
#[inline]
fn sum_sges(tail: &[u8], count: u32, max_sge: u32) -> Result<u64, WqeErrorKind> {
    if count > max_sge {
        return Err(WqeErrorKind::SgeCount);
    }
    let sges = sges(tail, count).ok_or(WqeErrorKind::Truncated)?;
    Ok(sges.iter().fold(0, |sum: u64, sge| {
        sum.wrapping_add(u64::from(sge.length.get()))
    }))
}

/// Returns the first `count` SGEs of a tail, or `None` if the tail is shorter.
#[inline]
pub fn sges(tail: &[u8], count: u32) -> Option<&[RawSge]> {
    let (sges, _) = <[RawSge]>::ref_from_prefix_with_elems(tail, count as usize).ok()?;
    Some(sges)
}
