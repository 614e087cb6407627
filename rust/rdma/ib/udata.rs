// SPDX-License-Identifier: GPL-2.0

//! The data that a provider library sends with a verb and gets back.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use super::{
    object::Ucontext,
    Driver, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The driver's part of a user process' verb.
///
/// # Invariants
///
/// `raw` is the `driver_udata` of a `struct uverbs_attr_bundle`, of a verb of a device of `D` that
/// runs for `'a` and is not `alloc_ucontext`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{udata::Udata, Driver};
/// /// Reads the request of a process, and responds with the number of an object.
/// fn create<D: Driver>(udata: Option<&mut Udata<'_, D>>, number: u32) -> Result {
///     if let Some(udata) = udata {
///         let mut request = [0; 8];
///         udata.read(&mut request)?;
///         udata.respond(&number.to_ne_bytes())?;
///     }
///     Ok(())
/// }
/// ```
pub struct Udata<'a, D: Driver> {
    raw: NonNull<bindings::ib_udata>,
    _p: PhantomData<(&'a mut bindings::ib_udata, D)>,
}

impl<'a, D: Driver> Udata<'a, D> {
    /// Wraps the argument of a callback; `None` for a kernel consumer.
    ///
    /// # Safety
    ///
    /// `raw` must be null or the `driver_udata` of a bundle, of a verb of a device of `D` that runs
    /// for the lifetime and is not `alloc_ucontext`.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Option<Self> {
        // INVARIANT: By the requirement of this function.
        NonNull::new(raw).map(|raw| Self {
            raw,
            _p: PhantomData,
        })
    }

    /// Returns how many bytes the provider has room for.
    pub fn out_len(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { self.raw.as_ref() }.outlen
    }

    /// Returns how many bytes the provider sent.
    pub fn in_len(&self) -> usize {
        // SAFETY: Valid by the type invariant.
        unsafe { self.raw.as_ref() }.inlen
    }

    /// Copies the data of the provider. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it sent less, `EOPNOTSUPP` if it sent more that is not zero, `EFAULT`.
    pub fn read(&mut self, out: &mut [u8]) -> Result {
        // SAFETY: Valid by the type invariant; the destination is a slice of that length.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.raw.as_ptr(),
                out.as_mut_ptr().cast(),
                out.len(),
                out.len(),
            )
        })
    }

    /// Sends a response. May sleep.
    ///
    /// If the provider has less room, the response is truncated; if more, the rest is zeroed.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub fn respond(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: Valid by the type invariant; the source is a slice.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.raw.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Returns the context of the process, if it has one.
    pub fn ucontext(&self) -> Option<&'a Ucontext<D>> {
        // SAFETY: Valid by the type invariant.
        let raw = unsafe { bindings::rdma_udata_to_ucontext(self.raw.as_ptr()) };
        // SAFETY: By the type invariant, `alloc_ucontext` has constructed the context before this
        // verb, for the same device. It is alive during the verb.
        (!raw.is_null()).then(|| unsafe { Ucontext::from_raw(raw) })
    }
}
