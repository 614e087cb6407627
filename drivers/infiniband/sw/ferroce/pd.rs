// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
    device::Ferroce,
    owner::Owner,
    pool::{
        self,
        Charge, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::ib::udata::Udata;

/// A protection domain, with the process that its objects are charged to.
pub(crate) struct Domain {
    /// `None` for a kernel consumer.
    pub(crate) owner: Option<Arc<Owner>>,
    _charge: Option<Charge>,
}

impl Domain {
    /// Creates a protection domain, charged to a process.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the process has used up its share.
    pub(crate) fn new(udata: Option<&Udata<'_, Ferroce>>) -> Result<Self> {
        let owner = match udata {
            Some(udata) => Some(udata.ucontext().ok_or(EINVAL)?.owner.clone()),
            None => None,
        };
        Ok(Self {
            _charge: Charge::new(&pool::PDS, owner.as_ref())?,
            owner,
        })
    }
}
