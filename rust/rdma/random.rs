// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

use crate::bindings;

/// Returns a random byte. Callable in any context.
///
/// # Examples
///
/// ```
/// let tag = rdma::random::byte() & 0x7f;
/// ```
pub fn byte() -> u8 {
    let [byte] = bytes();
    byte
}

/// Returns a random number. Callable in any context.
pub(crate) fn word() -> u64 {
    u64::from_ne_bytes(bytes())
}

/// Returns a random MAC address, unicast and locally administered.
///
/// # Examples
///
/// ```
/// # use rdma::net::NetDevice;
/// fn mac_of(netdev: &NetDevice) -> [u8; 6] {
///     netdev.mac().unwrap_or_else(rdma::random::mac)
/// }
/// ```
pub fn mac() -> [u8; 6] {
    let [a, b, c, d, e, f] = bytes();
    [(a & 0xfe) | 2, b, c, d, e, f]
}

fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    // SAFETY: `out` is valid for write for its length.
    unsafe { bindings::get_random_bytes(out.as_mut_ptr().cast(), N) };
    out
}
