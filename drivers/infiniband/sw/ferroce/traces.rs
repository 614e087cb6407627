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
    opcode::Opcode,
    psn::Psn,
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

/// The fields of a packet that is gone when its drop is traced.
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
    trace::send(|| request(qp, &transmit.into()));
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

/// What is told of a request packet.
#[derive(Clone, Copy)]
pub(crate) struct About {
    opcode: Opcode,
    psn: Psn,
    len: u32,
}

impl From<&Transmit> for About {
    #[inline(always)]
    fn from(transmit: &Transmit) -> Self {
        Self {
            opcode: transmit.opcode,
            psn: transmit.psn,
            len: transmit.len,
        }
    }
}

/// A packet is not sent.
#[inline(always)]
pub(crate) fn not_sent(qp: &IbQp, about: &About) {
    trace::drop(|| (c"not_sent", request(qp, about)));
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

/// The fields of a train that is gone when it is traced; none if the tracepoint is disabled.
pub(crate) struct KeptTrain(Option<(u16, u32)>);

/// Keeps the fields of a train, if the tracepoint is enabled.
#[inline(always)]
pub(crate) fn keep_train(train: &Train) -> KeptTrain {
    KeptTrain(if trace::train_is_on() {
        // CAST: Less than 16 packets of 65535 bytes.
        Some((train.packets(), train.bytes() as u32))
    } else {
        None
    })
}

/// A half, the receive half or the send half, handed a train to IP, with this result.
#[inline(always)]
pub(crate) fn handed_over(
    qp: &IbQp,
    receive: bool,
    kept: KeptTrain,
    result: impl FnOnce() -> &'static CStr,
) {
    if !trace::train_is_on() {
        return;
    }
    if let KeptTrain(Some((packets, bytes))) = kept {
        trace::train(|| trace::Train {
            device: qp.device().name(),
            qpn: qp.qpn,
            receive,
            packets,
            bytes,
            result: result(),
        });
    }
}

/// Returns the traced fields of a request.
fn request(qp: &IbQp, about: &About) -> Packet {
    Packet {
        device: qp.device().name(),
        qpn: qp.qpn,
        opcode: about.opcode.raw(),
        psn: about.psn.get(),
        len: about.len,
    }
}
