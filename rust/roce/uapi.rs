// SPDX-License-Identifier: GPL-2.0

//! The binary interface of the `librxe` provider.
//!
//! `librxe`, the provider library of rdma-core for soft-RoCE devices, posts work by writing rings
//! that it shares with the kernel. This module describes the entries of those rings, their indices,
//! and the responses by which the library finds them. It never accesses shared memory: the driver
//! copies an element once and passes the private copy to the parsers here, so it cannot change
//! after it was validated.
//!
//! All integers are in host byte order unless noted. Sizes and offsets are asserted at compile
//! time; they can never change, because every installed `librxe` has them built in.
//!
//! C header: [`include/uapi/rdma/rdma_user_rxe.h`](srctree/include/uapi/rdma/rdma_user_rxe.h)

pub mod cqe;
pub mod resp;
pub mod ring;
pub mod wqe;

/// The version of this interface: the `uverbs_abi_ver` that `librxe` expects.
pub const ABI_VERSION: u32 = 2;
