// SPDX-License-Identifier: GPL-2.0

//! The packet that goes out next.

use core::ops::DerefMut;

use super::{
    Requester,
    Slot, //
};
use crate::{
    ids::{
        Pkey,
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Operation,
        Position,
        Transport, //
    },
    psn::Psn,
    wire::{
        pad_for,
        AtomicEth,
        BthFields,
        Deth,
        Feth,
        HeaderWriter,
        Reth, //
    },
    wr::SendOp, //
};

/// A request packet to send: its headers, and where its payload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The slot whose local data the payload is part of.
    pub slot: u16,
    /// The opcode.
    pub opcode: Opcode,
    /// The PSN.
    pub psn: Psn,
    /// Whether an acknowledgment is asked for.
    pub ack_req: bool,
    /// Whether the completion of the peer is a solicited event.
    pub solicited: bool,
    /// Where the payload starts in the message, in bytes.
    pub offset: u32,
    /// Bytes of payload; 0 for a request that carries none.
    pub len: u32,
    /// The remote memory, if the packet names it.
    pub reth: Option<Reth>,
    /// What to flush, if the packet asks for that.
    pub feth: Option<Feth>,
    /// The atomic operation, if the packet asks for one.
    pub atomic: Option<AtomicEth>,
    /// Immediate data, if the packet carries it.
    pub imm: Option<[u8; 4]>,
    /// The key to invalidate, if the packet names one.
    pub ieth: Option<Rkey>,
    /// Who sends the datagram, if it is one.
    pub deth: Option<Deth>,
    /// The queue pair that the packet is for.
    pub dest_qpn: Qpn,
    /// Whether this is a datagram longer than the MTU. The shell sends nothing, and says that it
    /// was sent: the consumer is not told (C10-93.1.1).
    pub oversize: bool,
}

impl Transmit {
    /// Writes all headers to the front of `buf` and returns how many bytes they are, or `None` if
    /// they do not fit.
    ///
    /// Payload, [`pad_for`] the payload and ICRC follow.
    #[inline]
    pub fn write_headers(&self, pkey: Pkey, buf: &mut [u8]) -> Option<usize> {
        let bth = BthFields {
            opcode: self.opcode,
            solicited: self.solicited,
            pad: pad_for(self.len),
            pkey,
            dest_qpn: self.dest_qpn,
            ack_req: self.ack_req,
            psn: self.psn,
        };
        let writer = HeaderWriter::new(buf, &bth)?.deth(self.deth)?;
        // Most packets have none of the others.
        let writer = if self.feth.is_some() | self.atomic.is_some() | self.ieth.is_some() {
            writer
                .feth(self.feth)?
                .reth(self.reth)?
                .atomic(self.atomic)?
                .ieth(self.ieth)?
        } else {
            writer.reth(self.reth)?.imm(self.imm)?
        };
        Some(writer.finish())
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the packet to send now, if there is one. Asking changes nothing; see
    /// [`Requester::transmitted`].
    #[inline]
    pub fn poll_transmit(&self) -> Option<Transmit> {
        let step = self.next_step()?;
        let slot = self.ring.get(step.place)?;
        let wr = &slot.wr;
        let position = Position::of(step.index, step.packets);
        let ends = step.ends_message();
        let opcode = match wr.op {
            SendOp::Send => Opcode::send(self.transport, position, false),
            SendOp::SendImm => Opcode::send(self.transport, position, ends),
            SendOp::Write => Opcode::write(self.transport, position, false),
            SendOp::WriteImm => Opcode::write(self.transport, position, ends),
            SendOp::Read => Some(Opcode::RcReadRequest),
            SendOp::SendInv => Some(Opcode::send_inv(position)),
            SendOp::CompareSwap => Some(Opcode::RcCompareSwap),
            SendOp::FetchAdd => Some(Opcode::RcFetchAdd),
            SendOp::AtomicWrite => Some(Opcode::RcAtomicWrite),
            SendOp::Flush => Some(Opcode::RcFlush),
            SendOp::LocalInv | SendOp::RegMr | SendOp::BindMw => None,
        }?;
        let offset = step.index.checked_shl(self.mtu_shift)?;
        let rest = wr.length.saturating_sub(offset);
        let (len, asked) = if slot.is_read() {
            let asked = u64::from(step.count) << (self.mtu_shift & 31);
            (
                0,
                u32::try_from(asked).map_or(rest, |asked| rest.min(asked)),
            )
        } else if self.transport == Transport::Ud {
            (rest, 0)
        } else if wr.op.is_atomic() || wr.op == SendOp::Flush {
            // The length is that of the result, or of what to flush.
            (0, wr.length)
        } else {
            (rest.min(self.mtu()), wr.length)
        };
        Some(Transmit {
            slot: self.ring.number(step.place)?,
            opcode,
            psn: step.psn,
            ack_req: step.probe || self.wants_ack(&step),
            // What takes no receive request of the peer's makes no event there.
            solicited: wr.solicited
                && ends
                && (opcode.operation() == Operation::Send || opcode.has_immdt()),
            offset,
            len,
            reth: opcode.has_reth().then(|| Reth {
                va: if slot.is_read() {
                    wr.va.wrapping_add(u64::from(offset))
                } else {
                    wr.va
                },
                rkey: wr.rkey,
                len: asked,
            }),
            feth: opcode.has_feth().then_some(wr.feth),
            atomic: opcode.has_atomic().then_some(AtomicEth {
                va: wr.va,
                rkey: wr.rkey,
                swap_add: wr.swap_add,
                compare: wr.compare,
            }),
            imm: opcode.has_immdt().then_some(wr.imm),
            ieth: opcode.has_ieth().then_some(wr.rkey),
            deth: opcode.has_deth().then_some(Deth {
                qkey: wr.qkey,
                src_qpn: self.params.src_qpn,
            }),
            dest_qpn: match self.transport {
                Transport::Rc | Transport::Uc => self.params.dest_qpn,
                Transport::Ud => wr.dest_qpn,
            },
            oversize: self.transport == Transport::Ud && len > self.params.mtu,
        })
    }
}
