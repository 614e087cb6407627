// SPDX-License-Identifier: GPL-2.0

//! Work queue elements (WQE) of user rings, and their validation.
//!
//! A WQE is a fixed header ([`SendWqe`], [`RecvWqe`]) followed by a tail: a list of scatter/gather
//! elements (SGE), or for a send with inline data the message itself. Whatever a process may have
//! written, the parsers return either a work request whose opcode, lengths and counts hold the
//! documented bounds, or an error that completes that request.
//!
//! The expected use is to copy the header, learn the length of the tail from [`SendWqe::tail_len`],
//! copy that, and parse both. The header is not read again after the tail was sized from it. Once
//! they are parsed, only the tail of a send WQE is needed.

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
        inline_data,
        parse_send,
        send_sges,
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

/// Longest message, in bytes, that a work request may describe: the limit of the specification.
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Bytes of the word that an atomic operation is about.
pub const WORD_LEN: usize = 8;

/// Why a WQE was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeErrorKind {
    /// The copy is shorter than the WQE claims. A driver that sizes rings as
    /// [`qp::caps`](crate::qp::caps) lays down never sees this.
    Truncated,
    /// Opcode unknown, reserved for the kernel or not carried by this driver.
    Opcode,
    /// The opcode does not exist on this transport.
    Transport,
    /// Inline data in a request that carries none.
    NotInline,
    /// More SGEs than the queue pair was created for.
    SgeCount,
    /// More inline data than the queue pair was created for, a message over [`MAX_MESSAGE`], or an
    /// atomic operation whose buffers are not as long as a word.
    Length,
    /// A UD send without an address handle.
    AddressHandle,
    /// A FLUSH that selects nothing, or something reserved.
    Flush,
}

/// A refused WQE: enough of it to complete it with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqeError {
    /// Cookie of the program, or zero if not even that could be read.
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
    /// The driver posts it and fails its slot with [`status`](Self::status) at once, so it is never
    /// transmitted.
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
fn sum_sges(tail: &[u8], count: u32, max_sge: u32) -> Result<u64, WqeErrorKind> {
    if count > max_sge {
        return Err(WqeErrorKind::SgeCount);
    }
    let sges = sges(tail, count).ok_or(WqeErrorKind::Truncated)?;
    Ok(sges.iter().fold(0, |sum: u64, sge| {
        sum.saturating_add(u64::from(sge.length.get()))
    }))
}

/// Returns the first `count` SGEs of a tail; none if it ends before.
#[inline]
fn sges(tail: &[u8], count: u32) -> Option<&[RawSge]> {
    let (sges, _) = <[RawSge]>::ref_from_prefix_with_elems(tail, count as usize).ok()?;
    Some(sges)
}
