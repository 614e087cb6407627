// SPDX-License-Identifier: GPL-2.0

//! Abstractions over the kernel's RDMA and network APIs.
//!
//! - [`ib`]: the RDMA core, written as if it were `rust/kernel/rdma`.
//! - [`net`]: the network stack, written as if it were `rust/kernel/net`.
//! - The other modules extend crate `kernel`, each as if it were the module of its name there:
//!   [`sync`] (locks and tables that softirqs use), [`time`], [`fine_timer`] and [`workqueue`],
//!   [`mm`] and [`list`] (memory), [`cred`] and [`modules`], [`crc32`], [`siphash`] and [`random`].
//!
//! A driver of an RDMA device needs no `unsafe` of its own. But some types state obligations that
//! the compiler does not enforce: see `TODO[UNSF]`. Nothing in here knows the protocol of a device
//! or decides anything for the driver.
//!
//! This crate does not print: it returns errors, and the driver logs where it knows the context.

// Kbuild sets these on the command line (`-Zcrate-attr`), where `rustdoc --test` ignores them.
#![cfg_attr(doctest, no_std, feature(cfi_encoding))]
// Without `std`, an example cannot have a `main` function. An injected `extern crate` shifts the
// line numbers of errors.
#![doc(test(no_crate_inject, attr(no_main, allow(unused))))]

pub mod crc32;
pub mod cred;
pub mod fine_timer;
pub mod ib;
pub mod list;
pub mod mm;
pub mod modules;
pub mod net;
pub mod random;
pub mod siphash;
pub mod sync;
pub mod time;
pub mod workqueue;

#[doc(hidden)]
pub mod bindings;

/// Copies a name that the kernel may be changing. The result may begin with one name and end with
/// another, but is a C string in any case: zeros follow, and the last byte is one of them.
///
/// # Safety
///
/// `from` must be valid for reads up to a terminator, or for `N` bytes.
unsafe fn copy_name<const N: usize>(from: *const u8) -> [u8; N] {
    let mut name = [0; N];
    for (i, to) in name.iter_mut().take(N.saturating_sub(1)).enumerate() {
        // SAFETY: By the requirement of this function. The kernel may be writing to it, so each
        // byte is read once, by a volatile access like `READ_ONCE()`.
        *to = unsafe { from.add(i).read_volatile() };
        if *to == 0 {
            break;
        }
    }
    name
}

/// Borrows a C string.
///
/// As `CStr::from_char_ptr`, whose arithmetic would be compiled into each generic callback.
///
/// # Safety
///
/// `ptr` must point to a C string that is valid, and does not change, for the lifetime.
unsafe fn c_str<'a>(ptr: *const kernel::ffi::c_char) -> &'a kernel::str::CStr {
    // SAFETY: By the requirement of this function the bytes up to the terminator are valid.
    unsafe {
        let len = bindings::strlen(ptr).wrapping_add(1);
        let bytes = core::slice::from_raw_parts(ptr.cast(), len);
        kernel::str::CStr::from_bytes_with_nul_unchecked(bytes)
    }
}
