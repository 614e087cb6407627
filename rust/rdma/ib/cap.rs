// SPDX-License-Identifier: GPL-2.0

//! Capabilities of a device and of its port.

use crate::bindings;
use kernel::impl_flags;

impl_flags!(
    /// A set of `enum ib_device_cap_flags`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::cap::{DeviceCap, DeviceCaps};
    /// let caps: DeviceCaps = DeviceCap::RcRnrNakGen | DeviceCap::SrqResize;
    /// ```
    #[derive(Clone, Copy)]
    pub struct DeviceCaps(u64);

    /// A capability that applications see.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::{cap::DeviceCap, device::DeviceAttr};
    /// fn query(attr: &mut DeviceAttr) {
    ///     attr.set_device_caps(DeviceCap::RcRnrNakGen.into());
    /// }
    /// ```
    #[derive(Clone, Copy)]
    pub enum DeviceCap {
        // CAST: Each flag is a bit of a `u64`.
        /// The port of an address vector is checked.
        UdAvPortEnforce = bindings::ib_device_cap_flags_IB_DEVICE_UD_AV_PORT_ENFORCE as u64,
        /// The core reports an active port.
        PortActiveEvent = bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64,
        /// The system image GUID is meaningful.
        SysImageGuid = bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64,
        /// The responder sends RNR NAKs.
        RcRnrNakGen = bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64,
        /// Shared receive queues can be resized.
        SrqResize = bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64,
        /// Memory windows of type 1.
        MemWindow = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64,
        /// Memory windows of type 2B.
        MemWindowType2b = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64,
        /// Kernel consumers register memory by requests, and keys are invalidated by requests.
        MemMgtExtensions = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64,
        /// FLUSH makes writes visible to all.
        FlushGlobal = bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64,
        /// ATOMIC WRITE.
        AtomicWrite = bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64,
    }
);

impl_flags!(
    /// A set of `enum ib_kernel_cap_flags`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::cap::{KernelCap, KernelCaps};
    /// let caps: KernelCaps = KernelCap::OnDemandPaging | KernelCap::AllowUserUnreg;
    /// ```
    #[derive(Clone, Copy)]
    pub struct KernelCaps(u64);

    /// A capability that only the kernel sees.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::{cap::KernelCap, device::DeviceAttr};
    /// fn query(attr: &mut DeviceAttr) {
    ///     attr.set_kernel_caps(KernelCap::AllowUserUnreg.into());
    /// }
    /// ```
    #[derive(Clone, Copy)]
    pub enum KernelCap {
        // CAST: Each flag is a bit of a `u64`.
        /// Regions may be fetched on demand.
        OnDemandPaging = bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING as u64,
        /// `rdma link delete` may destroy the device.
        AllowUserUnreg = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG as u64,
    }
);

impl_flags!(
    /// A set of `enum ib_odp_transport_cap_bits`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::cap::{OdpOp, OdpOps};
    /// let ops: OdpOps = OdpOp::Send | OdpOp::Recv;
    /// ```
    #[derive(Clone, Copy)]
    pub struct OdpOps(u32);

    /// An operation on memory on demand.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rdma::ib::cap::{OdpOp, OdpOps};
    /// let mut ops = OdpOps::from(OdpOp::Write);
    /// ops |= OdpOp::Read;
    /// ```
    #[derive(Clone, Copy)]
    pub enum OdpOp {
        /// Buffers of sends.
        Send = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND,
        /// Buffers of receives.
        Recv = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV,
        /// Buffers of shared receive queues.
        SrqRecv = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV,
        /// Both ends of WRITEs.
        Write = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE,
        /// Both ends of READs.
        Read = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ,
        /// Both ends of atomic operations.
        Atomic = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC,
        /// The target of ATOMIC WRITE.
        AtomicWrite = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE,
        /// The target of FLUSH.
        Flush = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH,
    }
);

/// The operations on memory on demand, by service type.
///
/// # Examples
///
/// ```
/// # use rdma::ib::cap::{OdpCaps, OdpOp};
/// let caps = OdpCaps {
///     rc: OdpOp::Send | OdpOp::Recv | OdpOp::Write,
///     uc: OdpOp::Send.into(),
///     ud: OdpOp::Send | OdpOp::Recv,
/// };
/// ```
pub struct OdpCaps {
    /// For RC queue pairs.
    pub rc: OdpOps,
    /// For UC queue pairs.
    pub uc: OdpOps,
    /// For UD queue pairs.
    pub ud: OdpOps,
}

/// The protocol of a port, and the services that the core provides on it (`RDMA_CORE_PORT_*`).
///
/// # Examples
///
/// ```
/// use rdma::ib::cap::PortProtocol;
///
/// const PORT: PortProtocol = PortProtocol::RoceV2;
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PortProtocol {
    /// RoCE v2, with management datagrams and the communication manager. The driver has GIDs and
    /// management queue pairs.
    RoceV2,
    /// Ethernet frames as they are, and none of the services.
    RawPacket,
}

impl PortProtocol {
    /// Returns `RDMA_CORE_PORT_*`.
    pub(super) const fn core_cap_flags(self) -> u32 {
        match self {
            Self::RoceV2 => bindings::RUST_CONST_HELPER_CORE_PORT_ROCE_UDP_ENCAP,
            Self::RawPacket => bindings::RDMA_CORE_PORT_RAW_PACKET,
        }
    }

    /// Returns the length of a management datagram in bytes.
    pub(super) const fn max_mad_size(self) -> u32 {
        match self {
            Self::RoceV2 => bindings::RUST_CONST_HELPER_IB_MGMT_MAD_SIZE,
            Self::RawPacket => 0,
        }
    }
}
