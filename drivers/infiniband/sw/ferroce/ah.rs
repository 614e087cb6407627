// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use crate::{
    device::Ferroce,
    gids::Link,
    pool::{
        self,
        Charge,
        MAX_AH, //
    }, //
};
use kernel::{
    alloc::Flags,
    prelude::*, //
};
use rdma::{
    ib::{
        gid::{
            GidAttr,
            Path, //
        },
        object::{
            Pd,
            PdId, //
        },
        udata::Udata, //
    },
    sync::{
        CopyTable,
        Global, //
    }, //
};
use roce::{
    pace::Rate,
    uapi::resp::CreateAhResp, //
};
use zerocopy::IntoBytes;

/// The address vector of a datagram.
#[derive(Clone, Copy)]
pub(crate) struct Av {
    pub(crate) pd: PdId,
    pub(crate) path: Path,
    /// The net device that has the source address, unless it was gone already.
    pub(crate) link: Option<Link>,
}

impl Av {
    fn new(pd: PdId, path: Path, gid: &GidAttr) -> Self {
        Self {
            pd,
            path,
            link: Link::of_gid(gid).ok(),
        }
    }
}

/// An address handle: the number of an address vector in the table.
pub(crate) struct Ah {
    number: u32,
    pd: PdId,
    _charge: Option<Charge>,
}

/// The number of address handles that processes leave for kernel consumers, such as the connection
/// manager.
const KERNEL_AH: u32 = 1 << 20;

static TABLE: Global<CopyTable<Av>> = Global::new();

/// Constructs the table. Called once, before any device exists.
pub(crate) fn init() -> Result {
    TABLE.init(CopyTable::new(1..=MAX_AH + KERNEL_AH))
}

/// Returns the address vector of the address handle `number`.
pub(crate) fn find(number: u32) -> Option<Av> {
    TABLE.get()?.get(number)
}

impl Ah {
    pub(crate) fn new(
        pd: &Pd<Ferroce>,
        path: Path,
        gid: &GidAttr,
        flags: Flags,
        udata: Option<&mut Udata<'_, Ferroce>>,
    ) -> Result<Self> {
        check(&path)?;
        let charge = Charge::new(&pool::AHS, pd.owner.as_ref())?;
        let pd = pd.id();
        let av = Av::new(pd, path, gid);
        // Construct the handle first: if a later step fails, its drop frees the number.
        let ah = Self {
            number: TABLE.get().ok_or(ENODEV)?.insert(av, flags)?,
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

    /// Returns the number that refers to the handle in work requests.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn modify(&self, path: Path, gid: &GidAttr) -> Result {
        check(&path)?;
        let table = TABLE.get().ok_or(ENODEV)?;
        table.replace(self.number, Av::new(self.pd, path, gid))
    }

    pub(crate) fn query(&self) -> Option<Path> {
        find(self.number).map(|av| av.path)
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if let Some(table) = TABLE.get() {
            table.remove(self.number);
        }
    }
}

/// Checks the attributes of a path.
///
/// # Errors
///
/// `EINVAL` for an unknown static rate, a port other than 1, or GIDs of different IP versions.
pub(crate) fn check(path: &Path) -> Result {
    if Rate::from_ib(path.static_rate).is_err()
        || path.port_num != 1
        || is_v4(&path.sgid) != is_v4(&path.dgid)
    {
        return Err(EINVAL);
    }
    Ok(())
}

/// Returns whether a GID is an IPv4-mapped address.
pub(crate) fn is_v4(gid: &[u8; 16]) -> bool {
    v4(gid).is_some()
}

/// Returns the IPv4 address of an IPv4-mapped GID.
#[inline]
pub(crate) fn v4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    match *gid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Some([a, b, c, d]),
        _ => None,
    }
}

/// Returns the IPv4-mapped GID of an IPv4 address.
#[inline]
pub(crate) fn mapped([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}
