// SPDX-License-Identifier: GPL-2.0

//! The region that the last packet used.

use super::{
    find,
    find_remote,
    Target, //
};
use rdma::ib::{
    object::PdId,
    Access, //
};
use roce::wr::MemError;

/// The region that the last packet of a run used, which the next one usually needs again.
///
/// Destroying the region waits for this, so it lives for one run of a half only. Windows, and
/// regions that requests register, are looked up each time, because their keys can become invalid,
/// and valid again, during a run.
pub(crate) struct RegionCache {
    key: u32,
    target: Option<Target>,
}

impl RegionCache {
    pub(crate) fn new() -> Self {
        Self {
            key: 0,
            target: None,
        }
    }

    /// Finds the region that a key names, as [`find`].
    ///
    /// # Errors
    ///
    /// See [`find`].
    #[inline]
    pub(crate) fn find(&mut self, key: u32, pd: PdId, access: Access) -> Result<&Target, MemError> {
        self.get(key, pd, access, || find(key, pd, access))
    }

    /// Finds the memory that an R_Key of the peer names, as [`find_remote`].
    ///
    /// # Errors
    ///
    /// See [`find`].
    #[inline]
    pub(crate) fn find_remote(
        &mut self,
        rkey: u32,
        pd: PdId,
        qpn: u32,
        access: Access,
    ) -> Result<&Target, MemError> {
        self.get(rkey, pd, access, || find_remote(rkey, pd, qpn, access))
    }

    /// Returns the last target if the key names it, or else looks the key up.
    #[inline]
    fn get(
        &mut self,
        key: u32,
        pd: PdId,
        access: Access,
        look_up: impl FnOnce() -> Result<Target, MemError>,
    ) -> Result<&Target, MemError> {
        let holds = self.key == key
            && self.target.as_ref().is_some_and(|target| {
                target.is_region() && target.mr().pd == pd && target.allows(access)
            });
        if !holds {
            self.target = Some(look_up()?);
            self.key = key;
        }
        self.target.as_ref().ok_or(MemError::Protection)
    }
}
