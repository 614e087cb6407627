// SPDX-License-Identifier: GPL-2.0

//! Keeps C rxe from being loaded beside this driver.
//!
//! Both would claim the driver id that the user-space provider looks for, and C rxe takes every
//! device with that id for its own: it would read our device as if it were one of its.

use kernel::prelude::*;
use rdma::modules::{
    is_loaded,
    ModuleHandler, //
};

/// The module of C rxe.
const RIVAL: &CStr = c"rdma_rxe";

/// Keeps the other module from being loaded.
pub(crate) struct Guard;

impl ModuleHandler for Guard {
    fn coming(name: &[u8]) -> Result {
        if name != b"rdma_rxe" {
            return Ok(());
        }
        pr_err!("rdma_rxe cannot be loaded beside ferroce: run `rmmod ferroce` first\n");
        Err(EBUSY)
    }
}

/// Fails if the other module is there already.
///
/// # Errors
///
/// `EBUSY`.
pub(crate) fn check() -> Result {
    if is_loaded(RIVAL) {
        pr_err!("cannot work beside rdma_rxe: run `rmmod rdma_rxe` first\n");
        return Err(EBUSY);
    }
    Ok(())
}
