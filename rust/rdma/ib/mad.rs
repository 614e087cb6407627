// SPDX-License-Identifier: GPL-2.0

//! Management datagrams (MADs) that the driver answers itself.
//!
//! C header: [`include/rdma/ib_mad.h`](srctree/include/rdma/ib_mad.h)

use super::{
    ops::PORT,
    Device,
    Driver, //
};
use crate::bindings;
use kernel::{
    ffi,
    prelude::*, //
};

/// A management datagram.
///
/// # Examples
///
/// ```
/// use rdma::ib::mad::Mad;
///
/// /// Returns the management class of a datagram.
/// fn class_of(mad: &Mad) -> u8 {
///     mad[1]
/// }
/// ```
pub type Mad = [u8; size_of::<bindings::ib_mad>()];

/// Implements `ib_device_ops.process_mad`. May sleep.
///
/// The core calls it for each datagram that the management queue pair receives, and for the files
/// of `counters`.
///
/// # Safety
///
/// Only for the core, with a live device and two datagrams that do not overlap, the second of them
/// valid for write. Only ports of OPA have datagrams of another size.
pub(super) unsafe extern "C" fn process_mad<D: Driver>(
    raw: *mut bindings::ib_device,
    _flags: ffi::c_int,
    port: u32,
    _wc: *const bindings::ib_wc,
    _grh: *const bindings::ib_grh,
    request: *const bindings::ib_mad,
    response: *mut bindings::ib_mad,
    _response_size: *mut usize,
    _pkey_index: *mut u16,
) -> ffi::c_int {
    if port != PORT {
        // CAST: The value is 0.
        return bindings::ib_mad_result_IB_MAD_RESULT_FAILURE as ffi::c_int;
    }
    // SAFETY: The device is alive. Both datagrams are valid for the call, and no one else uses
    // them; a datagram is bytes in any order, without padding.
    let answered = unsafe {
        response.write_bytes(0, 1);
        D::process_mad(
            Device::from_raw(raw),
            &*request.cast::<Mad>(),
            &mut *response.cast::<Mad>(),
        )
    };
    let mut result = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
    if answered {
        result |= bindings::ib_mad_result_IB_MAD_RESULT_REPLY;
    }
    // CAST: A mask of small flags.
    result as ffi::c_int
}
