// SPDX-License-Identifier: GPL-2.0

//! Memory that the kernel shares with user processes.

pub(crate) mod copy;
pub mod shared;

pub use shared::SharedMemory;
