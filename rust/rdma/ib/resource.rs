// SPDX-License-Identifier: GPL-2.0

//! The driver's details of an object, for `rdma -dd resource show`.
//!
//! The core holds a reference of its resource tracking during the callbacks here, and waits for it
//! before it destroys an object. So the object is intact. Only `rereg_user_mr` does not wait: see
//! `fill_res_mr`.
//!
//! C header: [`include/rdma/restrack.h`](srctree/include/rdma/restrack.h)

use super::{
    cq::Cq,
    object::errno,
    qp::Qp,
    srq::Srq,
    Driver, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    ffi,
    fmt,
    prelude::*,
    str::CString, //
};

/// A message of the core that a driver adds named values to.
///
/// After the first value that does not fit, others are ignored, and the core tries again with a
/// larger message.
///
/// # Invariants
///
/// `msg` is a netlink message under construction, which no one else uses for `'a`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::resource::ResourceEntry;
///
/// fn describe(out: &mut ResourceEntry<'_>, waiting: u32, state: &str) {
///     out.number(c"waiting", waiting)
///         .string(c"kind", c"ring")
///         .text(c"state", fmt!("{}", state));
/// }
/// ```
pub struct ResourceEntry<'a> {
    msg: NonNull<bindings::sk_buff>,
    result: Result,
    _p: PhantomData<&'a mut bindings::sk_buff>,
}

impl ResourceEntry<'_> {
    /// Adds a number.
    pub fn number(&mut self, name: &'static CStr, value: u32) -> &mut Self {
        // SAFETY: The message is valid by the type invariant, and the name is a C string.
        self.put(|msg| unsafe { bindings::rdma_nl_put_driver_u32(msg, name.as_char_ptr(), value) })
    }

    /// Adds a large number.
    pub fn large(&mut self, name: &'static CStr, value: u64) -> &mut Self {
        // SAFETY: As in `number`.
        self.put(|msg| unsafe { bindings::rdma_nl_put_driver_u64(msg, name.as_char_ptr(), value) })
    }

    /// Adds a number that is shown in hexadecimal digits.
    pub fn hex(&mut self, name: &'static CStr, value: u32) -> &mut Self {
        // SAFETY: As in `number`.
        self.put(|msg| unsafe {
            bindings::rdma_nl_put_driver_u32_hex(msg, name.as_char_ptr(), value)
        })
    }

    /// Adds a string. Does not sleep.
    pub fn string(&mut self, name: &'static CStr, value: &CStr) -> &mut Self {
        // SAFETY: As in `number`; the value is a C string too.
        self.put(|msg| unsafe {
            bindings::rdma_nl_put_driver_string(msg, name.as_char_ptr(), value.as_char_ptr())
        })
    }

    /// Adds a text. May sleep.
    pub fn text(&mut self, name: &'static CStr, value: fmt::Arguments<'_>) -> &mut Self {
        match CString::try_from_fmt(value) {
            Ok(text) => self.string(name, &text),
            Err(error) => {
                self.result = self.result.and(Err(error));
                self
            }
        }
    }

    fn put(&mut self, f: impl FnOnce(*mut bindings::sk_buff) -> ffi::c_int) -> &mut Self {
        if self.result.is_ok() {
            self.result = to_result(f(self.msg.as_ptr()));
        }
        self
    }
}

/// Lets a driver add its details, and converts the result for the core.
///
/// # Safety
///
/// `msg` must be a netlink message under construction, which no one else uses meanwhile.
unsafe fn fill(
    msg: *mut bindings::sk_buff,
    describe: impl FnOnce(&mut ResourceEntry<'_>),
) -> ffi::c_int {
    let fill = || {
        let msg = NonNull::new(msg).ok_or(EINVAL)?;
        // SAFETY: By the requirement of this function.
        let table = unsafe {
            bindings::nla_nest_start(
                msg.as_ptr(),
                // CAST: A small constant.
                bindings::rdma_nldev_attr_RDMA_NLDEV_ATTR_DRIVER as ffi::c_int,
            )
        };
        if table.is_null() {
            return Err(EMSGSIZE);
        }
        // INVARIANT: By the requirement of this function.
        let mut entry = ResourceEntry {
            msg,
            result: Ok(()),
            _p: PhantomData,
        };
        describe(&mut entry);
        // After an error the core takes the whole entry out of the message.
        entry.result?;
        // SAFETY: The attribute was begun in this message.
        unsafe { bindings::nla_nest_end(msg.as_ptr(), table) };
        Ok(())
    };
    errno(fill())
}

/// Implements `ib_device_ops.fill_res_qp_entry`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue pair.
pub(super) unsafe extern "C" fn fill_res_qp<D: Driver>(
    msg: *mut bindings::sk_buff,
    raw: *mut bindings::ib_qp,
) -> ffi::c_int {
    // SAFETY: The arguments of the core's callback; destroying waits for it.
    unsafe { fill(msg, |out| D::fill_res_qp_entry(Qp::<D>::owned(raw), out)) }
}

/// Implements `ib_device_ops.fill_res_cq_entry`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed completion queue.
pub(super) unsafe extern "C" fn fill_res_cq<D: Driver>(
    msg: *mut bindings::sk_buff,
    raw: *mut bindings::ib_cq,
) -> ffi::c_int {
    // SAFETY: The arguments of the core's callback; destroying waits for it.
    unsafe { fill(msg, |out| D::fill_res_cq_entry(Cq::<D>::owned(raw), out)) }
}

/// Implements `ib_device_ops.fill_res_srq_entry`. May sleep.
///
/// # Safety
///
/// Only for the core, with a constructed queue.
pub(super) unsafe extern "C" fn fill_res_srq<D: Driver>(
    msg: *mut bindings::sk_buff,
    raw: *mut bindings::ib_srq,
) -> ffi::c_int {
    // SAFETY: The arguments of the core's callback; destroying waits for it.
    unsafe { fill(msg, |out| D::fill_res_srq_entry(Srq::<D>::owned(raw), out)) }
}

/// Implements `ib_device_ops.fill_res_mr_entry`. May sleep.
///
/// `rereg_user_mr` has exclusive access to the driver's part of a region, and may run now. So the
/// driver gets the key, and looks the region up.
///
/// # Safety
///
/// Only for the core, with a region that was constructed.
pub(super) unsafe extern "C" fn fill_res_mr<D: Driver>(
    msg: *mut bindings::sk_buff,
    raw: *mut bindings::ib_mr,
) -> ffi::c_int {
    // SAFETY: The arguments of the core's callback. Only a consumer that registers memory by
    // requests changes the key, and any value that is read is only used as a number.
    unsafe {
        fill(msg, |out| {
            D::fill_res_mr_entry((&raw const (*raw).lkey).read_volatile(), out)
        })
    }
}
