// SPDX-License-Identifier: GPL-2.0

//! The speed of the net device, with which static rates are compared.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use rdma::net::{
    netdevice::NetDevice,
    Rtnl, //
};
use roce::pace::Rate;

/// The speed of a net device at the last query of the port. No lock: a reader needs no particular
/// moment.
pub(crate) struct Speed {
    /// Mb/s; 0 if the net device does not know.
    mbps: Atomic<u32>,
}

impl Speed {
    /// Creates one that is not known yet.
    pub(crate) fn new() -> Self {
        Self {
            mbps: Atomic::new(0),
        }
    }

    /// Queries the net device; returns whether it has a speed. Sleeps.
    pub(crate) fn update(&self, netdev: &NetDevice) -> bool {
        let mbps = netdev.speed(&Rtnl::lock());
        self.mbps.store(mbps.unwrap_or(0), Relaxed);
        mbps.is_some()
    }

    /// Returns the rate that a code of `enum ib_rate` limits packets to. `None` if that is at least
    /// the speed of the net device.
    pub(crate) fn limit(&self, static_rate: u8) -> Option<Rate> {
        let rate = Rate::from_ib(static_rate).ok().flatten()?;
        let mbps = self.mbps.load(Relaxed);

        (mbps == 0 || rate.mbps() < mbps).then_some(rate)
    }
}
