// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use crate::{
    device::Ferroce,
    globals,
    pool::{
        self,
        Charge, //
    }, //
};
use kernel::{
    alloc::Flags,
    prelude::*, //
};
use rdma::ib::{
    gid::Path,
    object::{
        Pd,
        PdId, //
    },
    udata::Udata, //
};
use roce::{
    pace::Rate,
    uapi::resp::CreateAhResp, //
};
use zerocopy::IntoBytes;

/// What a datagram needs to find its way.
#[derive(Clone, Copy)]
pub(crate) struct Av {
    pub(crate) pd: PdId,
    pub(crate) path: Path,
}

/// An address handle: a number in the table of them.
pub(crate) struct Ah {
    number: u32,
    pd: PdId,
    _charge: Option<Charge>,
}

impl Ah {
    pub(crate) fn new(
        pd: &Pd<Ferroce>,
        path: Path,
        flags: Flags,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Self> {
        check(&path)?;
        let table = if udata.is_some() {
            globals::user_ahs()?
        } else {
            globals::kernel_ahs()?
        };
        let charge = Charge::new(&pool::AHS, pd.owner.as_ref())?;
        let pd = pd.id();
        // Built first, so that a failure below takes the number back.
        let ah = Self {
            number: table.insert(Av { pd, path }, flags)?,
            pd,
            _charge: charge,
        };
        if let Some(udata) = udata {
            let resp = CreateAhResp {
                ah_num: ah.number,
                reserved: 0,
            };
            if udata.out_len() < resp.as_bytes().len() {
                return Err(EINVAL);
            }
            udata.respond(resp.as_bytes())?;
        }
        Ok(ah)
    }

    /// Returns the number that work requests name the handle by.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn modify(&self, path: Path) -> Result {
        check(&path)?;
        globals::ahs(self.number)?.replace(self.number, Av { pd: self.pd, path })
    }

    pub(crate) fn query(&self) -> Option<Path> {
        globals::ahs(self.number)
            .ok()?
            .get(self.number)
            .map(|av| av.path)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if let Ok(ahs) = globals::ahs(self.number) {
            ahs.remove(self.number);
        }
    }
}

/// Refuses a path that leads nowhere.
pub(crate) fn check(path: &Path) -> Result {
    if Rate::from_ib(path.static_rate).is_err()
        || path.port_num != 1
        || is_v4(&path.sgid) != is_v4(&path.dgid)
    {
        return Err(EINVAL);
    }
    Ok(())
}

/// Returns `true` if a GID is an IPv4 address.
pub(crate) fn is_v4(gid: &[u8; 16]) -> bool {
    v4(gid).is_some()
}

/// Returns the IPv4 address that a GID is mapped from.
#[inline]
pub(crate) fn v4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    match *gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
        _ => None,
    }
}

/// Returns the GID that an IPv4 address is mapped to.
#[inline]
pub(crate) fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}
