// SPDX-License-Identifier: GPL-2.0

//! The CRC-32 of the ICRC, computed by the kernel's library.

use rdma::crc32::crc32_le;
use roce::icrc::Crc32;

/// `crc32_le()` as the CRC of the protocol core.
pub(crate) struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        crc32_le(crc, bytes)
    }
}
