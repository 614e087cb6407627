// SPDX-License-Identifier: GPL-2.0

//! The kernel's other modules.
//!
//! A driver that conflicts with another module needs both: the notifier, which sees only modules
//! that are loaded later, and the search, which finds only modules that are loaded already.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use crate::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    ffi,
    prelude::*,
    types::Opaque, //
};

/// Decides which modules may be loaded.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::modules::ModuleHandler;
///
/// struct Guard;
///
/// impl ModuleHandler for Guard {
///     fn coming(name: &CStr) -> Result {
///         if name == c"rdma_rxe" {
///             return Err(EBUSY);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait ModuleHandler: 'static {
    /// Called when a module is about to be initialised; may sleep.
    ///
    /// # Errors
    ///
    /// An error refuses the module; `insmod` reports it.
    fn coming(name: &CStr) -> Result;
}

/// Calls `T` for each module that is loaded, until it is dropped. Dropping may sleep.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::modules::{ModuleHandler, ModuleNotifier};
/// fn register<T: ModuleHandler>() -> Result<Pin<KBox<ModuleNotifier<T>>>> {
///     KBox::pin_init(ModuleNotifier::register(), GFP_KERNEL)
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct ModuleNotifier<T: ModuleHandler> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    _p: PhantomData<fn() -> T>,
}

// SAFETY: `block` is only touched by the notifier chain, under the lock of the latter.
unsafe impl<T: ModuleHandler> Send for ModuleNotifier<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: ModuleHandler> Sync for ModuleNotifier<T> {}

impl<T: ModuleHandler> ModuleNotifier<T> {
    /// Starts to call `T` for each module that is loaded. May sleep.
    ///
    /// # Errors
    ///
    /// The error of `register_module_notifier()`.
    pub fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block <- Opaque::try_ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: `block` is valid for write.
                unsafe {
                    block.write(bindings::notifier_block {
                        notifier_call: Some(Self::notifier_callback),
                        ..pin_init::zeroed()
                    })
                };
                // SAFETY: `block` is initialised, pinned, and unregistered before it is freed.
                to_result(unsafe { bindings::register_module_notifier(block) })
            }),
            _p: PhantomData,
        })
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// `module` must point to a `struct module` that outlives the call.
    unsafe extern "C" fn notifier_callback(
        _block: *mut bindings::notifier_block,
        event: ffi::c_ulong,
        module: *mut ffi::c_void,
    ) -> ffi::c_int {
        // CAST: The values of the enum are small.
        if event != bindings::module_state_MODULE_STATE_COMING as ffi::c_ulong {
            return notifier_from_result(Ok(()));
        }
        let module: *mut bindings::module = module.cast();
        // SAFETY: The module is alive by the requirement of this function, and its name is a C
        // string within it that does not change.
        let name = unsafe { crate::c_str((&raw const (*module).name).cast()) };

        notifier_from_result(T::coming(name))
    }
}

#[pinned_drop]
impl<T: ModuleHandler> PinnedDrop for ModuleNotifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `block` was registered by `register`. Unregistering fails only for a block that
        // was not.
        unsafe { bindings::unregister_module_notifier(self.block.get()) };
    }
}

/// Encodes a result for a notifier chain, as `notifier_from_errno()` does.
fn notifier_from_result(result: Result) -> ffi::c_int {
    // CAST: The constants are 1 and 0x8000.
    let ok = bindings::NOTIFY_OK as ffi::c_int;

    match result {
        Ok(()) => ok,
        Err(e) => bindings::NOTIFY_STOP_MASK as ffi::c_int | ok.wrapping_sub(e.to_errno()),
    }
}

/// Returns whether a module of this name is loaded, or built in with parameters. May sleep.
///
/// A module that is being loaded appears here shortly after the call of the notifier.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::modules::is_loaded;
///
/// fn check() -> Result {
///     if is_loaded(c"rdma_rxe") {
///         return Err(EBUSY);
///     }
///     Ok(())
/// }
/// ```
pub fn is_loaded(name: &CStr) -> bool {
    // SAFETY: This module is in the set of all modules from before its initialisation until after
    // its exit, and the set is never freed. `name` is a C string.
    let found =
        unsafe { bindings::kset_find_obj(bindings::this_module_kset(), name.as_char_ptr()) };

    if found.is_null() {
        return false;
    }
    // SAFETY: `kset_find_obj()` took a reference.
    unsafe { bindings::kobject_put(found) };
    true
}
