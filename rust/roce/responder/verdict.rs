// SPDX-License-Identifier: GPL-2.0

//! What the responder tells the shell to do.

use crate::{
    ids::{
        Pkey,
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    wire::{
        Aeth,
        BthFields,
        Feth,
        HeaderWriter,
        Packet,
        Syndrome, //
    },
    wr::Status, //
};

/// What becomes of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing; it is only counted.
    Drop(DropReason),
    /// Only a reply: it is a duplicate, too early, or has no receive work request.
    Reply(Reply),
    /// It is refused in a way that has consequences.
    Fail(Outcome),
    /// Its payload belongs there; then [`Responder::finish`](super::Responder::finish).
    Place(Place),
    /// It asks for this; check key, bounds and the right to read, then
    /// [`Responder::start_read`](super::Responder::start_read).
    Read(ReadRequest),
    /// It asks to do this; then [`Responder::executed`](super::Responder::executed).
    Execute(Command),
}

impl Verdict {
    /// Returns whether the packet was the next one, and is one that a peer may send. UC, which
    /// starts anew after a gap: whether it is carried out.
    #[inline]
    pub fn is_expected(&self) -> bool {
        match self {
            Self::Place(_) | Self::Execute(_) => true,
            Self::Read(read) => !read.again,
            Self::Drop(_) | Self::Reply(_) | Self::Fail(_) => false,
        }
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Packets before it are missing (RC: the peer has been told; UC: its message is cut).
    PsnGap,
    /// It was executed before, and there is nothing to repeat.
    Duplicate,
    /// There is no receive work request (UC, UD).
    NoRecvWqe,
    /// The datagram does not present the key of the queue pair.
    BadQkey,
    /// It is not a request, not of this service type, or its opcode does not continue the message
    /// (UC).
    BadOpcode,
    /// The length does not fit the MTU, the place in the message, or the message (UC, UD).
    BadLength,
    /// The queue pair does not allow RDMA WRITE (UC).
    NotAllowed,
    /// The queue pair failed before.
    Failed,
    /// The packet before is not finished yet: a mistake of the shell.
    Busy,
}

/// Where the payload of a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into the buffers of the held receive work request.
    Recv {
        /// Where it starts, in bytes from the start of the buffers. UD: behind the GRH area, which
        /// the shell fills.
        offset: u32,
        /// Bytes of payload; they fit.
        len: u32,
    },
    /// To local memory that the peer named. It must allow remote writes.
    Remote {
        /// Key of the memory region.
        rkey: Rkey,
        /// Where the payload starts.
        va: u64,
        /// Bytes of payload.
        len: u32,
        /// Bytes from `va` on that the key must allow: the whole message on its first packet, `len`
        /// on the others. If it is 0, key and address are not to be looked at (C9-88).
        check_len: u32,
    },
}

/// Local memory that the peer wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Key of the memory region.
    pub rkey: Rkey,
    /// Where the data starts.
    pub va: u64,
    /// Bytes of data, up to [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN).
    pub len: u32,
    /// Whether it was answered before.
    pub again: bool,
}

/// Something to do to local memory that the peer named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Key of the memory.
    pub rkey: Rkey,
    /// The first byte that is meant. Aligned to eight bytes for what is done to a word.
    pub va: u64,
    /// What to do.
    pub action: Action,
}

/// What is done to local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store `swap` in the word if it is `compare`, in one step, and return what was there. The key
    /// must allow remote atomics.
    CompareSwap {
        /// What must be there.
        compare: u64,
        /// What to store.
        swap: u64,
    },
    /// Add to the word in one step, and return what was there. The key must allow remote atomics.
    FetchAdd {
        /// What to add, wrapping.
        add: u64,
    },
    /// Store the eight bytes of payload in one step. The key must allow remote writes.
    Store,
    /// Make what was written visible to all, or persistent. The key must allow that.
    Flush {
        /// Bytes, unless all that the key names is meant.
        len: u32,
        /// What is asked for; valid.
        feth: Feth,
    },
}

/// What follows from a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The acknowledgment to send.
    pub reply: Option<Reply>,
    /// The completion of the held receive work request.
    pub completion: Option<RecvCompletion>,
    /// Whether the held receive work request is finished.
    pub consumed: bool,
    /// Whether the queue pair must move to ERR.
    pub error: bool,
    /// The event to raise.
    pub event: Option<AsyncEvent>,
}

/// The end of a receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCompletion {
    /// How it ended.
    pub status: Status,
    /// Bytes received. SEND: bytes in the buffers, for UD with the GRH area. WRITE: bytes written.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// The key that was invalidated.
    pub invalidated: Option<Rkey>,
    /// Whether it was used up by a WRITE, whose data is elsewhere.
    pub with_rdma: bool,
    /// Whether the peer asked for a solicited event.
    pub solicited: bool,
    /// Who sent the datagram. UD only.
    pub src_qpn: Qpn,
}

impl RecvCompletion {
    /// Makes the completion of the message that ends with `pkt`.
    #[inline]
    pub(super) fn done(pkt: &Packet<'_>, byte_len: u32, src_qpn: Qpn) -> RecvCompletion {
        RecvCompletion {
            status: Status::Success,
            byte_len,
            imm: pkt.imm(),
            invalidated: pkt.ieth(),
            with_rdma: pkt.opcode().operation() == Operation::Write,
            solicited: pkt.solicited(),
            src_qpn,
        }
    }

    /// Makes the completion of a receive work request that failed.
    pub(super) fn failed(status: Status) -> RecvCompletion {
        RecvCompletion {
            status,
            byte_len: 0,
            imm: None,
            invalidated: None,
            with_rdma: false,
            // Errors always are solicited events.
            solicited: true,
            src_qpn: Qpn::default(),
        }
    }
}

/// Something that the consumer learns outside of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The peer tried to access memory that it may not access.
    AccessError,
    /// The peer sent a request that makes no sense.
    RequestError,
    /// The first packet came in while the queue pair was in RTR.
    CommEst,
}

/// What a reply is, besides what its syndrome says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyKind {
    /// An acknowledgment of all requests up to the PSN, or a refusal.
    #[default]
    Acknowledge,
    /// What the atomic operation with the PSN found.
    Found(u64),
    /// That the ATOMIC WRITE or the FLUSH with the PSN was done: an empty READ response (annex
    /// A19).
    Done,
}

/// An acknowledgment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is.
    pub kind: ReplyKind,
    /// The PSN that it is about.
    pub psn: Psn,
    /// What it says.
    pub syndrome: Syndrome,
    /// How many messages were completed, modulo 2^24.
    pub msn: u32,
    /// The queue pair of the peer.
    pub dest_qpn: Qpn,
}

impl Reply {
    /// Writes all headers to the front of `buf` and returns how many bytes they are, or `None` if
    /// they do not fit.
    ///
    /// There is no payload; the ICRC follows.
    #[inline]
    pub fn write_headers(&self, pkey: Pkey, buf: &mut [u8]) -> Option<usize> {
        let (opcode, found) = match self.kind {
            ReplyKind::Acknowledge => (Opcode::RcAcknowledge, None),
            ReplyKind::Found(found) => (Opcode::RcAtomicAcknowledge, Some(found)),
            ReplyKind::Done => (Opcode::RcReadResponseOnly, None),
        };
        let bth = BthFields {
            opcode,
            solicited: false,
            pad: 0,
            pkey,
            dest_qpn: self.dest_qpn,
            ack_req: false,
            psn: self.psn,
        };
        let aeth = Aeth {
            syndrome: self.syndrome,
            msn: self.msn,
        };
        let writer = HeaderWriter::new(buf, &bth)?.aeth(Some(aeth))?;
        Some(writer.found(found)?.finish())
    }
}
