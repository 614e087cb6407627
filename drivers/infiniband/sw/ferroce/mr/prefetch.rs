// SPDX-License-Identifier: GPL-2.0

//! Prefetch of memory on demand.

use super::{
    fetch::FetchPermit,
    find,
    Target, //
};
use crate::work;
use kernel::prelude::*;
use rdma::ib::{
    mr::Advice,
    object::PdId,
    umem::Fetch,
    wr::Sges,
    Access, //
};

/// Bytes that are fetched before the key is looked up again.
const CHUNK: u64 = 1 << 20;

/// The most bytes of an advice that are fetched in the background, where the time is not charged to
/// the process.
const MAX_BACKGROUND: u64 = 1 << 30;

/// A part of a region, as requests name it.
#[derive(Clone, Copy)]
struct Range {
    lkey: u32,
    addr: u64,
    len: u64,
}

/// Fetches parts of regions: at once if `flush`, or else in the background as far as that succeeds.
///
/// # Errors
///
/// `EINVAL` for a key that is not one of the protection domain, or whose memory is pinned; `EPERM`
/// if it shall be written to and may not; `EFAULT` if it is not all in the region or, with `flush`,
/// not there; `EAGAIN` or `ENOMEM`.
pub(crate) fn prefetch(pd: PdId, advice: Advice, flush: bool, sges: Sges<'_>) -> Result {
    let how = match advice {
        Advice::Prefetch => Fetch::Read,
        Advice::PrefetchWrite => Fetch::Write,
        Advice::PrefetchNoFault => Fetch::Present,
    };
    let mut ranges = KVec::from_elem(
        Range {
            lkey: 0,
            addr: 0,
            len: 0,
        },
        sges.len(),
        GFP_KERNEL_ACCOUNT,
    )?;
    let mut counted = None;
    for (i, range) in ranges.iter_mut().enumerate() {
        let (addr, len, lkey) = sges.get(i).ok_or(EINVAL)?;
        *range = Range {
            lkey,
            addr,
            len: u64::from(len),
        };
        let (target, _) = range.look_up(pd, how)?;
        if !flush && counted.is_none() {
            counted = FetchPermit::take(&target, None)?;
        }
    }
    if flush {
        return ranges.iter().try_for_each(|range| range.fetch(pd, how));
    }
    work::spawn(move || {
        let _counted = counted;
        let mut left = MAX_BACKGROUND;
        for range in &ranges {
            let range = Range {
                len: range.len.min(left),
                ..*range
            };
            left = left.saturating_sub(range.len);
            // It is only an advice: a later access fails if the memory is bad.
            let _ = range.fetch(pd, how);
        }
    })
}

impl Range {
    /// Finds the region, and where the range is in it.
    fn look_up(&self, pd: PdId, how: Fetch) -> Result<(Target, u64)> {
        let target = find(self.lkey, pd, Access::NONE).map_err(|_| EINVAL)?;
        if !target.is_on_demand() {
            return Err(EINVAL);
        }
        if how == Fetch::Write && !target.allows(Access::LOCAL_WRITE) {
            return Err(EPERM);
        }
        let at = target.offset(self.addr, self.len).map_err(|_| EFAULT)?;
        Ok((target, at))
    }

    /// Fetches the range. May sleep, for as long as the process likes: the region is not held.
    fn fetch(&self, pd: PdId, how: Fetch) -> Result {
        let mut rest = *self;
        while rest.len > 0 {
            let part = Range {
                len: rest.len.min(CHUNK),
                ..rest
            };
            // Look it up each time: the region may be gone by now.
            let (target, at) = part.look_up(pd, how)?;
            let memory = target.on_demand().ok_or(EINVAL)?;
            drop(target);
            memory.fetch(at, part.len, how)?;
            rest.addr = rest.addr.wrapping_add(part.len);
            rest.len = rest.len.wrapping_sub(part.len);
        }
        Ok(())
    }
}
