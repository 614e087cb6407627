// SPDX-License-Identifier: GPL-2.0

//! CRC-32 by the kernel's library, which uses the CPU's carry-less multiply where it has one.
//!
//! C header: [`include/linux/crc32.h`](srctree/include/linux/crc32.h)

use crate::bindings;

/// Returns the little-endian CRC-32 of `bytes`, from the CRC of the bytes before them. Neither the
/// first nor the last value is inverted. Callable in any context.
///
/// # Examples
///
/// ```
/// use rdma::crc32::crc32_le;
///
/// let header = [0x45, 0, 0, 28];
/// let payload = [1, 2, 3, 4];
///
/// // The CRC of both, as at the end of an Ethernet frame.
/// let crc = !crc32_le(crc32_le(!0, &header), &payload);
/// ```
#[inline]
pub fn crc32_le(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: The pointer and the length are those of a slice.
    unsafe { bindings::crc32_le(crc, bytes.as_ptr().cast(), bytes.len()) }
}
