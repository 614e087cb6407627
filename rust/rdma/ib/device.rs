// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.

use super::{
    cap::{
        DeviceCaps,
        KernelCaps,
        OdpCaps, //
    },
    object::alloc_size,
    ops::{
        self,
        VTable,
        PORT, //
    },
    registered::{
        DeviceRef,
        Registered, //
    },
    Driver, //
};
use crate::{
    bindings,
    copy_name,
    net::{
        namespace::Namespace,
        netdevice::NetDevice, //
    }, //
};
use core::{
    any::TypeId,
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi,
    fmt,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

/// A device: the core's part, then the driver's.
///
/// The core keeps a device alive during callbacks, which borrow it; [`DeviceRef`] is a reference.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{device::DeviceInit, Device, Driver};
/// /// Registers a device, unless its net device has one already.
/// fn add<D: Driver>(init: &DeviceInit<'_>, data: D) -> Result {
///     if Device::<D>::by_netdev(init.netdev).is_some() {
///         return Err(EEXIST);
///     }
///     Device::register(init, Ok(data))
/// }
/// ```
#[repr(C)]
pub struct Device<D: Driver> {
    raw: Opaque<bindings::ib_device>,
    /// The `TypeId` of `D`.
    type_id: TypeId,
    pub(super) data: D,
}

/// The identity of a new device.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::device::DeviceInit;
/// # use rdma::net::NetDevice;
///
/// fn init<'a>(name: &'a CStr, netdev: &'a NetDevice) -> DeviceInit<'a> {
///     DeviceInit {
///         name,
///         netdev,
///         node_guid: [0x02, 0, 0, 0xff, 0xfe, 0, 0, 1],
///         node_desc: c"my_driver",
///         comp_vectors: 1,
///     }
/// }
/// ```
pub struct DeviceInit<'a> {
    /// The name that the user chose.
    pub name: &'a CStr,
    /// The net device below it.
    pub netdev: &'a NetDevice,
    /// The GUID in network byte order.
    pub node_guid: [u8; 8],
    /// A description, at most 63 bytes.
    pub node_desc: &'a CStr,
    /// The number of completion vectors; 0 counts as 1.
    pub comp_vectors: u32,
}

impl<D: Driver> Device<D> {
    /// Allocates and registers a device. May sleep.
    ///
    /// In the exclusive mode of RDMA namespaces it is born in the namespace of the net device; in
    /// the shared mode the core puts it into the initial one.
    ///
    /// The core owns the device from then on: it is destroyed by `rdma link delete`,
    /// [`Device::unregister_queued`] or [`Devices`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if the name contains a `%`; `ENOMEM`, `ENFILE` or `EEXIST` for the name, `ENODEV`
    /// if the net device is gone, the error of `init`, or that of a callback during registration.
    pub fn register(id: &DeviceInit<'_>, init: impl PinInit<D, Error>) -> Result {
        const_assert!(
            core::mem::offset_of!(Self, raw) == 0,
            "struct ib_device must be at offset 0"
        );

        // The core would take it for a format string.
        if id.name.to_bytes_with_nul().contains(&b'%') {
            return Err(EINVAL);
        }
        // The core keeps no reference, but the namespace must exist until the registration is done.
        let namespace = Namespace::of(id.netdev).ok_or(ENODEV)?;
        // SAFETY: The namespace is alive. The size is that of `Self`, padded to its alignment.
        let raw = unsafe { bindings::_ib_alloc_device(alloc_size::<Self>(), namespace.as_raw()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // The ops are set later, so that a failure does not drop parts that were not constructed.
        let guard = Allocated(raw);
        let this = raw.as_ptr().cast::<Self>();
        // SAFETY: The fields are in the allocation, valid for write, and do not move.
        unsafe {
            (&raw mut (*this).type_id).write(TypeId::of::<D>());
            pin_init::raw_try_init(&raw mut (*this).data, init)?;
        }

        // SAFETY: The device is not registered yet, so it is ours alone.
        unsafe {
            let dev = &mut *raw.as_ptr();
            bindings::ib_mark_name_assigned_by_user(dev);
            // CAST: The value is 1.
            dev.node_type = bindings::RDMA_NODE_IB_CA as u8;
            dev.phys_port_cnt = PORT;
            // CAST: There are not as many as 2^31.
            dev.num_comp_vectors = id.comp_vectors.max(1) as ffi::c_int;
            dev.node_guid = u64::from_ne_bytes(id.node_guid);
            for (to, from) in dev.node_desc.iter_mut().zip(id.node_desc.to_bytes()) {
                *to = *from;
            }
            for cmd in D::UVERBS_CMDS {
                // CAST: The number of the verb.
                dev.uverbs_cmd_mask |= 1u64.wrapping_shl(*cmd as u32);
            }
            bindings::ib_set_device_ops(dev, &VTable::<D>::VTABLE);
            to_result(bindings::ib_device_set_netdev(
                dev,
                id.netdev.as_raw(),
                PORT,
            ))?;
            to_result(bindings::ib_register_device(
                dev,
                id.name.as_char_ptr(),
                core::ptr::null_mut(),
            ))?;
        }
        core::mem::forget(guard);
        // The net device may have been unregistered before its notifier could find the device.
        if !id.netdev.is_registered() {
            Self::unregister_queued_on(id.netdev);
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Returns the device of this driver on a net device, if there is one. Callable in any context.
    pub fn by_netdev(netdev: &NetDevice) -> Option<DeviceRef<D>> {
        // SAFETY: The net device is alive.
        let raw = unsafe { bindings::ib_device_get_by_netdev(netdev.as_raw(), D::DRIVER_ID.raw()) };
        // SAFETY: The function returns a reference.
        let device = unsafe { Registered::from_raw(NonNull::new(raw)?) };

        // Drivers that do not use this crate may have the same ID.
        // SAFETY: The device is referenced.
        let dealloc = unsafe { (*raw).ops.dealloc_driver }?;
        let ours: unsafe extern "C" fn(*mut bindings::ib_device) = ops::dealloc_driver::<D>;
        if !core::ptr::fn_addr_eq(dealloc, ours) {
            return None;
        }
        // So may another driver of this module, and the compiler may merge equal functions.
        // SAFETY: Only devices that this crate registers have the callback, and the offset of the
        // field is the same in all of them.
        let type_id = unsafe { (&raw const (*raw.cast::<Self>()).type_id).read() };
        // SAFETY: The device is of `D`.
        (type_id == TypeId::of::<D>()).then(|| unsafe { DeviceRef::new(device) })
    }

    /// Returns a reference that keeps the device registered. Callable in any context.
    ///
    /// `None` before the core enables the device, and once the core has removed its clients and the
    /// last reference is gone.
    pub(super) fn registered(&self) -> Option<Registered> {
        // SAFETY: The device is alive.
        unsafe { Registered::get(NonNull::from(self).cast()) }
    }

    /// Unregisters the device later, from a work item of the core; does nothing if it is not
    /// registered. Callable under RTNL.
    pub fn unregister_queued(&self) {
        if let Some(device) = self.registered() {
            // SAFETY: The device is registered. The core takes a reference for the work item.
            unsafe { bindings::ib_unregister_device_queued(device.as_raw()) };
        }
    }

    /// Unregisters the device of this driver on a net device later, if there is one; see
    /// [`unregister_queued`](Self::unregister_queued).
    pub fn unregister_queued_on(netdev: &NetDevice) {
        if let Some(device) = Self::by_netdev(netdev) {
            device.unregister_queued();
        }
    }

    /// Returns the net device below, unless it is gone.
    pub fn netdev(&self) -> Option<ARef<NetDevice>> {
        // SAFETY: The device is alive.
        let dev = unsafe { bindings::ib_device_get_netdev(self.as_raw(), PORT) };
        // SAFETY: The function returns a reference.
        NonNull::new(dev).map(|dev| unsafe { ARef::from_raw(dev.cast()) })
    }

    /// Returns a copy of the name. Callable in any context.
    pub fn name(&self) -> DeviceName {
        // SAFETY: The device is alive, and its name has that length. `ib_device_rename()` may be
        // writing to it.
        // INVARIANT: The last byte is zero.
        DeviceName(unsafe { copy_name((&raw const (*self.as_raw()).name).cast()) })
    }

    /// Returns the C device.
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_device {
        self.raw.get()
    }

    /// Borrows a device.
    ///
    /// # Safety
    ///
    /// `raw` must be a device of `D` that is valid for the lifetime.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: By the requirement of this function, and because `raw` is the first field.
        unsafe { &*raw.cast() }
    }
}

/// Bytes of a name, its terminator included.
// CAST: The value is 64.
const NAME_LEN: usize = bindings::IB_DEVICE_NAME_MAX as usize;

/// A copy of the name of a device.
///
/// A reference to the name of the core's device would not suffice: `ib_device_rename()` writes to
/// it under a lock that drivers cannot take. A copy that is made during a rename may begin with the
/// new name and end with the old one. It is a C string in any case.
///
/// # Invariants
///
/// The last byte is zero.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{Device, Driver};
/// fn has_name<D: Driver>(dev: &Device<D>, name: &CStr) -> bool {
///     dev.name().as_c_str() == name
/// }
/// ```
#[derive(Clone, Copy)]
pub struct DeviceName([u8; NAME_LEN]);

impl DeviceName {
    /// The name of no device.
    pub const EMPTY: Self = Self([0; NAME_LEN]);

    /// Returns the name as a C string.
    pub fn as_c_str(&self) -> &CStr {
        // There is a terminator by the type invariant.
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_c_str(), f)
    }
}

impl<D: Driver> Deref for Device<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.data
    }
}

/// Frees a device whose registration failed.
struct Allocated(NonNull<bindings::ib_device>);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: The device was allocated and is not registered. If the ops are set this drops the
        // driver's part, which was constructed before.
        unsafe { bindings::ib_dealloc_device(self.0.as_ptr()) };
    }
}

/// The devices of a driver. Dropping it unregisters all of them and waits until this is done. May
/// sleep.
///
/// For module exit. Nothing may create a device at that time or later.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::link::{LinkRegistration, LinkType};
/// # use rdma::ib::{device::Devices, Driver};
/// /// A module. Its fields are dropped in the order of declaration.
/// #[pin_data]
/// struct Module<L: LinkType, D: Driver> {
///     #[pin]
///     _link: LinkRegistration<L>,
///     _devices: Devices<D>,
/// }
/// ```
pub struct Devices<D: Driver>(PhantomData<fn() -> D>);

impl<D: Driver> Devices<D> {
    /// Creates the guard, once in a module.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<D: Driver> Drop for Devices<D> {
    fn drop(&mut self) {
        // SAFETY: The function has no requirement; a driver id of which no device exists is fine.
        unsafe { bindings::ib_unregister_driver(D::DRIVER_ID.raw()) };
    }
}

/// The attributes of a device.
///
/// # Examples
///
/// ```
/// use rdma::ib::device::DeviceAttr;
///
/// fn query(attr: &mut DeviceAttr) {
///     attr.set_max_pd(16).set_max_qp(64).set_max_qp_wr(1024);
/// }
/// ```
pub struct DeviceAttr(pub(super) bindings::ib_device_attr);

macro_rules! limits {
    ($($(#[$doc:meta])* $set:ident = $name:ident: $ty:ty,)*) => {
        impl DeviceAttr {
            $(
                #[doc = concat!("Sets `", stringify!($name), "`.")]
                #[doc = ""]
                $(#[$doc])*
                pub fn $set(&mut self, value: $ty) -> &mut Self {
                    self.0.$name = value;
                    self
                }
            )*
        }
    };
}

impl DeviceAttr {
    /// Advertises compare and swap, and fetch and add, which are atomic at least to each other
    /// (`IB_ATOMIC_HCA`).
    pub fn set_atomics(&mut self) -> &mut Self {
        self.0.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_HCA;
        self
    }

    /// Sets the capabilities that applications see.
    pub fn set_device_caps(&mut self, caps: DeviceCaps) -> &mut Self {
        self.0.device_cap_flags = caps.into();
        self
    }

    /// Sets the capabilities that only the kernel sees.
    pub fn set_kernel_caps(&mut self, caps: KernelCaps) -> &mut Self {
        self.0.kernel_cap_flags = caps.into();
        self
    }

    /// Advertises memory on demand, also of the whole address space of a process.
    pub fn set_odp_caps(&mut self, caps: &OdpCaps) -> &mut Self {
        let general = bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT
            | bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT;
        let odp = &mut self.0.odp_caps;
        odp.general_caps = u64::from(general);
        odp.per_transport_caps.rc_odp_caps = caps.rc.into();
        odp.per_transport_caps.uc_odp_caps = caps.uc.into();
        odp.per_transport_caps.ud_odp_caps = caps.ud.into();
        self
    }
}

limits! {
    set_vendor_id = vendor_id: u32,
    /// In network byte order.
    set_sys_image_guid = sys_image_guid: u64,
    set_max_mr_size = max_mr_size: u64,
    /// A mask of sizes in bytes: bit `n` stands for 2^n.
    set_page_size_cap = page_size_cap: u64,
    set_max_qp = max_qp: u32,
    set_max_qp_wr = max_qp_wr: u32,
    set_max_send_sge = max_send_sge: u32,
    set_max_recv_sge = max_recv_sge: u32,
    /// Maximum number of scatter entries of a READ.
    set_max_sge_rd = max_sge_rd: u32,
    set_max_cq = max_cq: u32,
    set_max_cqe = max_cqe: u32,
    set_max_srq = max_srq: u32,
    set_max_srq_wr = max_srq_wr: u32,
    set_max_srq_sge = max_srq_sge: u32,
    set_max_mr = max_mr: u32,
    set_max_mw = max_mw: u32,
    /// Maximum number of pages of a region that kernel consumers map memory to.
    set_max_fast_reg_page_list_len = max_fast_reg_page_list_len: u32,
    set_max_pd = max_pd: u32,
    /// Maximum number of READs outstanding as responder, for a queue pair.
    set_max_qp_rd_atom = max_qp_rd_atom: u32,
    /// Maximum number of READs outstanding as responder, in total.
    set_max_res_rd_atom = max_res_rd_atom: u32,
    /// Maximum number of READs outstanding as requester, for a queue pair.
    set_max_qp_init_rd_atom = max_qp_init_rd_atom: u32,
    set_max_ah = max_ah: u32,
    set_max_mcast_grp = max_mcast_grp: u32,
    /// Maximum number of queue pairs of a multicast group.
    set_max_mcast_qp_attach = max_mcast_qp_attach: u32,
    /// Maximum number of memberships in multicast groups, in total.
    set_max_total_mcast_qp_attach = max_total_mcast_qp_attach: u32,
    set_max_pkeys = max_pkeys: u16,
    /// Code `n` stands for 4.096 us * 2^n.
    set_local_ca_ack_delay = local_ca_ack_delay: u8,
}

/// The state of a port.
///
/// # Examples
///
/// ```
/// use rdma::ib::device::PortAttr;
/// # use rdma::net::NetDevice;
///
/// fn query(netdev: &NetDevice, attr: &mut PortAttr<'_>) {
///     attr.set_state_of(netdev)
///         .set_mtu(4096, 1024)
///         .set_tables(16, 1);
/// }
/// ```
pub struct PortAttr<'a>(pub(super) &'a mut bindings::ib_port_attr);

impl PortAttr<'_> {
    /// Takes the state (`enum ib_port_state` and `enum ib_port_phys_state`) from the net device.
    pub fn set_state_of(&mut self, netdev: &NetDevice) -> &mut Self {
        let (logical, physical) = if netdev.port_active() {
            (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
            )
        } else if netdev.is_up() {
            // It has no carrier.
            (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING,
            )
        } else {
            (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
            )
        };
        self.0.state = logical;
        // CAST: The values are 2, 3 and 5.
        self.0.phys_state = physical as u8;
        self
    }

    /// Sets the largest and the current path MTU, in bytes: each is rounded down to a power of 2
    /// between 256 and 4096 (`enum ib_mtu`).
    pub fn set_mtu(&mut self, max: u32, active: u32) -> &mut Self {
        /// Returns the number in `enum ib_mtu`: 256, which is 2^8, is number 1.
        fn number(bytes: u32) -> u32 {
            24u32.wrapping_sub(bytes.clamp(256, 4096).leading_zeros())
        }
        self.0.max_mtu = number(max);
        self.0.active_mtu = number(active);
        self
    }

    /// Sets the sizes of the GID and the P_Key table.
    pub fn set_tables(&mut self, gids: u32, pkeys: u16) -> &mut Self {
        // CAST: There are not as many as 2^31.
        self.0.gid_tbl_len = gids as ffi::c_int;
        self.0.pkey_tbl_len = pkeys;
        self
    }

    /// Sets the largest message in bytes.
    pub fn set_max_msg_sz(&mut self, bytes: u32) -> &mut Self {
        self.0.max_msg_sz = bytes;
        self
    }

    /// Advertises a communication manager.
    pub fn set_cm_supported(&mut self) -> &mut Self {
        self.0.port_cap_flags |= bindings::ib_port_capability_mask_bits_IB_PORT_CM_SUP;
        self
    }

    /// Takes speed and width from the net device. May sleep, takes RTNL.
    pub fn set_speed_of<D: Driver>(&mut self, dev: &Device<D>) -> &mut Self {
        self.0.max_vl_num = 1;
        // SAFETY: The device is alive, and the pointers are to fields of `self`. If the net device
        // does not know its speed, the core uses a default and logs this each time.
        unsafe {
            bindings::ib_get_eth_speed(
                dev.as_raw(),
                PORT,
                &mut self.0.active_speed,
                &mut self.0.active_width,
            )
        };
        self
    }

    /// Reports the lowest speed and width, as the core does for a net device that does not know its
    /// own.
    pub fn set_least_speed(&mut self) -> &mut Self {
        self.0.max_vl_num = 1;
        // CAST: Both values are 1.
        self.0.active_speed = bindings::ib_port_speed_IB_SPEED_SDR as u16;
        self.0.active_width = bindings::ib_port_width_IB_WIDTH_1X as u8;
        self
    }
}
