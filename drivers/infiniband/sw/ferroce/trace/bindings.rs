// SPDX-License-Identifier: GPL-2.0

//! The output of bindgen for `trace.h`: the static keys and the C functions of the tracepoints.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub
)]

// Without CONFIG_TRACEPOINTS there are no tracepoints.
#[cfg(CONFIG_TRACEPOINTS)]
use kernel::ffi;

#[cfg(CONFIG_TRACEPOINTS)]
pub(crate) use kernel::bindings::*;

include!(concat!(
    env!("MODULE_OBJTREE"),
    "/drivers/infiniband/sw/ferroce/trace/bindings_generated.rs"
));
