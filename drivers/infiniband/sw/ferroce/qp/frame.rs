// SPDX-License-Identifier: GPL-2.0

//! Raw packets: Ethernet frames that are sent unchanged from the buffer.
//!
//! The creator of such a queue pair needs CAP_NET_RAW over the network namespace of the net device,
//! as for a packet socket. The core checks only the namespace that the RDMA device was moved to.

use super::path::{
    SendError,
    HEADROOM, //
};
use crate::{
    counters::{
        Counter,
        Counters, //
    },
    device::Ferroce,
    work::WakeQp, //
};
use kernel::{
    prelude::*,
    sync::aref::ARef, //
};
use rdma::{
    ib::Device,
    net::{
        namespace::Namespace,
        netdevice::NetDevice,
        skbuff::{
            SkBuff,
            ETHERNET_LEN, //
        },
        tx_in_flight::TxInFlight, //
    }, //
};
use roce::wr::MemError;

/// The length of a VLAN tag, by which a tagged frame may be longer.
const TAG_LEN: u32 = 4;
/// The largest MTU that is used: the default of lo. Frames must fit into a [`SkBuff`], but lo and
/// dummy devices may have an MTU of 2 GiB.
const MAX_MTU: u32 = 1 << 16;
/// The EtherTypes of VLAN tags: 802.1Q and 802.1ad.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// Returns the net device that frames leave through. Process context.
///
/// The reference delays the end of the net device, but not for long: the RDMA device and its queue
/// pairs are removed with it.
///
/// # Errors
///
/// `ENODEV` if it is gone, `EOPNOTSUPP` if it is not an Ethernet device, `EPERM` if the current
/// task lacks CAP_NET_RAW there.
pub(super) fn netdev(device: &Device<Ferroce>) -> Result<ARef<NetDevice>> {
    let netdev = device.netdev().ok_or(ENODEV)?;

    if netdev.mac().is_none() {
        return Err(EOPNOTSUPP);
    }
    let namespace = Namespace::of(&netdev).ok_or(ENODEV)?;
    if !namespace.allows_raw_packets() {
        return Err(EPERM);
    }
    Ok(netdev)
}

/// Sends `len` bytes that `gather` appends, and counts them. A frame that a queue below refuses is
/// lost. Bottom halves are off.
// Not inlined, because raw packets are rare.
#[inline(never)]
pub(super) fn send(
    netdev: &NetDevice,
    len: u32,
    gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
    account: &TxInFlight<WakeQp>,
    counters: &Counters,
) -> Result<(), SendError> {
    // CAST: 14.
    let plain = netdev
        .mtu()
        .min(MAX_MTU)
        .saturating_add(ETHERNET_LEN as u32);
    // CAST: Widening.
    let size = len as usize;

    if size < ETHERNET_LEN || len > plain.saturating_add(TAG_LEN) {
        return Err(SendError::Memory(MemError::Length));
    }
    let mut skb = SkBuff::alloc(HEADROOM, size).ok_or_else(|| SendError::no_memory(counters))?;
    gather(&mut skb).map_err(SendError::Memory)?;
    if len > plain && !is_tagged(&skb) {
        return Err(SendError::Memory(MemError::Length));
    }
    let rejected = |_| SendError::lost(counters, Counter::Rejected, 1);
    account.charge_frame(&mut skb).map_err(rejected)?;
    skb.transmit_frame(netdev).map_err(rejected)?;
    counters.sent(1, size);
    Ok(())
}

/// Returns whether a frame has a VLAN tag.
fn is_tagged(skb: &SkBuff) -> bool {
    skb.data()
        .first_chunk::<ETHERNET_LEN>()
        .and_then(|header| header.last_chunk())
        .is_some_and(|ty| TAGS.contains(ty))
}
