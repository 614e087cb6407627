// SPDX-License-Identifier: GPL-2.0

//! Network devices, packets, routes and sockets.
//!
//! The parts of the network stack for a driver that carries its protocol over UDP. A packet is
//! received from a [`UdpTunnel`] as an [`SkBuff`], and sent as an [`SkBuff`] with an IP header,
//! along a [`Dst`] of a [`CachedRoute`]. [`TxInFlight`] counts the packets that the stack has.

pub mod multicast;
pub mod namespace;
pub mod netdevice;
pub mod notifier;
pub mod pernet;
pub mod route;
pub mod skbuff;
pub mod tx_in_flight;
pub mod udp_tunnel;

pub use multicast::{
    Group,
    Rtnl, //
};
pub use namespace::{
    Namespace,
    NetId, //
};
pub use netdevice::NetDevice;
pub use notifier::{
    NetdevEvent,
    NetdevHandler,
    NetdevNotifier, //
};
pub use pernet::NetRegistration;
pub use route::{
    CachedRoute,
    Dst,
    RouteAddresses,
    RouteKey, //
};
pub use skbuff::{
    IpHeader,
    PacketPools,
    SkBuff,
    SkBuffList,
    Train, //
};
pub use tx_in_flight::TxInFlight;
pub use udp_tunnel::{
    Family,
    UdpReceive,
    UdpTunnel, //
};
