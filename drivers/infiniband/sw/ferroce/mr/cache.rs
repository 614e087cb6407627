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

/// The region that the last packet of a run used: mostly the next one needs it again.
///
/// Destroying the region waits for it, so it lives for one run of a half. Windows, and regions that
/// requests register, are looked up each time, because their keys can become invalid and valid
/// again meanwhile.
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

    /// As [`find`].
    ///
    /// # Errors
    ///
    /// As [`find`].
    #[inline]
    pub(crate) fn find(&mut self, key: u32, pd: PdId, access: Access) -> Result<&Target, MemError> {
        self.get(key, pd, access, || find(key, pd, access))
    }

    /// As [`find_remote`].
    ///
    /// # Errors
    ///
    /// As [`find`].
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

    /// Returns the last target if it is the one that the key names, or looks it up.
    #[inline]
    fn get(
        &mut self,
        key: u32,
        pd: PdId,
        access: Access,
        look_up: impl FnOnce() -> Result<Target, MemError>,
    ) -> Result<&Target, MemError> {
        if !self.holds(key, pd, access) {
            self.target = Some(look_up()?);
            self.key = key;
        }
        self.target.as_ref().ok_or(MemError::Protection)
    }

    /// Returns whether the last region is the one that a key names, with at least these rights.
    #[inline]
    fn holds(&self, key: u32, pd: PdId, access: Access) -> bool {
        self.key == key
            && self.target.as_ref().is_some_and(|target| {
                target.is_region() && target.mr().pd == pd && target.allows(access)
            })
    }
}
