// SPDX-License-Identifier: GPL-2.0

//! Prefetch of memory on demand.

use super::{
    fetch::FetchPermit,
    find,
    Target, //
};
use crate::work;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::ib::{
    object::PdId,
    umem::Fetch,
    wr::Sges,
    Access, //
};

/// The number of bytes to fetch before the key is looked up again.
const CHUNK: u64 = 1 << 20;

/// The maximum number of bytes of one ib_advise_mr() call to prefetch in the background, where the
/// CPU time is not charged to the process.
///
/// An unmapped range is walked page by page, which takes a worker up to some milliseconds. A longer
/// range can be prefetched in the foreground (`flush`).
const MAX_BACKGROUND: u64 = 16 << 20;

/// A part of a region, as requests name it.
#[derive(Clone, Copy)]
struct Range {
    lkey: u32,
    addr: u64,
    len: u64,
}

/// Fetches parts of regions: before this returns if `flush` is set, otherwise in the background, at
/// most [`MAX_BACKGROUND`] bytes, where errors are ignored.
///
/// # Errors
///
/// `EINVAL` for a key that is not valid in the protection domain, or whose memory is pinned;
/// `EPERM` if the advice is to write, and the region does not allow it; `EFAULT` if a part is not
/// within its region or, with `flush`, the process has no such memory; `ESRCH` with `flush`, if the
/// process that registered the memory is gone; `EAGAIN`, `EINTR` or `ENOMEM`.
pub(crate) fn prefetch(pd: PdId, how: Fetch, flush: bool, sges: Sges<'_>) -> Result {
    let mut ranges = KVVec::from_elem(
        Range {
            lkey: 0,
            addr: 0,
            len: 0,
        },
        sges.len(),
        GFP_KERNEL_ACCOUNT,
    )?;
    let mut permit = None;
    for (i, range) in ranges.iter_mut().enumerate() {
        let (addr, len, lkey) = sges.get(i).ok_or(EINVAL)?;
        *range = Range {
            lkey,
            addr,
            len: u64::from(len),
        };
        let (target, _) = range.look_up(pd, how)?;
        if !flush && permit.is_none() {
            permit = FetchPermit::take(&target, None)?;
        }
    }
    if flush {
        return ranges.iter().try_for_each(|range| range.fetch(pd, how));
    }
    // This function keeps a reference: if `spawn` fails, it drops the closure under RCU, where
    // memory of vmalloc() cannot be freed.
    let ranges = Arc::new(ranges, GFP_KERNEL_ACCOUNT)?;
    let spawned = ranges.clone();
    work::spawn(move || {
        let _permit = permit;
        let mut left = MAX_BACKGROUND;
        for range in spawned.iter() {
            let range = Range {
                len: range.len.min(left),
                ..*range
            };
            left = left.saturating_sub(range.len);
            // It is only advice: a later access fails if the memory is not accessible.
            let _ = range.fetch(pd, how);
        }
    })
}

impl Range {
    /// Finds the region, and the offset of the range in it.
    fn look_up(&self, pd: PdId, how: Fetch) -> Result<(Target, u64)> {
        let target = find(self.lkey, pd, Access::NONE).map_err(|_| EINVAL)?;
        if target.on_demand().is_none() {
            return Err(EINVAL);
        }
        if how == Fetch::Write && !target.allows(Access::LOCAL_WRITE) {
            return Err(EPERM);
        }
        let at = target.offset(self.addr, self.len).map_err(|_| EFAULT)?;
        Ok((target, at))
    }

    /// Fetches the range. May sleep for as long as the process delays its memory, so it does not
    /// hold the region.
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
