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
    /// one. `false` for a device that is not registered. Process context.
    ///
    /// Netlink calls the driver in the context of the process that sends the request or receives
    /// the answer. For its own values, the core also requires that the opener of the netlink socket
    /// had the capability. A callback cannot check this, because it does not get the socket.
    /// Therefore, if an unprivileged user makes a privileged program write to a netlink socket of
    /// that user, the user gets the values.
    pub fn is_admin(&self) -> bool {
        // CAST: A small constant.
        const CAPABILITY: ffi::c_int = bindings::CAP_NET_ADMIN as ffi::c_int;

        let Some(device) = self.registered() else {
            return false;
        };
        // SAFETY: The device is registered. As long as it is referenced it stays in its namespace,
        // which the core does not free while there are devices in it, and which keeps its owner.
        // noaudit: any user can trigger this check.
        unsafe {
            let net = bindings::rdma_dev_net(device.as_raw());
            bindings::ns_capable_noaudit((*net).user_ns, CAPABILITY)
        }
    }
}
