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
pub(crate) use ferroce_trace::Packet;
use ferroce_trace::{
    self as trace,
    Ack,
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

/// The fields of a packet that cannot be parsed.
const UNREADABLE: Packet = Packet {
    qpn: 0,
    opcode: 0xff,
    psn: 0,
    len: 0,
};

/// Returns the fields of a packet.
fn of_packet(packet: &wire::Packet<'_>) -> Packet {
    Packet {
        qpn: packet.dest_qpn().get(),
        opcode: packet.opcode().raw(),
        psn: packet.psn().get(),
        len: packet.payload_len(),
    }
}

/// Returns the fields of a received packet, with the queue pair's own number: in packets, the
/// number of every management queue pair is 1.
fn of_own(qp: &IbQp, packet: &wire::Packet<'_>) -> Packet {
    Packet {
        qpn: qp.qpn,
        ..of_packet(packet)
    }
}

/// Returns the fields of a request packet that the queue pair sends.
#[inline(always)]
pub(crate) fn of_request(qp: &IbQp, transmit: &Transmit) -> Packet {
    Packet {
        qpn: qp.qpn,
        opcode: transmit.opcode.raw(),
        psn: transmit.psn.get(),
        len: transmit.len,
    }
}

/// Traces a request packet that was sent.
#[inline(always)]
pub(crate) fn sent(qp: &IbQp, transmit: &Transmit) {
    trace::send(|| (qp.device().name(), of_request(qp, transmit)));
}

/// Traces a READ response that was sent.
#[inline(always)]
pub(crate) fn sent_response(qp: &IbQp, segment: &ReadSegment) {
    trace::send(|| {
        let packet = Packet {
            qpn: qp.qpn,
            opcode: segment.opcode.raw(),
            psn: segment.psn.get(),
            len: segment.len,
        };
        (qp.device().name(), packet)
    });
}

/// Traces a received packet for a queue pair.
#[inline(always)]
pub(crate) fn received(qp: &IbQp, packet: &wire::Packet<'_>) {
    trace::receive(|| (qp.device().name(), of_own(qp, packet)));
}

/// Traces a packet that was received together with one that was traced before.
#[inline(always)]
pub(crate) fn received_too(qp: &IbQp, incoming: &Incoming) {
    trace::receive(|| {
        let packet = incoming.packet();
        let packet = packet.map_or(UNREADABLE, |packet| of_own(qp, &packet));
        (qp.device().name(), packet)
    });
}

/// Traces an acknowledgment that was sent.
#[inline(always)]
pub(crate) fn acknowledged(qp: &IbQp, reply: &Reply) {
    trace::ack(|| Ack {
        device: qp.device().name(),
        qpn: qp.qpn,
        sent: true,
        psn: reply.psn.get(),
        syndrome: reply.syndrome.raw(),
        msn: reply.msn & wire::MSN_MASK,
    });
}

/// Traces a received response that has an AETH. One that waited for memory, or for an
/// earlier response, is traced each time that it is handled.
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

/// Traces a send half that retransmits, or gives up.
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

/// Traces a packet that is not sent.
#[inline(always)]
pub(crate) fn not_sent(qp: &IbQp, packet: &Packet) {
    trace::drop(|| (qp.device().name(), *packet, c"not_sent"));
}

/// Keeps the fields of a packet in case it is dropped, if the tracepoint is enabled.
#[inline(always)]
pub(crate) fn keep(packet: &wire::Packet<'_>, kept: &mut Option<Packet>) {
    if trace::drop_is_on() {
        *kept = Some(of_packet(packet));
    }
}

/// Traces a dropped packet for a queue pair.
#[inline(always)]
pub(crate) fn dropped(qp: &IbQp, packet: &wire::Packet<'_>, counter: Counter) {
    trace::drop(|| (qp.device().name(), of_own(qp, packet), counter.name()));
}

/// Traces a dropped packet whose fields [`keep`] kept.
#[cold]
pub(crate) fn was_dropped(
    device: Option<&Device<Ferroce>>,
    kept: &Option<Packet>,
    counter: Counter,
) {
    trace::drop(|| {
        let device = device.map_or(DeviceName::EMPTY, Device::name);
        (device, kept.unwrap_or(UNREADABLE), counter.name())
    });
}

/// The traced fields of a train, which is gone when it is traced.
pub(crate) struct KeptTrain {
    packets: u16,
    bytes: u32,
}

/// Keeps the fields of a train, if the tracepoint is enabled.
#[inline(always)]
pub(crate) fn keep_train(train: &Train) -> Option<KeptTrain> {
    trace::train_is_on().then(|| KeptTrain {
        packets: train.packets(),
        // CAST: At most 65535 bytes, and the headers of up to 59 more packets.
        bytes: train.bytes() as u32,
    })
}

/// Traces a train that a half handed to the IP layer: the receive half if `receive`, or else the
/// send half.
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
