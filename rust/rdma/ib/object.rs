// SPDX-License-Identifier: GPL-2.0

//! Objects that the core allocates, and those that a driver keeps in them.
//!
//! ```text
//!   core's kzalloc(size from the ops table)
//!   +------------------+--------------------------------------------+
//!   | struct ib_pd     | InPlace: the driver's part                 |  pd, ucontext, ah, mw
//!   +------------------+--------------------------------------------+
//!   | struct ib_qp     | Owned<Object> ---> the driver's part       |  qp, cq, srq
//!   +------------------+--------------------------------------------+
//! ```
//!
//! The core frees its allocation with a plain `kfree()` right after the destroy callback, so an
//! object that is looked up under RCU does not live there.

use super::{
    udata::Udata,
    Device,
    Driver, //
};
use crate::{
    bindings,
    sync::{
        Owned,
        Ref, //
    }, //
};
use core::{
    alloc::Layout,
    mem::MaybeUninit,
    ops::Deref, //
};
use kernel::{
    ffi,
    prelude::*,
    types::Opaque, //
};

/// Returns the size that makes kmalloc's alignment cover that of `T`.
pub(super) const fn alloc_size<T>() -> usize {
    Layout::new::<T>().pad_to_align().size()
}

/// Converts the result of a callback for the C core.
pub(super) fn errno(result: Result) -> ffi::c_int {
    match result {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

/// A structure of the core for a kind of object, for instance `struct ib_qp`, of driver `D`.
///
/// # Examples
///
/// ```
/// # use rdma::ib::object::{Kind, Object};
/// /// Returns the driver's part of an object of any kind.
/// fn data<R: Kind<D>, D>(object: &Object<R, D>) -> &R::Data {
///     object
/// }
/// ```
pub trait Kind<D>: 'static {
    /// The driver's part.
    type Data: Send + Sync;
}

/// An object with an allocation of its own: the driver's part, and the core's structure.
///
/// # Invariants
///
/// `raw` is valid: the destroy callback waits for every reference to this before it returns to the
/// core.
///
/// # Examples
///
/// ```
/// # use rdma::{ib::{qp::Qp, Driver}, sync::Owned};
/// /// Returns the driver's part of a queue pair.
/// fn data<D: Driver>(qp: &Owned<Qp<D>>) -> &D::Qp {
///     qp
/// }
/// ```
#[pin_data]
pub struct Object<R: Kind<D>, D> {
    raw: *mut R,
    #[pin]
    data: R::Data,
}

// SAFETY: The driver's part is `Send`, and the handlers of the core may be called from any thread.
unsafe impl<R: Kind<D>, D> Send for Object<R, D> {}
// SAFETY: As for `Send`; the driver's part is `Sync`.
unsafe impl<R: Kind<D>, D> Sync for Object<R, D> {}

/// The core's allocation for an [`Object`].
#[repr(C)]
struct Allocation<R: Kind<D>, D> {
    raw: MaybeUninit<R>,
    owned: Owned<Object<R, D>>,
}

impl<R: Kind<D>, D> Object<R, D> {
    /// The size of the core's allocation in bytes.
    pub(super) const SIZE: usize = alloc_size::<Allocation<R, D>>();

    /// Returns the structure of the core, which is valid.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut R {
        self.raw
    }

    /// Constructs the driver's part. May sleep.
    ///
    /// # Safety
    ///
    /// `raw` must be valid until [`Object::destroy`] returns, or the object is dropped.
    pub(super) unsafe fn new(
        raw: *mut R,
        data: impl PinInit<R::Data, Error>,
    ) -> Result<Owned<Self>> {
        // INVARIANT: By the requirement of this function.
        Owned::new(try_pin_init!(Self {
            raw,
            data <- data,
        }? Error))
    }

    /// Stores the object behind the structure of the core.
    ///
    /// # Safety
    ///
    /// `raw` must be the start of an allocation of [`Object::SIZE`] bytes, and the caller's.
    pub(super) unsafe fn store(raw: *mut R, owned: Owned<Self>) {
        // SAFETY: By the requirement of this function.
        unsafe { (&raw mut (*raw.cast::<Allocation<R, D>>()).owned).write(owned) };
    }

    /// Borrows the owner's handle of an object.
    ///
    /// # Safety
    ///
    /// [`Object::store`] must have been called for `raw`, which must be valid for the lifetime.
    #[inline]
    pub(super) unsafe fn owned<'a>(raw: *mut R) -> &'a Owned<Self> {
        // SAFETY: By the requirement of this function, and because `raw` is the first field.
        unsafe { &(*raw.cast::<Allocation<R, D>>()).owned }
    }

    /// Returns a reference to an object, if there is one.
    ///
    /// # Safety
    ///
    /// `raw` must be null or as for [`Object::owned`].
    pub(super) unsafe fn get(raw: *mut R) -> Option<Ref<Self>> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the requirement of this function.
        Some(unsafe { Self::owned(raw) }.get())
    }

    /// Calls `hide`, the driver's part of the destruction, then drops the object, which waits for
    /// every reference. Returns 0 for the C core. May sleep.
    ///
    /// # Safety
    ///
    /// As for [`Object::owned`]; this must be the last use of the object.
    pub(super) unsafe fn destroy(raw: *mut R, hide: impl FnOnce(&Owned<Self>)) -> ffi::c_int {
        // SAFETY: By the requirement of this function.
        unsafe {
            hide(Self::owned(raw));
            core::ptr::drop_in_place(&raw mut (*raw.cast::<Allocation<R, D>>()).owned);
        }
        0
    }
}

impl<R: Kind<D>, D> Deref for Object<R, D> {
    type Target = R::Data;

    #[inline]
    fn deref(&self) -> &R::Data {
        &self.data
    }
}

/// An object in the allocation of the core: the structure of the core, then the driver's part.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{object::Pd, Driver};
/// /// Returns the driver's part of a protection domain.
/// fn data<D: Driver>(pd: &Pd<D>) -> &D::Pd {
///     pd
/// }
/// ```
#[repr(C)]
pub struct InPlace<R: Kind<D>, D> {
    raw: Opaque<R>,
    data: R::Data,
}

impl<R: Kind<D>, D> InPlace<R, D> {
    /// Borrows an object.
    ///
    /// # Safety
    ///
    /// [`InPlace::construct`] must have succeeded for `raw`, which must be valid for the lifetime.
    pub(super) unsafe fn from_raw<'a>(raw: *mut R) -> &'a Self {
        // SAFETY: By the requirement of this function, and because `raw` is the first field.
        unsafe { &*raw.cast() }
    }

    /// Constructs the driver's part.
    ///
    /// # Safety
    ///
    /// `raw` must be the start of an allocation with room for this type, which stays where it is
    /// until [`InPlace::destroy`].
    pub(super) unsafe fn construct(raw: *mut R, data: impl PinInit<R::Data, Error>) -> Result {
        // SAFETY: By the requirement of this function.
        unsafe { pin_init::raw_try_init(&raw mut (*raw.cast::<Self>()).data, data) }
    }

    /// Drops the driver's part.
    ///
    /// # Safety
    ///
    /// As for [`InPlace::from_raw`]; this must be the last use of the object.
    pub(super) unsafe fn destroy(raw: *mut R) {
        // SAFETY: By the requirement of this function.
        unsafe { core::ptr::drop_in_place(&raw mut (*raw.cast::<Self>()).data) };
    }
}

impl<R: Kind<D>, D> Deref for InPlace<R, D> {
    type Target = R::Data;

    fn deref(&self) -> &R::Data {
        &self.data
    }
}

/// Converts the result of posting a list for the C core. `current` is the request that was refused.
///
/// # Safety
///
/// `bad_wr` must be valid for write.
pub(super) unsafe fn posted<T>(
    result: Result,
    current: *const T,
    bad_wr: *mut *const T,
) -> ffi::c_int {
    if result.is_err() {
        // SAFETY: By the requirement of this function.
        unsafe { *bad_wr = current };
    }
    errno(result)
}

/// Identity of a protection domain, for comparison only.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{object::{Pd, PdId}, Driver};
/// struct Region {
///     pd: PdId,
/// }
///
/// impl Region {
///     fn is_in<D: Driver>(&self, pd: &Pd<D>) -> bool {
///         self.pd == pd.id()
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PdId(usize);

impl PdId {
    /// Returns the identity of a `struct ib_pd`.
    pub(super) fn of(pd: *const bindings::ib_pd) -> Self {
        Self(pd.addr())
    }
}

impl<D: Driver> Kind<D> for bindings::ib_ucontext {
    type Data = D::Ucontext;
}

/// A user process' context of the device.
///
/// # Examples
///
/// ```
/// # use kernel::{mm::virt::VmaNew, prelude::*};
/// # use rdma::{ib::{object::Ucontext, Driver}, mm::SharedMemory};
/// /// Maps memory into the process that it was allocated for.
/// fn mmap<D: Driver<Ucontext = SharedMemory>>(ucontext: &Ucontext<D>, vma: &VmaNew) -> Result {
///     ucontext.map(vma)
/// }
/// ```
pub type Ucontext<D> = InPlace<bindings::ib_ucontext, D>;

/// Implements `ib_device_ops.alloc_ucontext`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_ucontext` bytes.
pub(super) unsafe extern "C" fn alloc_ucontext<D: Driver>(
    raw: *mut bindings::ib_ucontext,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The core sets the device before the call.
    let dev = unsafe { Device::<D>::from_raw((*raw).device) };
    // SAFETY: The allocation has room for it, and stays where it is until `dealloc_ucontext`.
    errno(unsafe { Ucontext::<D>::construct(raw, D::alloc_ucontext(dev)) })
}

/// Implements `ib_device_ops.dealloc_ucontext`. May sleep.
///
/// # Safety
///
/// Only for the core, with a context that [`alloc_ucontext`] constructed.
pub(super) unsafe extern "C" fn dealloc_ucontext<D: Driver>(raw: *mut bindings::ib_ucontext) {
    // SAFETY: The context was constructed; this is the last call with it.
    unsafe { Ucontext::<D>::destroy(raw) };
}

/// Implements `ib_device_ops.disassociate_ucontext`.
///
/// There is nothing to do: mappings of rings hold references on their pages, and stay.
///
/// # Safety
///
/// None.
pub(super) unsafe extern "C" fn disassociate_ucontext(_raw: *mut bindings::ib_ucontext) {}

/// Implements `ib_device_ops.mmap`. The core holds the mmap lock for writing.
///
/// # Safety
///
/// Only for the core, with a live context and an area that is being set up.
pub(super) unsafe extern "C" fn mmap<D: Driver>(
    raw: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> ffi::c_int {
    // SAFETY: The context is alive for the call.
    let ucontext = unsafe { Ucontext::<D>::from_raw(raw) };
    // SAFETY: `vma` is valid.
    let offset = unsafe { (*vma).vm_pgoff };
    // SAFETY: The area is being set up by this `mmap` call.
    let vma = unsafe { kernel::mm::virt::VmaNew::from_raw(vma) };
    // CAST: `unsigned long` is 64 bits wide on the architectures that have this driver.
    errno(D::mmap(ucontext, vma, offset as u64))
}

impl<D: Driver> Kind<D> for bindings::ib_pd {
    type Data = D::Pd;
}

/// A protection domain.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{device::DeviceName, object::Pd, Driver};
/// fn device_name<D: Driver>(pd: &Pd<D>) -> DeviceName {
///     pd.device().name()
/// }
/// ```
pub type Pd<D> = InPlace<bindings::ib_pd, D>;

impl<D: Driver> Pd<D> {
    /// Returns the identity.
    pub fn id(&self) -> PdId {
        PdId::of(self.raw.get())
    }

    /// Returns the device.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The core sets the device, which outlives its objects.
        unsafe { Device::from_raw((*self.raw.get()).device) }
    }
}

/// Implements `ib_device_ops.alloc_pd`. May sleep.
///
/// # Safety
///
/// Only for the core, with an allocation of `size_ib_pd` bytes.
pub(super) unsafe extern "C" fn alloc_pd<D: Driver>(
    raw: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The core sets the device before the call.
    let dev = unsafe { Device::<D>::from_raw((*raw).device) };
    // SAFETY: The argument of the core's callback.
    let udata = unsafe { Udata::from_raw(udata) };
    // SAFETY: The allocation has room for it, and stays where it is until `dealloc_pd`.
    errno(unsafe { Pd::<D>::construct(raw, D::alloc_pd(dev, udata.as_ref())) })
}

/// Implements `ib_device_ops.dealloc_pd`. May sleep.
///
/// # Safety
///
/// Only for the core, with a protection domain that [`alloc_pd`] constructed.
pub(super) unsafe extern "C" fn dealloc_pd<D: Driver>(
    raw: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> ffi::c_int {
    // SAFETY: The domain was constructed; this is the last call with it.
    unsafe { Pd::<D>::destroy(raw) };
    0
}
