// SPDX-License-Identifier: GPL-2.0

//! Results of the responder for the driver.

use zerocopy::network_endian::{
    U32,
    U64, //
};

use crate::{
    ids::{
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
        Bth,
        Feth,
        HeaderWriter,
        Packet,
        Reth,
        Syndrome,
        TxPacket, //
    },
    wr::Status, //
};

/// The decision on a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Only count the packet.
    Drop(DropReason),
    /// Only send a reply: the packet is a duplicate, or has no receive request.
    Reply(Reply),
    /// Send the reply, if there is one. Earlier packets are missing: the driver may keep the
    /// packet, see [`Responder::may_keep`](super::Responder::may_keep).
    Early(Option<Reply>),
    /// Refuse the packet: execute the outcome.
    Fail(Outcome),
    /// Copy the payload to the place, then call [`Responder::finish`](super::Responder::finish).
    Place(Place),
    /// Check the key, the bounds and the right to read, then call
    /// [`Responder::start_read`](super::Responder::start_read).
    Read(ReadRequest),
    /// Execute the command, then call [`Responder::executed`](super::Responder::executed).
    Execute(Command),
}

impl Verdict {
    /// Returns whether the packet was the expected one, and is valid.
    ///
    /// For UC, which resynchronizes after a gap, returns whether the packet is executed.
    #[inline]
    pub fn is_expected(&self) -> bool {
        match self {
            Self::Place(_) | Self::Execute(_) => true,
            Self::Read(read) => !read.again,
            Self::Drop(_) | Self::Reply(_) | Self::Early(_) | Self::Fail(_) => false,
        }
    }
}

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Earlier packets are missing (RC: there was no receive request for the first of them, so the
    /// peer sends all of them again; UC: its message is aborted).
    PsnGap,
    /// The packet was executed before, and there is no response to repeat.
    Duplicate,
    /// There is no receive request (UC, UD).
    NoRecvWqe,
    /// The datagram does not carry the Q_Key of the queue pair.
    BadQkey,
    /// The packet is not a request, is not of this service type, or its opcode does not continue
    /// the message (UC).
    BadOpcode,
    /// The payload length does not match the MTU, the position in the message or its length (UC,
    /// UD).
    BadLength,
    /// The queue pair does not allow RDMA WRITE (UC).
    NotAllowed,
    /// The queue pair failed before.
    Failed,
    /// The previous packet is not finished: a bug of the driver.
    Busy,
}

/// The destination of the payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The buffers of the held receive request.
    Recv {
        /// The offset of the payload in the buffers, in bytes; for UD it is after the GRH area,
        /// which the driver fills.
        offset: u32,
        /// The length of the payload in bytes; it fits.
        len: u32,
    },
    /// Local memory that the peer named, which must allow remote writes.
    Remote {
        /// The key of the memory region.
        rkey: Rkey,
        /// The address of the payload.
        va: u64,
        /// The length of the payload in bytes.
        len: u32,
        /// The length of the message from `va` on in bytes, which the key must allow.
        ///
        /// If it is 0, the key and the address are not checked (C9-88).
        rest: u32,
    },
}

/// Local memory that the peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The memory, of up to [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN) bytes.
    pub reth: Reth,
    /// True if the READ is a duplicate.
    pub again: bool,
}

/// An operation on local memory that the peer named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The key of the memory.
    pub rkey: Rkey,
    /// The address; aligned to eight bytes for an operation on a word.
    pub va: u64,
    /// The operation.
    pub action: Action,
}

/// An operation on local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Atomically store `swap` in the word if it equals `compare`, and return the original value.
    ///
    /// The key must allow remote atomics.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The value to store.
        swap: u64,
    },
    /// Atomically add to the word, and return the original value.
    ///
    /// The key must allow remote atomics.
    FetchAdd {
        /// The value to add, wrapping.
        add: u64,
    },
    /// Atomically store the eight bytes of payload.
    ///
    /// The key must allow remote writes.
    Store,
    /// Make earlier writes globally visible, or persistent.
    ///
    /// The key must allow that.
    Flush {
        /// The length of the range in bytes, unless all memory of the key is to be flushed.
        len: u32,
        /// The FETH, which is valid.
        feth: Feth,
    },
}

/// The consequences of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The acknowledgment to send.
    pub reply: Option<Reply>,
    /// The completion of the held receive request, if that is finished.
    pub completion: Option<RecvCompletion>,
    /// True if the queue pair must move to ERR.
    pub error: bool,
    /// The event to raise.
    pub event: Option<AsyncEvent>,
}

/// The completion of a receive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCompletion {
    /// The completion status.
    pub status: Status,
    /// The number of bytes received: for a SEND, in the buffers (UD: with the GRH area); for a
    /// WRITE, the bytes written.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// The key that was invalidated.
    pub invalidated: Option<Rkey>,
    /// True if a WRITE with immediate data consumed the request.
    pub with_rdma: bool,
    /// True if the peer requested a solicited event.
    pub solicited: bool,
    /// The source QPN of the datagram (UD only).
    pub src_qpn: Qpn,
}

impl RecvCompletion {
    /// Creates the completion of the message that ends with `pkt`.
    #[inline]
    pub(super) fn done(pkt: &Packet<'_>, byte_len: u32) -> RecvCompletion {
        RecvCompletion {
            status: Status::Success,
            byte_len,
            imm: pkt.imm(),
            invalidated: pkt.ieth(),
            with_rdma: pkt.opcode().operation() == Operation::Write,
            solicited: pkt.solicited(),
            src_qpn: pkt.deth().unwrap_or_default().src_qpn,
        }
    }

    /// Creates the completion of a failed receive request.
    pub fn failed(status: Status) -> RecvCompletion {
        RecvCompletion {
            status,
            byte_len: 0,
            imm: None,
            invalidated: None,
            with_rdma: false,
            // Errors are always solicited events.
            solicited: true,
            src_qpn: Qpn::default(),
        }
    }
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The peer attempted an access that is not allowed.
    AccessError,
    /// The peer sent an invalid request.
    RequestError,
    /// The first packet arrived while the queue pair was in RTR.
    CommEst,
}

/// The kind of a reply, in addition to its syndrome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyKind {
    /// An acknowledgment of all requests up to the PSN, or a NAK.
    #[default]
    Acknowledge,
    /// The original value returned by the atomic operation with the PSN.
    Found(u64),
    /// The response to the ATOMIC WRITE or FLUSH with the PSN: an empty READ response (annex A19).
    Done,
}

/// An acknowledgment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The kind of the reply.
    pub kind: ReplyKind,
    /// The PSN of the reply.
    pub psn: Psn,
    /// The syndrome of the AETH.
    pub syndrome: Syndrome,
    /// The number of completed messages, of which the AETH carries the low 24 bits.
    pub msn: u32,
    /// The QPN of the peer.
    pub dest_qpn: Qpn,
}

impl TxPacket for Reply {
    #[inline]
    fn opcode(&self) -> Opcode {
        match self.kind {
            ReplyKind::Acknowledge => Opcode::RcAcknowledge,
            ReplyKind::Found(_) => Opcode::RcAtomicAcknowledge,
            ReplyKind::Done => Opcode::RcReadResponseOnly,
        }
    }

    #[inline]
    fn write_headers(&self, buf: &mut [u8]) -> Option<usize> {
        let found = match self.kind {
            ReplyKind::Found(found) => Some(U64::new(found)),
            ReplyKind::Acknowledge | ReplyKind::Done => None,
        };
        let bth = Bth::new(self, self.dest_qpn, self.psn);
        let aeth = Aeth {
            syndrome: self.syndrome,
            msn: self.msn,
        };
        let writer = HeaderWriter::new(buf, &bth)?.put(&U32::new(aeth.bits()))?;
        Some(writer.put_some(found)?.finish())
    }
}
