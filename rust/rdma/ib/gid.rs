// SPDX-License-Identifier: GPL-2.0

//! Entries of a port's GID table, and address vectors that name one.
//!
//! C header: [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h)

use super::{
    ops::PORT,
    registered::Registered,
    Device,
    Driver, //
};
use crate::{
    bindings,
    net::netdevice::NetDevice, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi,
    prelude::*,
    sync::rcu, //
};

/// The VLAN ID of the core for an address without a VLAN.
const NO_VLAN: u16 = 0xffff;

/// A reference to an entry of a GID table.
///
/// It keeps the entry's slot, not its net device: [`GidAttr::with_netdev`] fails once the net
/// device is removed.
///
/// Do not keep it for long: as long as there are references to an entry its index is in use, and an
/// address that is removed and added again gets another one. The device stays registered meanwhile,
/// as with a [`GidTable`].
///
/// # Invariants
///
/// `entry` is valid and in the table of `_device`, and this value owns a reference to it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::gid::GidAttr;
///
/// /// Returns the index of the net device that has a GID.
/// fn ifindex_of(gid: &GidAttr) -> Result<i32> {
///     gid.with_netdev(|netdev| Ok(netdev.ifindex()))
/// }
/// ```
pub struct GidAttr {
    entry: NonNull<bindings::ib_gid_attr>,
    // Dropped after the reference to the entry.
    _device: Registered,
}

// SAFETY: The entry is reference counted with atomics. Only fields that do not change are read.
unsafe impl Send for GidAttr {}
// SAFETY: As for `Send`.
unsafe impl Sync for GidAttr {}

impl GidAttr {
    /// Takes a reference to the entry that the core passes to a callback.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is not registered.
    ///
    /// # Safety
    ///
    /// `entry` must be valid and referenced by the caller, and its device must be alive.
    pub(super) unsafe fn hold(entry: NonNull<bindings::ib_gid_attr>) -> Result<Self> {
        // SAFETY: By the requirement of this function.
        let device = NonNull::new(unsafe { (*entry.as_ptr()).device }).ok_or(ENODEV)?;
        // SAFETY: By the requirement of this function.
        let device = unsafe { Registered::get(device) }.ok_or(ENODEV)?;
        // SAFETY: By the requirement of this function.
        unsafe { bindings::rdma_hold_gid_attr(entry.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Ok(Self {
            entry,
            _device: device,
        })
    }

    /// Returns the index in the table.
    pub fn index(&self) -> u32 {
        // SAFETY: The entry is alive by the type invariant.
        u32::from(unsafe { (*self.entry.as_ptr()).index })
    }

    /// Returns the GID.
    pub fn gid(&self) -> [u8; 16] {
        // SAFETY: The entry is alive by the type invariant; a GID is plain bytes.
        unsafe { *(*self.entry.as_ptr()).gid.raw.as_ref() }
    }

    /// Returns the VLAN ID that the core associates with the address: that of the net device, or of
    /// a VLAN device directly below it, such as a port of a bridge.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the entry or the net device is gone.
    pub fn vlan_id(&self) -> Result<Option<u16>> {
        let mut vlan_id = NO_VLAN;
        // SAFETY: The entry is alive by the type invariant; a null pointer asks for no address.
        to_result(unsafe {
            bindings::rdma_read_gid_l2_fields(self.entry.as_ptr(), &mut vlan_id, null_mut())
        })
        .map_err(|_| ENODEV)?;
        Ok((vlan_id != NO_VLAN).then_some(vlan_id))
    }

    /// Calls `f` with the net device that has the address, under RCU.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the entry or the net device is gone, or the error of `f`. The net device may be
    /// down.
    pub fn with_netdev<R>(&self, f: impl FnOnce(&NetDevice) -> Result<R>) -> Result<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The entry is alive by the type invariant, and RCU is held.
        let dev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.entry.as_ptr()) };
        let dev = from_err_ptr(dev).map_err(|_| ENODEV)?;
        // SAFETY: A net device that was found under RCU is alive until the end of the section. The
        // function never returns null.
        f(unsafe { NetDevice::from_raw(dev) })
    }
}

impl Drop for GidAttr {
    fn drop(&mut self) {
        // SAFETY: This value owns a reference. The last put is deferred to a work item, for which
        // the core waits when it unregisters the device.
        unsafe { bindings::rdma_put_gid_attr(self.entry.as_ptr()) };
    }
}

/// The GID table of a device.
///
/// It keeps the device registered, because the core frees the table of a device whether there are
/// references to its entries or not. So keep it only in objects that the core destroys before it
/// unregisters the device, such as queue pairs: otherwise the core waits forever.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::gid::GidTable;
///
/// /// Returns whether the entry with an index is a GID.
/// fn is_at(table: &GidTable, index: u32, gid: &[u8; 16]) -> bool {
///     table.get(index).is_ok_and(|entry| entry.gid() == *gid)
/// }
/// ```
#[derive(Clone)]
pub struct GidTable(Registered);

impl GidTable {
    /// Returns the table of a device. Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is not registered.
    pub fn of<D: Driver>(dev: &Device<D>) -> Result<Self> {
        dev.registered().map(Self).ok_or(ENODEV)
    }

    /// Looks up an entry by index. Callable in softirq context.
    ///
    /// # Errors
    ///
    /// `EINVAL` or `ENODATA` if there is no such entry.
    pub fn get(&self, index: u32) -> Result<GidAttr> {
        // SAFETY: The device is registered.
        // CAST: The core refuses a negative index.
        let entry = from_err_ptr(unsafe {
            bindings::rdma_get_gid_attr(self.0.as_raw(), PORT, index as ffi::c_int).cast_mut()
        })?;
        // INVARIANT: `rdma_get_gid_attr` returns a reference.
        Ok(GidAttr {
            entry: NonNull::new(entry).ok_or(EINVAL)?,
            _device: self.0.clone(),
        })
    }
}

/// A GID that is being added to or removed from the table of a device.
///
/// The core holds the mutex of the table, and RTNL too while it adds those of a new device.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{ib::gid::GidChange, sync::MultiTable};
/// /// The indexes of GIDs, by the index of their net device.
/// type Gids = MultiTable<u32, u32, 64>;
///
/// fn add(gids: &Gids, change: &GidChange<'_>) -> Result {
///     let netdev = change.netdev().ok_or(ENODEV)?;
///     gids.insert(netdev.ifindex().unsigned_abs(), change.index(), GFP_KERNEL)
/// }
/// ```
pub struct GidChange<'a>(&'a bindings::ib_gid_attr);

impl GidChange<'_> {
    /// Returns the GID.
    pub fn gid(&self) -> [u8; 16] {
        // SAFETY: A GID is plain bytes.
        unsafe { *self.0.gid.raw.as_ref() }
    }

    /// Returns the index in the table.
    pub fn index(&self) -> u32 {
        u32::from(self.0.index)
    }

    /// Returns the net device that has the address.
    pub fn netdev(&self) -> Option<&NetDevice> {
        let dev = NonNull::new(self.0.ndev)?;
        // SAFETY: The core holds the net device for the callback.
        Some(unsafe { NetDevice::from_raw(dev.as_ptr()) })
    }
}

/// Implements `ib_device_ops.add_gid`. Called under the mutex of the table. May sleep.
///
/// # Safety
///
/// Only for the core.
pub(super) unsafe extern "C" fn add_gid<D: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut ffi::c_void,
) -> ffi::c_int {
    // SAFETY: The entry and its device are valid for the call.
    let (dev, change) = unsafe { (Device::<D>::from_raw((*attr).device), GidChange(&*attr)) };
    super::object::errno(D::add_gid(dev, &change))
}

/// Implements `ib_device_ops.del_gid`. Called under the mutex of the table. May sleep.
///
/// # Safety
///
/// Only for the core.
pub(super) unsafe extern "C" fn del_gid<D: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut ffi::c_void,
) -> ffi::c_int {
    // SAFETY: The entry and its device are valid for the call.
    let (dev, change) = unsafe { (Device::<D>::from_raw((*attr).device), GidChange(&*attr)) };
    D::del_gid(dev, &change);
    0
}

/// The path part of an address vector, in host byte order.
///
/// # Examples
///
/// ```
/// use rdma::ib::gid::Path;
///
/// /// Returns whether a path leads to the address that it starts from.
/// fn is_loopback(path: &Path) -> bool {
///     path.sgid == path.dgid
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The source GID.
    pub sgid: [u8; 16],
    /// The destination GID.
    pub dgid: [u8; 16],
    /// The index of the source GID in the port's table.
    pub sgid_index: u32,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The service level.
    pub sl: u8,
    /// The static rate, as `enum ib_rate`.
    pub static_rate: u8,
    /// The port.
    pub port_num: u32,
    /// The destination MAC address that the core resolved.
    pub dmac: [u8; 6],
}

impl Path {
    /// Reads an address vector of the core; `None` if it has no global route, is not RoCE's, or its
    /// device is not registered.
    ///
    /// # Safety
    ///
    /// `attr` must be valid, its source GID entry referenced by the caller, and its device alive.
    pub(super) unsafe fn from_raw(attr: &bindings::rdma_ah_attr) -> Option<(Self, GidAttr)> {
        if attr.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE
            || u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH == 0
        {
            return None;
        }
        let grh = &attr.grh;
        let gid = NonNull::new(grh.sgid_attr.cast_mut())?;
        // SAFETY: The caller holds a reference.
        let gid = unsafe { GidAttr::hold(gid) }.ok()?;
        let path = Self {
            sgid: gid.gid(),
            // SAFETY: A GID is plain bytes.
            dgid: unsafe { *grh.dgid.raw.as_ref() },
            // Not the index in the address vector, which has only 8 bits.
            sgid_index: gid.index(),
            flow_label: grh.flow_label & 0xf_ffff,
            traffic_class: grh.traffic_class,
            hop_limit: grh.hop_limit,
            sl: attr.sl,
            static_rate: attr.static_rate,
            port_num: attr.port_num,
            // SAFETY: The type says that the RoCE member is the one in use.
            dmac: unsafe { attr.__bindgen_anon_1.roce.as_ref().dmac },
        };
        Some((path, gid))
    }

    /// Writes the address vector for a query.
    pub(super) fn to_raw(self, attr: &mut bindings::rdma_ah_attr) {
        attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        // CAST: The value is 1.
        attr.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        attr.sl = self.sl;
        attr.static_rate = self.static_rate;
        attr.port_num = self.port_num;
        // SAFETY: A GID is plain bytes, and the type says that the RoCE member is the one in use.
        unsafe {
            *attr.grh.dgid.raw.as_mut() = self.dgid;
            attr.__bindgen_anon_1.roce.as_mut().dmac = self.dmac;
        }
        attr.grh.flow_label = self.flow_label;
        // CAST: The core truncates an index above 255 in the same way.
        attr.grh.sgid_index = self.sgid_index as u8;
        attr.grh.hop_limit = self.hop_limit;
        attr.grh.traffic_class = self.traffic_class;
    }
}

/// Returns the UDP source port of a flow between two queue pairs: the same for all of its packets,
/// and different for different flows, so that networks can spread them.
///
/// # Examples
///
/// ```
/// # use rdma::ib::gid::{udp_sport, Path};
/// fn sport_of(path: &Path, local_qpn: u32, remote_qpn: u32) -> u16 {
///     udp_sport(path.flow_label, local_qpn, remote_qpn)
/// }
/// ```
pub fn udp_sport(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    // SAFETY: Only a computation.
    unsafe { bindings::rdma_get_udp_sport(flow_label, local_qpn, remote_qpn) }
}
