// SPDX-License-Identifier: GPL-2.0

//! Raw bindings: those of `kernel::bindings`, and those that `rust/bindings` of this project adds.
//!
//! They depend on the kernel configuration. Do not use them outside of this crate.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::{
    MaybeZeroable,
    Zeroable, //
};

pub use kernel::bindings::*;

// SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

// SAFETY: A newtype around an integer.
unsafe impl Zeroable for ib_mr_type {}

// SAFETY: `__BindgenUnionField<T>` has no bytes.
unsafe impl<T> Zeroable for __BindgenUnionField<T> {}

include!(concat!(
    env!("MODULE_OBJTREE"),
    "/rust/bindings/bindings_generated.rs"
));

mod helpers {
    use super::*;

    include!(concat!(
        env!("MODULE_OBJTREE"),
        "/rust/bindings/bindings_helpers_generated.rs"
    ));
}
pub use helpers::*;

// With CONFIG_TRACEPOINTS it is a function, which kernel::bindings has; without, it is inline. The
// explicit import takes the helper in both cases.
pub use helpers::consume_skb;
