// SPDX-License-Identifier: GPL-2.0

//! Validated work requests, and their completion status.

use core::ffi::CStr;

use crate::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::Transport,
    wire::Feth, //
};

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOp {
    /// Fill a receive buffer of the peer.
    #[default]
    Send,
    /// Fill a receive buffer of the peer, with immediate data.
    SendImm,
    /// Write to memory of the peer.
    Write,
    /// Write to memory of the peer, then consume one of its receive requests for immediate data.
    WriteImm,
    /// Read memory of the peer.
    Read,
    /// Fill a receive buffer of the peer, and invalidate a key of the peer.
    SendInv,
    /// Compare and swap a word of the peer atomically, and return the original value.
    CompareSwap,
    /// Add to a word of the peer atomically, and return the original value.
    FetchAdd,
    /// Store a word at the peer in one step.
    AtomicWrite,
    /// Wait until earlier writes to the peer are globally visible, or persistent.
    Flush,
    /// Invalidate a local key.
    LocalInv,
    /// Make mapped memory available under a key. Kernel consumers only.
    RegMr,
    /// Bind a memory window.
    BindMw,
}

impl SendOp {
    /// Returns the name of the operation.
    pub const fn name(self) -> &'static CStr {
        match self {
            SendOp::Send => c"SEND",
            SendOp::SendImm => c"SEND_IMM",
            SendOp::Write => c"WRITE",
            SendOp::WriteImm => c"WRITE_IMM",
            SendOp::Read => c"READ",
            SendOp::SendInv => c"SEND_INV",
            SendOp::CompareSwap => c"COMPARE_SWAP",
            SendOp::FetchAdd => c"FETCH_ADD",
            SendOp::AtomicWrite => c"ATOMIC_WRITE",
            SendOp::Flush => c"FLUSH",
            SendOp::LocalInv => c"LOCAL_INV",
            SendOp::RegMr => c"REG_MR",
            SendOp::BindMw => c"BIND_MW",
        }
    }

    /// Returns whether a service type has the operation.
    #[inline]
    pub const fn is_on(self, transport: Transport) -> bool {
        match transport {
            Transport::Rc => true,
            // The specification has no SEND with invalidate for UC (table 38).
            Transport::Uc => !self.has_explicit_response() && !matches!(self, SendOp::SendInv),
            Transport::Ud => matches!(self, SendOp::Send | SendOp::SendImm),
        }
    }

    /// Returns whether the operation is executed locally, without a packet.
    #[inline]
    pub const fn is_local(self) -> bool {
        matches!(self, SendOp::LocalInv | SendOp::RegMr | SendOp::BindMw)
    }

    /// Returns whether the operation is an atomic one that returns the original value.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, SendOp::CompareSwap | SendOp::FetchAdd)
    }

    /// Returns whether the operation has an explicit response, which no later acknowledgment
    /// replaces.
    ///
    /// The number of outstanding ones is limited, and a fenced request waits for all of them.
    #[inline]
    pub const fn has_explicit_response(self) -> bool {
        matches!(
            self,
            SendOp::Read
                | SendOp::CompareSwap
                | SendOp::FetchAdd
                | SendOp::AtomicWrite
                | SendOp::Flush
        )
    }
}

/// A send work request that was copied out of its ring and validated.
///
/// Only the driver knows the local data, by the slot that
/// [`Requester::post`](crate::requester::Requester::post) returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWr {
    /// The consumer's ID of the request, returned in the completion.
    pub wr_id: u64,
    /// Address of the remote memory, if the operation has one.
    pub va: u64,
    /// The value to store, or to add. Compare and swap, fetch and add only.
    pub swap_add: u64,
    /// The value to compare with. Compare and swap only.
    pub compare: u64,
    /// The length of the message in bytes, up to [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN).
    /// FLUSH: the length of the range.
    pub length: u32,
    /// Key of the remote memory. SEND with invalidate, LOCAL_INV: the key to invalidate. BIND_MW,
    /// REG_MR: the new key of the memory.
    pub rkey: Rkey,
    /// The destination QPN of the datagram. UD only.
    pub dest_qpn: Qpn,
    /// The Q_Key on the wire, after [`effective_qkey`](crate::uapi::wqe::effective_qkey). UD only.
    pub qkey: Qkey,
    /// Immediate data. SEND and WRITE with immediate data only.
    pub imm: [u8; 4],
    /// The scope of the flush. FLUSH only.
    pub feth: Feth,
    /// The operation.
    pub op: SendOp,
    /// True if success is reported.
    pub signalled: bool,
    /// True if the completion at the peer is a solicited event.
    pub solicited: bool,
    /// True if the request waits for the explicit responses to all earlier requests.
    pub fence: bool,
}

impl SendWr {
    /// Sets the arguments of BIND_MW or REG_MR, in fields that these operations do not use
    /// otherwise.
    #[inline]
    pub fn set_local(&mut self, args: &LocalArgs) {
        self.va = args.addr;
        self.swap_add = args.length;
        self.compare = (u64::from(args.mr_lkey) << 32) | u64::from(args.mw_rkey);
        self.imm = args.access.to_ne_bytes();
    }
}

/// The arguments of BIND_MW and REG_MR, besides the new key of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalArgs {
    /// The first byte. BIND_MW: in the address space of the memory region. REG_MR: the address that
    /// requests use for it.
    pub addr: u64,
    /// The length in bytes. BIND_MW only.
    pub length: u64,
    /// The key of the memory region. BIND_MW only.
    pub mr_lkey: u32,
    /// The current key of the window. BIND_MW only.
    pub mw_rkey: u32,
    /// Set of `enum ib_access_flags`.
    pub access: u32,
}

/// The status of a completed work request.
///
/// These are the values of `enum ib_wc_status` that this driver reports.
///
/// C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The request was executed.
    #[default]
    Success = 0,
    /// The message does not fit its buffers, or the service type.
    LocLen = 1,
    /// The queue pair could not process the request.
    LocQpOp = 2,
    /// A local key does not allow the access.
    LocProt = 4,
    /// The queue pair was in error before the request was executed.
    WrFlush = 5,
    /// The memory window could not be bound.
    MwBind = 6,
    /// The response does not match the request.
    BadResp = 7,
    /// The peer wrote to local memory against its protection.
    LocAccess = 8,
    /// The peer found the request invalid.
    RemInvReq = 9,
    /// The peer does not allow access to its memory.
    RemAccess = 10,
    /// The peer could not execute the request.
    RemOp = 11,
    /// The peer did not respond, and no retry is left.
    RetryExceeded = 12,
    /// The peer had no receive request, and no RNR retry is left.
    RnrRetryExceeded = 13,
}

impl Status {
    /// Returns the number in `enum ib_wc_status`.
    #[inline]
    pub const fn as_ib(self) -> u32 {
        // CAST: the discriminants are the numbers of the enum.
        self as u32
    }
}

/// The reason why local memory could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemError {
    /// The key, the protection domain, the access rights or the bounds do not allow it.
    Protection,
    /// The message is longer than the receive buffers.
    Length,
    /// The memory does not exist any more.
    Fault,
    /// The peer may not invalidate the key of a SEND with invalidate.
    Invalidate,
    /// The memory has to be fetched first, which needs a context that may sleep.
    ///
    /// The driver tries again in such a context, so the protocol does not see this error.
    NotPresent,
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_wr))]
mod tests {
    use super::*;

    #[test]
    fn statuses_match_ib_wc_status() {
        assert_eq!(Status::Success.as_ib(), 0);
        assert_eq!(Status::WrFlush.as_ib(), 5);
        assert_eq!(Status::RnrRetryExceeded.as_ib(), 13);
    }
}
