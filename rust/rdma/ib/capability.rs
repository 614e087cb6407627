// SPDX-License-Identifier: GPL-2.0

//! Capabilities of the current task over a device.
//!
//! C header: [`include/linux/capability.h`](srctree/include/linux/capability.h)

use super::{
    Device,
    Driver, //
};
use crate::bindings;
use kernel::ffi;

impl<D: Driver> Device<D> {
    /// Returns whether the current task has `CAP_NET_ADMIN` in the user namespace that owns the
    /// network namespace of the device; in the shared mode of RDMA namespaces, that is the initial
    /// one.
    ///
    /// Process context, during a callback of the core that is given an object of the device.
    ///
    /// Netlink calls the driver in the context of the process that sends the request or receives
    /// the answer. For its own values, the core also requires that the opener of the netlink socket
    /// had the capability. A callback cannot check this, because it does not get the socket.
    /// Therefore, if an unprivileged user makes a privileged program write to a netlink socket of
    /// that user, the user gets the values.
    pub fn is_admin(&self) -> bool {
        // CAST: A small constant.
        const CAPABILITY: ffi::c_int = bindings::CAP_NET_ADMIN as ffi::c_int;

        // SAFETY: The device is valid. It moves to another namespace only while no callback runs,
        // and goes, or moves, before its namespace does, which keeps the owner. noaudit: any user
        // can trigger this check.
        unsafe {
            let net = bindings::rdma_dev_net(self.as_raw());
            bindings::ns_capable_noaudit((*net).user_ns, CAPABILITY)
        }
    }
}
