// SPDX-License-Identifier: GPL-2.0

//! The speed of the net device, which static rates are compared with.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use rdma::net::{
    netdevice::NetDevice,
    Rtnl, //
};
use roce::pace::Rate;

/// The speed of a net device at the last query of the port. It needs no lock, because readers may
/// use an old value.
pub(crate) struct Speed {
    /// In Mb/s; 0 if the net device does not know its speed.
    mbps: Atomic<u32>,
}

impl Speed {
    /// Creates a speed that is not known yet.
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

    /// Returns the static rate for a value of `enum ib_rate`, or `None` if it does not limit the
    /// net device ([`Rate::limits`]).
    pub(crate) fn limit(&self, static_rate: u8) -> Option<Rate> {
        let rate = Rate::from_ib(static_rate).ok().flatten()?;

        rate.limits(self.mbps.load(Relaxed)).then_some(rate)
    }
}
