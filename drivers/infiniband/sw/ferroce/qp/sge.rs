// SPDX-License-Identifier: GPL-2.0

//! Scatter/gather lists of requests, which name the memory of a message.

use crate::{
    mr::{
        self,
        OdpFault,
        RegionCache, //
    },
    queue::Queue, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        object::PdId,
        wr::Sges,
        Access, //
    },
    net::skbuff::SkBuff, //
};
use roce::{
    uapi::wqe::{
        RawSge,
        SGE_LEN, //
    },
    wr::MemError, //
};
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

/// Checks that there is room for a request with a list in the ring of a kernel consumer.
///
/// # Errors
///
/// `ENOMEM` if the ring is full, `EINVAL` if the list is longer than `max_sge`.
pub(super) fn check(queue: &Queue, max_sge: u32, sges: &Sges<'_>) -> Result {
    if queue.ring().is_full(queue.producer(), queue.consumer()) {
        return Err(ENOMEM);
    }
    // CAST: Bounded by the device's limit.
    if sges.len() > max_sge as usize {
        return Err(EINVAL);
    }
    Ok(())
}

/// Posts a request of a kernel consumer: its header, and the list behind that.
///
/// # Errors
///
/// `EINVAL` if they do not fit.
pub(super) fn push(queue: &Queue, header: &[u8], sges: Sges<'_>) -> Result {
    let index = queue.producer();
    let write = |offset, bytes: &[u8]| match queue.write_at(index, offset, bytes) {
        true => Ok(()),
        false => Err(EINVAL),
    };
    let mut offset = header.len();

    write(0, header)?;
    for i in 0..sges.len() {
        let (addr, length, lkey) = sges.get(i).ok_or(EINVAL)?;
        let mut sge = RawSge::new_zeroed();
        sge.addr.set(addr);
        sge.length.set(length);
        sge.lkey.set(lkey);
        write(offset, sge.as_bytes())?;
        offset = offset.saturating_add(SGE_LEN);
    }
    queue.set_producer(queue.ring().next(index));
    Ok(())
}

/// Copies bytes to `offset` of the memory that a list names.
///
/// # Errors
///
/// [`MemError::Length`] if the list is too short, or the error of the access to the memory.
#[inline]
pub(super) fn scatter(
    pd: PdId,
    sges: &[RawSge],
    offset: u32,
    bytes: &[u8],
    regions: &mut RegionCache,
) -> Result<(), MemError> {
    let mut rest = bytes;
    let len = u32::try_from(bytes.len()).map_err(|_| MemError::Length)?;
    each_range(sges, offset, len, |addr, len, key| {
        let region = regions.find(key, pd, Access::LOCAL_WRITE)?;
        let at = region.offset(addr, u64::from(len))?;
        // CAST: Widening.
        let (bytes, next) = rest
            .split_at_checked(len as usize)
            .ok_or(MemError::Length)?;
        rest = next;
        region.write(at, bytes)
    })
}

/// Appends `len` bytes at `offset` of the memory that a list names to a packet.
///
/// # Errors
///
/// See [`scatter`].
#[inline]
pub(super) fn gather(
    pd: PdId,
    sges: &[RawSge],
    offset: u32,
    len: u32,
    skb: &mut SkBuff,
    regions: &mut RegionCache,
) -> Result<(), MemError> {
    each_range(sges, offset, len, |addr, len, key| {
        let region = regions.find(key, pd, Access::NONE)?;
        let at = region.offset(addr, u64::from(len))?;
        // CAST: Widening.
        region.append_to(at, len as usize, skb)
    })
}

/// Returns the fault to resolve first, before `len` bytes at `offset` of the memory that a list
/// names can be accessed; `None` if all of them are present. The fault includes up to `ahead` bytes
/// behind them, none beyond the SGE.
///
/// # Errors
///
/// See [`scatter`].
pub(super) fn odp_fault(
    pd: PdId,
    sges: &[RawSge],
    offset: u32,
    len: u32,
    ahead: u64,
    access: Access,
) -> Result<Option<OdpFault>, MemError> {
    let mut found = None;
    let mut left = len;
    let total = sges.iter().fold(0_u64, |sum, sge| {
        sum.saturating_add(sge.length.get().into())
    });
    let rest = total.saturating_sub(u64::from(offset).saturating_add(len.into()));
    // CAST: Far below 2^32 (`wait::ahead`).
    let with_ahead = len.saturating_add(ahead.min(rest) as u32);
    each_range(sges, offset, with_ahead, |addr, count, key| {
        let len = count.min(left);
        left = left.wrapping_sub(len);
        if len == 0 {
            return Ok(());
        }
        let target = mr::find(key, pd, access)?;
        let at = target.offset(addr, u64::from(len))?;
        if found.is_none() {
            let ahead = count.wrapping_sub(len).into();
            found = target.odp_fault(at, u64::from(len), ahead, access != Access::NONE);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `f` with the address, the length and the key of each range that `len` bytes at `offset`
/// consist of: one for each SGE.
#[inline]
fn each_range(
    sges: &[RawSge],
    offset: u32,
    len: u32,
    mut f: impl FnMut(u64, u32, u32) -> Result<(), MemError>,
) -> Result<(), MemError> {
    let mut skip = offset;
    let mut left = len;
    let mut sges = sges.iter();
    while left > 0 {
        let sge = sges.next().ok_or(MemError::Length)?;
        let length = sge.length.get();
        if skip >= length {
            skip = skip.wrapping_sub(length);
            continue;
        }
        let count = left.min(length.wrapping_sub(skip));
        let addr = sge
            .addr
            .get()
            .checked_add(u64::from(skip))
            .ok_or(MemError::Protection)?;
        f(addr, count, sge.lkey.get())?;
        left = left.wrapping_sub(count);
        skip = 0;
    }
    Ok(())
}
