// SPDX-License-Identifier: GPL-2.0

//! The binary interface of the `librxe` provider.
//!
//! `librxe`, the provider library of rdma-core for soft-RoCE devices, posts work by writing rings
//! that it shares with the kernel. This module describes what lies in those rings, in the responses
//! that tell the library where they are, and how their indices move. It never touches shared
//! memory: the shell copies an element out once and hands the private copy to the parsers here, so
//! nothing that was validated can change afterwards.
//!
//! All integers are in host byte order except where a field says otherwise. Sizes and offsets are
//! asserted at compile time; they can never change, because every installed `librxe` has them built
//! in.
//!
//! C header: [`include/uapi/rdma/rdma_user_rxe.h`](srctree/include/uapi/rdma/rdma_user_rxe.h)

pub mod cqe;
pub mod resp;
pub mod ring;
pub mod wqe;

/// Version of this interface: the value of `uverbs_abi_ver` that `librxe` asks for.
pub const ABI_VERSION: u32 = 2;
