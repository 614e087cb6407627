// SPDX-License-Identifier: GPL-2.0

//! Checks packets from the UDP sockets, and hands them to the halves that they are for.
//!
//! An invalid packet is dropped without a message: any host may have sent it.

use crate::{
    counters::Counter,
    device::QpRef,
    gids::{
        self,
        Address,
        Link, //
    },
    mcast,
    packet::{
        total,
        Batch,
        Flow,
        Incoming,
        Origin, //
    },
    qp::{
        self,
        recv,
        send, //
    },
    sockets::Receiver,
    traces, //
};
use kernel::prelude::*;
use rdma::{
    ib::gid::GidTable,
    net::{
        netdevice::NetDevice,
        skbuff::SkBuffList,
        udp_tunnel::UdpReceive, //
    }, //
};
use roce::{
    icrc::IPV4_LEN,
    ids::{
        Pkey,
        Qpn, //
    },
    opcode::Transport,
    qp::QpType, //
};

impl UdpReceive for Receiver {
    fn receive(packets: SkBuffList, dev: &NetDevice) {
        if packets.is_empty() {
            // Its addresses, its number of packets and their bytes are not known any more.
            refuse_unknown(None, dev, Counter::NoMemory, 0, &None);
        }
        let mut batch = Batch::new(packets, dev);

        while let Some(taken) = batch.pop() {
            let mut kept = None;
            match taken {
                Ok((incoming, mut origin)) => {
                    if let Err(reason) = dispatch(incoming, &mut origin, &mut batch, &mut kept) {
                        let address = Some(origin.address());
                        refuse_unknown(address, dev, reason, origin.bytes, &kept);
                    }
                }
                Err((reason, len)) => {
                    refuse_unknown(None, dev, reason, total(len, IPV4_LEN), &None)
                }
            }
        }
    }
}

/// Checks a packet and hands it to the half that it is for, together with the packets behind it for
/// the same half.
///
/// # Errors
///
/// The drop counter, if the packet is dropped and was not counted yet.
#[inline]
fn dispatch(
    mut incoming: Incoming,
    origin: &mut Origin,
    batch: &mut Batch<'_>,
    kept: &mut Option<traces::Packet>,
) -> Result<(), Counter> {
    let packet = incoming.packet().map_err(|_| Counter::Malformed)?;
    traces::keep(&packet, kept);
    if !packet.pkey().matches(Pkey::DEFAULT) {
        return Err(Counter::BadPkey);
    }
    if packet.dest_qpn() == Qpn::MULTICAST {
        // There may be many members, so check the common conditions here.
        if packet.opcode().transport() != Transport::Ud {
            return Err(Counter::BadOpcode);
        }
        if !incoming.is_intact() {
            return Err(Counter::BadIcrc);
        }
        return deliver(incoming, origin, &Link::of(batch.dev()));
    }
    let (qp, vlan) = match packet.dest_qpn() {
        Qpn::GSI => find_gsi(origin, batch.dev()).ok_or(Counter::NoQp)?,
        qpn => {
            let qp = qp::find(qpn.get()).ok_or(Counter::NoQp)?;
            if qp.ty == QpType::Gsi {
                // Only the driver uses this number for it.
                return Err(Counter::NoQp);
            }
            (qp, incoming.vlan())
        }
    };
    let result = if !qp.ty.takes(packet.opcode().transport()) {
        Err(Counter::BadOpcode)
    } else if !incoming.is_intact() {
        Err(Counter::BadIcrc)
    } else {
        traces::received(&qp, &packet);
        let flow = Flow::of(&packet);
        let is_request = packet.opcode().is_request();
        incoming.set_vlan(vlan);
        if is_request {
            recv::request(&qp, origin, incoming, flow, batch)
        } else {
            send::respond(&qp, origin, incoming, flow, batch)
        }
    };
    if let Err(reason) = result {
        refuse(&qp, reason, origin.bytes);
        traces::was_dropped(Some(qp.device()), kept, reason);
    }
    Ok(())
}

/// The device to whose members a datagram is being handed.
struct Seen {
    device: u32,
    /// True if the datagram reaches it.
    reached: bool,
    /// True until it has counted the datagram.
    uncounted: bool,
}

/// Hands a datagram to the members of its group whose device is on the net device that received it,
/// or on one below. Softirq or process context.
///
/// # Errors
///
/// The drop counter, if there is no such member.
fn deliver(incoming: Incoming, origin: &Origin, link: &Link) -> Result<(), Counter> {
    let mut delivered = false;
    let mut last: Option<Seen> = None;

    mcast::for_each_member(&origin.address(), |device, number| {
        let seen = match &mut last {
            Some(seen) if seen.device == device => seen,
            other => other.insert(Seen {
                device,
                reached: gids::reaches(device, link),
                uncounted: true,
            }),
        };
        if !seen.reached {
            return;
        }
        let Some(qp) = qp::find(number) else {
            return;
        };
        if core::mem::take(&mut seen.uncounted) {
            let counters = &qp.device().counters;
            counters.received(origin.bytes);
            counters.count(Counter::ReceivedMulticast);
        }
        recv::multicast(&qp, &incoming);
        delivered = true;
    });
    if !delivered {
        return Err(Counter::NoGroup);
    }
    incoming.consume();
    Ok(())
}

/// Counts a dropped packet for the device of a queue pair.
///
/// It is not counted for the queue pair that it names: any host may have sent it.
#[cold]
fn refuse(qp: &QpRef, reason: Counter, bytes: u32) {
    let counters = &qp.device().counters;

    counters.received(bytes);
    counters.dropped(reason, 1);
}

/// Counts a dropped packet whose queue pair does not exist or was not looked up, for the device
/// that has the address or, without one, a device that has an address of the net device.
#[cold]
fn refuse_unknown(
    address: Option<Address>,
    dev: &NetDevice,
    reason: Counter,
    bytes: u32,
    kept: &Option<traces::Packet>,
) {
    let link = Link::of(dev);
    let qp = address
        .and_then(|address| gids::gsi(&address, &link))
        .map(|found| found.qp)
        .or_else(|| gids::gsi_at(&link))
        .and_then(qp::find);

    if let Some(qp) = &qp {
        refuse(qp, reason, bytes);
    }
    traces::was_dropped(qp.as_ref().map(|qp| qp.device()), kept, reason);
}

/// Finds the management queue pair for a packet that was received on `dev`, and the VLAN of the
/// packet's destination address.
///
/// The connection manager looks the address up again, by the VLAN. The net device of the address
/// need not be the one that received the packet: that is `lo` for a packet of this host, the VRF,
/// or a bridge or macvlan over a VLAN device.
#[cold]
fn find_gsi(origin: &Origin, dev: &NetDevice) -> Option<(QpRef, Option<u16>)> {
    let found = gids::gsi(&origin.address(), &Link::of(dev))?;
    let qp = qp::find(found.qp)?;
    let gid = GidTable::of(qp.device())
        .and_then(|gids| gids.get(found.gid_index))
        .ok()?;
    if gid.gid() != origin.address().gid {
        // The address was removed, and its index is in use again.
        return None;
    }
    let vlan = gid.vlan_id().ok()?;

    Some((qp, vlan))
}
