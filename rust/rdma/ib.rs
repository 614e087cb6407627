// SPDX-License-Identifier: GPL-2.0

//! Abstractions for drivers of RDMA devices.
//!
//! A driver implements [`Driver`]. The core allocates most objects at sizes that the driver states
//! and calls back to construct and destroy them; see [`object`] for their layout.
//!
//! A device has one port, which has number 1 and is on a net device of Ethernet.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub mod access;
pub mod ah;
pub mod cap;
pub mod counter;
pub mod cq;
pub mod device;
pub mod driver;
pub mod enums;
pub mod gid;
pub mod link;
pub mod mad;
pub mod mr;
pub mod mw;
pub mod object;
pub mod qp;
pub mod resource;
pub mod srq;
pub mod udata;
pub mod umem;
pub mod wr;

mod capability;
mod ops;
mod qp_attr;
mod registered;
mod sysfs;

pub use access::Access;
pub use device::{
    Device,
    DeviceName, //
};
pub use driver::Driver;
pub use registered::DeviceRef;
