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
///
/// Values that no operation uses together share a field, because each queue pair stores one
/// `SendWr` for each slot, even while idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWr {
    /// The consumer's ID of the request, returned in the completion.
    pub wr_id: u64,
    /// Address of the remote memory, if the operation has one. [`set_local`](Self::set_local)
    /// stores another address here.
    pub va: u64,
    /// The value to store, or to add. Compare and swap, fetch and add only.
    /// [`set_local`](Self::set_local) stores a length here.
    pub swap_add: u64,
    /// The value to compare with. Compare and swap only. Other operations keep two numbers here:
    /// [`set_datagram`](Self::set_datagram), [`set_local`](Self::set_local).
    pub compare: u64,
    /// The length of the message in bytes, up to [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN).
    /// FLUSH: the length of the range.
    pub length: u32,
    /// Key of the remote memory. SEND with invalidate, LOCAL_INV: the key to invalidate. BIND_MW,
    /// REG_MR: the new key of the memory.
    pub rkey: Rkey,
    /// Immediate data. SEND and WRITE with immediate data only. Other operations keep a number
    /// here: [`set_feth`](Self::set_feth), [`set_local`](Self::set_local).
    pub imm: [u8; 4],
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
    /// Sets the destination of a datagram: a QPN, and the Q_Key on the wire, after
    /// [`effective_qkey`](crate::uapi::wqe::effective_qkey). UD only.
    #[inline]
    pub fn set_datagram(&mut self, dest_qpn: Qpn, qkey: Qkey) {
        self.set_pair(dest_qpn.get(), qkey.get());
    }

    /// Returns the destination QPN of the datagram. UD only.
    #[inline]
    pub fn dest_qpn(&self) -> Qpn {
        Qpn::new(self.pair().0)
    }

    /// Returns the Q_Key of the datagram. UD only.
    #[inline]
    pub fn qkey(&self) -> Qkey {
        Qkey::new(self.pair().1)
    }

    /// Sets the scope of the flush. FLUSH only.
    #[inline]
    pub fn set_feth(&mut self, feth: Feth) {
        self.imm = feth.bits().to_ne_bytes();
    }

    /// Returns the scope of the flush. FLUSH only.
    #[inline]
    pub fn feth(&self) -> Feth {
        Feth::from_bits(u32::from_ne_bytes(self.imm))
    }

    /// Sets the arguments of BIND_MW or REG_MR, in fields that these operations do not use
    /// otherwise.
    #[inline]
    pub fn set_local(&mut self, args: &LocalArgs) {
        self.va = args.addr;
        self.swap_add = args.length;
        self.set_pair(args.mr_lkey, args.mw_rkey);
        self.imm = args.access.to_ne_bytes();
    }

    /// Returns the arguments of BIND_MW or REG_MR.
    #[inline]
    pub fn local(&self) -> LocalArgs {
        let (mr_lkey, mw_rkey) = self.pair();
        LocalArgs {
            addr: self.va,
            length: self.swap_add,
            mr_lkey,
            mw_rkey,
            access: u32::from_ne_bytes(self.imm),
        }
    }

    #[inline]
    fn set_pair(&mut self, upper: u32, lower: u32) {
        self.compare = (u64::from(upper) << 32) | u64::from(lower);
    }

    #[inline]
    fn pair(&self) -> (u32, u32) {
        // CAST: The upper half, and the lower half.
        ((self.compare >> 32) as u32, self.compare as u32)
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
    /// The word of an atomic or ATOMIC WRITE is not aligned to eight bytes in memory. Its address
    /// may be aligned: a window defines the address of its first byte.
    Misaligned,
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
    fn values_that_share_fields_are_returned() {
        let mut wr = SendWr::default();
        let (dest_qpn, qkey) = (Qpn::new(0x11), Qkey::new(0x8000_0022));
        wr.set_datagram(dest_qpn, qkey);
        assert_eq!((wr.dest_qpn(), wr.qkey()), (dest_qpn, qkey));
        let feth = Feth::new(1, 1).unwrap_or_default();
        wr.set_feth(feth);
        assert_eq!(wr.feth(), feth);
        let args = LocalArgs {
            addr: 1,
            length: 2,
            mr_lkey: 3,
            mw_rkey: 4,
            access: 5,
        };
        wr.set_local(&args);
        assert_eq!(wr.local(), args);
    }

    #[test]
    fn statuses_match_ib_wc_status() {
        assert_eq!(Status::Success.as_ib(), 0);
        assert_eq!(Status::WrFlush.as_ib(), 5);
        assert_eq!(Status::RnrRetryExceeded.as_ib(), 13);
    }
}
