// SPDX-License-Identifier: GPL-2.0

//! Events of ports.

use super::{
    device::Device,
    ops::PORT,
    Driver, //
};
use crate::{
    bindings,
    net::netdevice::NetDevice, //
};
use kernel::ffi;

impl<D: Driver> Device<D> {
    /// Tells the consumers that the port has become active (`IB_EVENT_PORT_ACTIVE`) or has gone
    /// down (`IB_EVENT_PORT_ERR`), later, from a work item of the core. Does nothing if the
    /// device is not registered. Callable in any context.
    pub fn dispatch_port_event(&self, active: bool) {
        let Some(device) = self.registered() else {
            return;
        };
        let mut event: bindings::ib_event = pin_init::zeroed();
        event.device = device.as_raw();
        event.event = if active {
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE
        } else {
            bindings::ib_event_type_IB_EVENT_PORT_ERR
        };
        // SAFETY: The element is a number. The device is registered. The core copies the event, and
        // delivers it before it frees the device.
        unsafe {
            *event.element.port_num.as_mut() = PORT;
            bindings::ib_dispatch_event(&event);
        }
    }
}

/// Implements `ib_device_ops.report_port_event`. RTNL is held.
///
/// # Safety
///
/// Only for the core, with a live device and a live net device.
pub(super) unsafe extern "C" fn report_port_event<D: Driver>(
    raw: *mut bindings::ib_device,
    netdev: *mut bindings::net_device,
    _event: ffi::c_ulong,
) {
    // SAFETY: Both are alive.
    let (dev, netdev) = unsafe { (Device::<D>::from_raw(raw), NetDevice::from_raw(netdev)) };
    D::report_port_event(dev, netdev);
}
