// SPDX-License-Identifier: GPL-2.0

//! Keeps C rxe from being loaded beside this driver.
//!
//! Both use the driver ID that the user-space provider looks for. C rxe assumes that every device
//! with this ID is its own, and would misinterpret the structure of our devices.

use kernel::prelude::*;
use rdma::modules::{
    is_loaded,
    ModuleHandler, //
};

/// The name of the module of C rxe.
const RXE_MODULE: &CStr = c"rdma_rxe";

/// The handler that refuses to load C rxe.
pub(crate) struct Guard;

impl ModuleHandler for Guard {
    fn coming(name: &CStr) -> Result {
        if name != RXE_MODULE {
            return Ok(());
        }
        pr_err!("rdma_rxe cannot be loaded beside ferroce: run `rmmod ferroce` first\n");
        Err(EBUSY)
    }
}

/// Checks that C rxe is not loaded.
///
/// # Errors
///
/// `EBUSY` if it is.
pub(crate) fn check() -> Result {
    if is_loaded(RXE_MODULE) {
        pr_err!("cannot be loaded beside rdma_rxe: run `rmmod rdma_rxe` first\n");
        return Err(EBUSY);
    }
    Ok(())
}
