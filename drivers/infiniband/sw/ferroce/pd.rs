// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use crate::{
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

/// A protection domain: the process that its objects count for.
pub(crate) struct Domain {
    /// None for that of a kernel consumer.
    pub(crate) owner: Option<Arc<Owner>>,
    _charge: Option<Charge>,
}

impl Domain {
    /// # Errors
    ///
    /// `ENOMEM` if the process has too many.
    pub(crate) fn new(owner: Option<Arc<Owner>>) -> Result<Self> {
        Ok(Self {
            _charge: Charge::new(&pool::PDS, owner.as_ref())?,
            owner,
        })
    }
}
