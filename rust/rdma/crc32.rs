// SPDX-License-Identifier: GPL-2.0

//! CRC-32 by the kernel's library, which uses the CPU's carry-less multiply where it has one.
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h)

use crate::bindings;
use roce::icrc::Crc32;

/// `crc32_le()` as the CRC of the protocol core.
pub struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        // SAFETY: The pointer and the length are those of a slice.
        unsafe { bindings::crc32_le(crc, bytes.as_ptr().cast(), bytes.len()) }
    }
}
