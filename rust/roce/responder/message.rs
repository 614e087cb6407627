// SPDX-License-Identifier: GPL-2.0

//! Validation of the packets of a message.

use super::{
    resources::Records,
    DropReason,
    Place,
    RecvQueue,
    Responder, //
};
use crate::{
    ids::Rkey,
    opcode::{
        Operation,
        Position, //
    },
    qp::QpAccess,
    wire::{
        Packet,
        MAX_MESSAGE_LEN, //
    },
    wr::MemError, //
};

/// The message that is being received, between two of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// No message.
    None,
    /// A SEND with `offset` bytes received.
    Send { offset: u32 },
    /// A WRITE of `total` bytes, with `remaining` bytes left to be written to `va`.
    Write {
        rkey: Rkey,
        va: u64,
        remaining: u32,
        total: u32,
    },
}

/// The handling of a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The destination of its payload.
    pub(super) place: Place,
    /// The message after it.
    pub(super) after: Message,
    /// The number of bytes of the message up to the end of the packet.
    pub(super) received: u32,
    /// The number of bytes for which the receive request must have room, if the message needs one
    /// from this packet on.
    pub(super) needs: Option<u32>,
}

impl<S: Records> Responder<S> {
    /// Checks a SEND or WRITE packet against the message that is being received.
    ///
    /// UC drops an invalid packet for the reason that this returns; RC refuses it.
    #[inline]
    pub(super) fn plan(&self, pkt: &Packet<'_>) -> Result<Plan, DropReason> {
        let opcode = pkt.opcode();
        self.check_payload(pkt)?;
        let start = opcode.starts_message();
        match (self.message, opcode.operation()) {
            (Message::None, Operation::Send) if start => self.plan_send(pkt, 0),
            (Message::Send { offset }, Operation::Send) if !start => self.plan_send(pkt, offset),
            (Message::None, Operation::Write) if start => self.plan_new_write(pkt),
            (message @ Message::Write { .. }, Operation::Write) if !start => {
                Self::plan_write(pkt, message)
            }
            _ => Err(DropReason::BadOpcode),
        }
    }

    /// Makes sure that a receive request with room for `needs` bytes is held, if one is needed.
    ///
    /// # Errors
    ///
    /// Returns the error with which the held one must fail, or `None` if there is none to take.
    #[inline]
    pub(super) fn hold(
        &mut self,
        needs: Option<u32>,
        rq: &mut impl RecvQueue,
    ) -> Result<(), Option<MemError>> {
        let Some(needs) = needs else {
            return Ok(());
        };
        let capacity = match self.held {
            Some(capacity) => capacity,
            None => {
                let taken = rq.take().ok_or(None)?;
                // One that cannot be used was taken from the queue, too.
                self.held = Some(taken.unwrap_or(0));
                taken?
            }
        };
        if needs > capacity {
            return Err(Some(MemError::Length));
        }
        Ok(())
    }

    /// Checks the payload length against the position of the packet in its message.
    #[inline]
    fn check_payload(&self, pkt: &Packet<'_>) -> Result<(), DropReason> {
        let len = pkt.payload_len();
        let mtu = self.params.mtu;
        let fits = match pkt.opcode().position() {
            Position::First | Position::Middle => len == mtu,
            Position::Last => len >= 1 && len <= mtu,
            Position::Only => len <= mtu,
        };
        fits.then_some(()).ok_or(DropReason::BadLength)
    }

    #[inline]
    fn plan_send(&self, pkt: &Packet<'_>, offset: u32) -> Result<Plan, DropReason> {
        let len = pkt.payload_len();
        let received = offset
            .checked_add(len)
            .filter(|&received| received <= MAX_MESSAGE_LEN)
            .ok_or(DropReason::BadLength)?;
        let after = if pkt.opcode().ends_message() {
            Message::None
        } else {
            Message::Send { offset: received }
        };
        Ok(Plan {
            place: Place::Recv { offset, len },
            after,
            received,
            needs: Some(received),
        })
    }

    #[inline]
    fn plan_new_write(&self, pkt: &Packet<'_>) -> Result<Plan, DropReason> {
        if !self.params.access.allows(QpAccess::REMOTE_WRITE) {
            return Err(DropReason::NotAllowed);
        }
        let reth = pkt.reth().ok_or(DropReason::BadOpcode)?;
        if reth.len > MAX_MESSAGE_LEN {
            return Err(DropReason::BadLength);
        }
        let message = Message::Write {
            rkey: reth.rkey,
            va: reth.va,
            remaining: reth.len,
            total: reth.len,
        };
        Self::plan_write(pkt, message)
    }

    #[inline]
    fn plan_write(pkt: &Packet<'_>, message: Message) -> Result<Plan, DropReason> {
        let Message::Write {
            rkey,
            va,
            remaining,
            total,
        } = message
        else {
            return Err(DropReason::BadOpcode);
        };
        let len = pkt.payload_len();
        let rest = remaining.checked_sub(len).ok_or(DropReason::BadLength)?;
        // The message must end exactly at the length in its RETH.
        let ends = pkt.opcode().ends_message();
        if ends != (rest == 0) {
            return Err(DropReason::BadLength);
        }
        let after = if ends {
            Message::None
        } else {
            Message::Write {
                rkey,
                // The address cannot wrap: the driver rejects a range that does.
                va: va.wrapping_add(u64::from(len)),
                remaining: rest,
                total,
            }
        };
        Ok(Plan {
            place: Place::Remote {
                rkey,
                va,
                len,
                rest: remaining,
            },
            after,
            received: total.wrapping_sub(rest),
            needs: pkt.opcode().has_immdt().then_some(0),
        })
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_message))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Makes a packet with `len` bytes of payload, of a message of `total` bytes.
    fn packet(opcode: Opcode, psn: u32, len: u32, total: u32) -> Frame {
        let mut transmit = transmit(wr(SendOp::Write, MTU));
        (transmit.opcode, transmit.psn, transmit.len) = (opcode, Psn::new(psn), len);
        let reth = transmit.reth.filter(|_| opcode.has_reth());
        transmit.reth = reth.map(|reth| crate::wire::Reth { len: total, ..reth });
        Frame::new(&transmit)
    }

    /// Handles a packet, and returns whether its payload was placed.
    fn accepts(rx: &mut Responder, frame: &Frame) -> bool {
        let mut rq = Recvs::new(1, MAX_MESSAGE_LEN);
        let verdict = rx.on_request(&frame.packet(), &mut rq);
        rx.finish(Ok(()));
        assert_eq!(verdict.is_expected(), matches!(verdict, Verdict::Place(_)));
        verdict.is_expected()
    }

    #[test]
    fn message_cannot_begin_within_another() {
        for (first, second) in [
            (Opcode::RcSendFirst, Opcode::RcSendFirst),
            (Opcode::RcSendFirst, Opcode::RcSendOnly),
            (Opcode::RcSendFirst, Opcode::RcWriteOnly),
            (Opcode::RcWriteFirst, Opcode::RcWriteOnly),
            (Opcode::RcWriteFirst, Opcode::RcSendOnly),
        ] {
            let mut rx = responder();
            assert!(accepts(&mut rx, &packet(first, 0, MTU, 2 * MTU)));
            assert!(!accepts(&mut rx, &packet(second, 1, MTU, MTU)));
        }
    }

    #[test]
    fn payload_length_is_checked() {
        assert!(accepts(
            &mut responder(),
            &packet(Opcode::RcSendOnly, 0, MTU, 0)
        ));
        for (len, is_valid) in [(0, false), (1, true), (MTU, true)] {
            let mut rx = responder();
            let first = packet(Opcode::RcSendFirst, 0, MTU, 0);
            assert!(accepts(&mut rx, &first));
            let last = packet(Opcode::RcSendLast, 1, len, 0);
            assert_eq!(accepts(&mut rx, &last), is_valid);
        }
    }

    #[test]
    fn longest_message_is_accepted() {
        for (excess, is_valid) in [(0, true), (1, false)] {
            let mut rx = responder();
            let first = packet(Opcode::RcWriteFirst, 0, MTU, MAX_MESSAGE_LEN + excess);
            assert_eq!(accepts(&mut rx, &first), is_valid);
            let mut rx = responder();
            rx.message = Message::Send {
                offset: MAX_MESSAGE_LEN - 1,
            };
            let last = packet(Opcode::RcSendLast, 0, 1 + excess, 0);
            assert_eq!(accepts(&mut rx, &last), is_valid);
        }
    }

    #[test]
    fn bad_receive_request_completes_with_error() {
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
            let [frame] = frames(transport, &[wr(SendOp::Send, 3)]);
            let mut rx = responder_of(transport);
            let outcome = failure(rx.on_request(&frame.packet(), &mut BadRecvs));
            let status = outcome.completion.map(|end| end.status);
            assert_eq!(status, Some(Status::LocProt));
            assert!(outcome.error);
        }
    }
}
