// SPDX-License-Identifier: GPL-2.0

//! The next request packet.

use core::ops::DerefMut;

use zerocopy::network_endian::U32;

use super::{
    transmit::{
        Step,
        StepKind, //
    },
    Requester,
    Slot, //
};
use crate::{
    ids::{
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
        AtomicEth,
        Bth,
        Deth,
        Feth,
        HeaderWriter,
        RawAtomicEth,
        RawDeth,
        RawReth,
        Reth,
        TxPacket, //
    },
    wr::{
        SendOp,
        SendWr, //
    }, //
};

/// A request packet to send: its headers, and the source of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The slot whose local data contains the payload.
    pub slot: u16,
    /// The opcode.
    pub opcode: Opcode,
    /// The PSN.
    pub psn: Psn,
    /// True if the packet requests an acknowledgment.
    pub ack_req: bool,
    /// True if the completion at the peer is a solicited event.
    pub solicited: bool,
    /// The offset of the payload in the message, in bytes.
    pub offset: u32,
    /// The length of the payload in bytes; 0 for a request that carries none.
    pub len: u32,
    /// The remote memory, if the packet has a RETH.
    pub reth: Option<Reth>,
    /// Immediate data, if the packet carries it.
    pub imm: Option<[u8; 4]>,
    /// The header of a datagram, a flush, an atomic operation or an invalidation, if it is one.
    pub rare: RareHeader,
    /// The destination QPN.
    pub dest_qpn: Qpn,
    /// True if the packet was sent before.
    pub again: bool,
    /// True if this is a datagram longer than the MTU.
    ///
    /// The driver does not send it, but fails its request with [`Status::LocLen`]
    /// ([`Requester::local_error`]).
    ///
    /// [`Status::LocLen`]: crate::wr::Status::LocLen
    pub oversize: bool,
    /// The position in the queue, for [`Requester::transmitted`].
    pub step: Step,
}

/// An extended header of a request packet, besides the RETH and immediate data.
///
/// A packet has at most one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RareHeader {
    /// No such header.
    None,
    /// The Q_Key and the source QPN of a datagram.
    Deth(Deth),
    /// The scope of a flush.
    Feth(Feth),
    /// An atomic operation.
    Atomic(AtomicEth),
    /// The key to invalidate.
    Ieth(Rkey),
}

impl Transmit {
    /// Returns whether the packet is a probe, which is a retransmission outside the order of PSNs.
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.step.is_probe()
    }
}

impl TxPacket for Transmit {
    #[inline]
    fn opcode(&self) -> Opcode {
        self.opcode
    }

    #[inline]
    fn payload_len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn write_headers(&self, buf: &mut [u8]) -> Option<usize> {
        let bth = Bth::new(self, self.dest_qpn, self.psn).with_flags(self.solicited, self.ack_req);
        let writer = HeaderWriter::new(buf, &bth)?;
        let writer = match self.rare {
            RareHeader::None => writer,
            RareHeader::Deth(deth) => writer.put(&RawDeth::from(deth))?,
            RareHeader::Feth(feth) => writer.put(&U32::new(feth.bits()))?,
            RareHeader::Atomic(atomic) => writer.put(&RawAtomicEth::from(atomic))?,
            RareHeader::Ieth(rkey) => writer.put(&U32::new(rkey.get()))?,
        };
        let writer = writer.put_some(self.reth.map(RawReth::from))?;
        Some(writer.put_some(self.imm)?.finish())
    }
}

impl<S: DerefMut<Target = [Slot]>> Requester<S> {
    /// Returns the packet to send now, if there is one.
    ///
    /// This does not change the state; see [`Requester::transmitted`].
    #[inline]
    pub fn poll_transmit(&self) -> Option<Transmit> {
        let step = self.next_step()?;
        let slot = self.queue.get(step.slot)?;
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
        let offset = step.index.wrapping_mul(self.params.mtu);
        let rest = wr.length.saturating_sub(offset);
        let (len, asked) = if slot.is_read() {
            (0, rest.min(step.count.saturating_mul(self.params.mtu)))
        } else if self.transport == Transport::Ud {
            (rest, 0)
        } else if wr.op.is_atomic() || wr.op == SendOp::Flush {
            // The length is that of the result, or of the range to flush.
            (0, wr.length)
        } else {
            (rest.min(self.params.mtu), wr.length)
        };
        Some(Transmit {
            slot: self.queue.number(step.slot)?,
            opcode,
            psn: step.psn,
            ack_req: match step.kind {
                StepKind::Next => self.wants_ack(&step),
                StepKind::AckProbe => true,
                StepKind::LossProbe => {
                    !slot.has_explicit_response() && !self.run_continues(step.end())
                }
            },
            // A packet that consumes no receive request of the peer raises no event there.
            solicited: wr.solicited
                && ends
                && (opcode.operation() == Operation::Send || opcode.has_immdt()),
            offset,
            len,
            reth: opcode.has_reth().then(|| Reth {
                // Only READs have a RETH beyond the first packet.
                va: wr.va.wrapping_add(u64::from(offset)),
                rkey: wr.rkey,
                len: asked,
            }),
            imm: opcode.has_immdt().then_some(wr.imm),
            rare: self.rare_header(wr, opcode),
            dest_qpn: match self.transport {
                Transport::Rc | Transport::Uc => self.params.dest_qpn,
                Transport::Ud => wr.dest_qpn(),
            },
            again: step.psn != self.window.max(),
            oversize: self.transport == Transport::Ud && len > self.params.mtu,
            step,
        })
    }

    /// Returns the extended header of a packet, besides the RETH and immediate data.
    #[inline]
    fn rare_header(&self, wr: &SendWr, opcode: Opcode) -> RareHeader {
        match wr.op {
            SendOp::CompareSwap | SendOp::FetchAdd => RareHeader::Atomic(AtomicEth {
                va: wr.va,
                rkey: wr.rkey,
                swap_add: wr.swap_add,
                compare: wr.compare,
            }),
            SendOp::Flush => RareHeader::Feth(wr.feth()),
            SendOp::SendInv if opcode.has_ieth() => RareHeader::Ieth(wr.rkey),
            _ if self.transport == Transport::Ud => RareHeader::Deth(Deth {
                qkey: wr.qkey(),
                src_qpn: self.params.src_qpn,
            }),
            _ => RareHeader::None,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_req_packet))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn only_last_packet_is_solicited() {
        let mut uc = requester(Transport::Uc, 1);
        let solicited = SendWr {
            solicited: true,
            ..wr(SendOp::Send, 2 * MTU)
        };
        post(&mut uc, &[solicited]);
        for expected in [false, true] {
            let frame = next(&mut uc);
            assert_eq!(frame.packet().solicited(), expected);
        }
    }

    #[test]
    fn probe_is_outside_the_order_of_psns() {
        let mut rc = measured(8);
        post(&mut rc, &[wr(SendOp::Send, 0)]);
        let first = send(&mut rc).map(|sent| (sent.psn, sent.is_probe(), sent.again));
        assert_eq!(first, Some((Psn::new(1), false, false)));
        let due = rc.next_timeout().unwrap();
        rc.on_timeout(due);
        let probe = send(&mut rc).map(|sent| (sent.psn, sent.is_probe(), sent.again));
        assert_eq!(probe, Some((Psn::new(1), true, true)));
    }
}
