// SPDX-License-Identifier: GPL-2.0

//! Immediate data.

use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// Immediate data as on the wire: four bytes that are not interpreted.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ImmDt(pub(crate) [u8; 4]);
