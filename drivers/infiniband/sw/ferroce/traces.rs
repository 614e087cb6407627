// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of the driver. A disabled one is a static branch.

use crate::{
    counters::Counter,
    device::{
        Ferroce,
        IbQp, //
    },
    packet::Incoming, //
};
use ferroce_trace::{
    self as trace,
    Ack,
    Packet,
    Retry, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        Device,
        DeviceName, //
    },
    net::skbuff::Train, //
};
use roce::{
    requester::{
        SendSnapshot,
        SendState,
        Transmit, //
    },
    responder::{
        ReadSegment,
        Reply, //
    },
    wire, //
};

/// The traced fields of a packet, which may be gone when it is traced.
pub(crate) struct Kept {
    qpn: u32,
    opcode: u8,
    psn: u32,
    len: u32,
}

impl Kept {
    /// The length of a packet that cannot be parsed.
    const UNREADABLE: Self = Self {
        qpn: 0,
        opcode: 0xff,
        psn: 0,
        len: 0,
    };

    fn of(packet: &wire::Packet<'_>) -> Self {
        Self {
            qpn: packet.dest_qpn().get(),
            opcode: packet.opcode().raw(),
            psn: packet.psn().get(),
            len: packet.payload_len(),
        }
    }

    /// The same with the number that the queue pair has here: in packets all management queue
    /// pairs are number 1.
    fn of_own(qp: &IbQp, packet: &wire::Packet<'_>) -> Self {
        Self {
            qpn: qp.qpn,
            ..Self::of(packet)
        }
    }

    /// The fields of a request that the queue pair sends.
    #[inline(always)]
    pub(crate) fn of_request(qp: &IbQp, transmit: &Transmit) -> Self {
        Self {
            qpn: qp.qpn,
            opcode: transmit.opcode.raw(),
            psn: transmit.psn.get(),
            len: transmit.len,
        }
    }

    fn of_device(&self, device: DeviceName) -> Packet {
        Packet {
            device,
            qpn: self.qpn,
            opcode: self.opcode,
            psn: self.psn,
            len: self.len,
        }
    }
}

/// A request was sent.
#[inline(always)]
pub(crate) fn sent(qp: &IbQp, transmit: &Transmit) {
    trace::send(|| Kept::of_request(qp, transmit).of_device(qp.device().name()));
}

/// A READ response was sent.
#[inline(always)]
pub(crate) fn answered(qp: &IbQp, segment: &ReadSegment) {
    trace::send(|| Packet {
        device: qp.device().name(),
        qpn: qp.qpn,
        opcode: segment.opcode.raw(),
        psn: segment.psn.get(),
        len: segment.len,
    });
}

/// A packet for a queue pair was received.
#[inline(always)]
pub(crate) fn received(qp: &IbQp, packet: &wire::Packet<'_>) {
    trace::receive(|| Kept::of_own(qp, packet).of_device(qp.device().name()));
}

/// Another packet for a queue pair was received with one that was traced.
#[inline(always)]
pub(crate) fn received_too(qp: &IbQp, incoming: &Incoming) {
    trace::receive(|| match incoming.packet() {
        Ok(packet) => Kept::of_own(qp, &packet).of_device(qp.device().name()),
        Err(_) => Kept::UNREADABLE.of_device(qp.device().name()),
    });
}

/// An acknowledgment was sent.
#[inline(always)]
pub(crate) fn acknowledged(qp: &IbQp, reply: &Reply) {
    trace::ack(|| Ack {
        device: qp.device().name(),
        qpn: qp.qpn,
        sent: true,
        psn: reply.psn.get(),
        syndrome: reply.syndrome.raw(),
        msn: reply.msn,
    });
}

/// A response was received, which may be an acknowledgment.
#[inline(always)]
pub(crate) fn acknowledgment(qp: &IbQp, packet: &wire::Packet<'_>) {
    if !trace::ack_is_on() {
        return;
    }
    if let Some(aeth) = packet.aeth() {
        trace::ack(|| Ack {
            device: qp.device().name(),
            qpn: qp.qpn,
            sent: false,
            psn: packet.psn().get(),
            syndrome: aeth.syndrome.raw(),
            msn: aeth.msn,
        });
    }
}

/// A send half retransmits, or gives up.
#[inline(always)]
pub(crate) fn retried(qp: &IbQp, snapshot: impl FnOnce() -> SendSnapshot, counter: Counter) {
    trace::retry(|| {
        let snapshot = snapshot();
        Retry {
            device: qp.device().name(),
            qpn: qp.qpn,
            psn: snapshot.una.get(),
            left: match counter {
                Counter::RnrReceived => snapshot.rnr_left,
                _ => snapshot.retries_left,
            },
            reason: match snapshot.state {
                SendState::Error => c"given_up",
                _ => counter.name(),
            },
        }
    });
}

/// A packet is not sent.
#[inline(always)]
pub(crate) fn not_sent(qp: &IbQp, kept: &Kept) {
    trace::drop(|| (c"not_sent", kept.of_device(qp.device().name())));
}

/// Keeps the fields of a packet for its drop, if the tracepoint is enabled.
#[inline(always)]
pub(crate) fn keep(packet: &wire::Packet<'_>, kept: &mut Option<Kept>) {
    if trace::drop_is_on() {
        *kept = Some(Kept::of(packet));
    }
}

/// A packet is dropped that a queue pair got.
#[inline(always)]
pub(crate) fn dropped(qp: &IbQp, packet: &wire::Packet<'_>, counter: Counter) {
    trace::drop(|| {
        let packet = Kept::of_own(qp, packet).of_device(qp.device().name());
        (counter.name(), packet)
    });
}

/// A packet is dropped because too many wait for the queue pair.
#[cold]
pub(crate) fn dropped_waiting(qp: &IbQp, incoming: &Incoming) {
    if let Ok(packet) = incoming.packet() {
        dropped(qp, &packet, Counter::Backlog);
    }
}

/// A packet was dropped whose fields [`keep`] kept.
#[cold]
pub(crate) fn was_dropped(device: Option<&Device<Ferroce>>, kept: &Option<Kept>, counter: Counter) {
    trace::drop(|| {
        let device = device.map_or(DeviceName::EMPTY, Device::name);
        let kept = kept.as_ref().unwrap_or(&Kept::UNREADABLE);
        (counter.name(), kept.of_device(device))
    });
}

/// The fields of a train that is gone when it is traced.
pub(crate) struct KeptTrain {
    packets: u16,
    bytes: u32,
}

/// Keeps the fields of a train, if the tracepoint is enabled.
#[inline(always)]
pub(crate) fn keep_train(train: &Train) -> Option<KeptTrain> {
    trace::train_is_on().then(|| KeptTrain {
        packets: train.packets(),
        // CAST: Less than 16 packets of 65535 bytes.
        bytes: train.bytes() as u32,
    })
}

/// A half, the receive half or the send half, handed a train to IP, with this result.
#[inline(always)]
pub(crate) fn handed_over(
    qp: &IbQp,
    receive: bool,
    kept: Option<KeptTrain>,
    result: impl FnOnce() -> &'static CStr,
) {
    if let Some(kept) = kept {
        trace::train(|| trace::Train {
            device: qp.device().name(),
            qpn: qp.qpn,
            receive,
            packets: kept.packets,
            bytes: kept.bytes,
            result: result(),
        });
    }
}
