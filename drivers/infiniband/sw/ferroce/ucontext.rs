// SPDX-License-Identifier: GPL-2.0

//! User contexts: rings that wait to be mapped.

use kernel::{
    mm::virt::VmaNew,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use rdma::mm::SharedMemory;
use roce::uapi::resp::MmapInfo;

/// How many rings may wait to be mapped. A library maps each right after it was made; one that does
/// not only hurts itself.
const MAX_PENDING: usize = 4096;

/// What the driver keeps for a user context.
///
/// An offer is made by the verb that creates a ring and taken by one `mmap()` call: its offset is
/// worth nothing in another context, nor a second time.
#[pin_data]
pub(crate) struct Ucontext {
    #[pin]
    pending: Mutex<Pending>,
}

struct Pending {
    next_offset: u64,
    offers: KVec<(u64, Arc<SharedMemory>)>,
}

impl Ucontext {
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            pending <- new_mutex!(
                Pending {
                    // Zero is what a ring that is not there reports.
                    next_offset: PAGE_SIZE as u64,
                    offers: KVec::new(),
                },
                "ferroce::Ucontext::pending"
            ),
        })
    }

    /// Offers memory for one `mmap()` call and returns what the library needs for it.
    pub(crate) fn offer(&self, mem: &Arc<SharedMemory>) -> Result<MmapInfo> {
        let size = u32::try_from(mem.size()).map_err(|_| EINVAL)?;
        let mut pending = self.pending.lock();
        if pending.offers.len() >= MAX_PENDING {
            return Err(ENOMEM);
        }
        let offset = pending.next_offset;
        pending.offers.push((offset, mem.clone()), GFP_KERNEL)?;
        pending.next_offset = offset.checked_add(u64::from(size)).ok_or(ENOMEM)?;
        Ok(MmapInfo {
            offset,
            size,
            pad: 0,
        })
    }

    /// Withdraws an offer that nobody will take, because the verb failed or the ring goes.
    pub(crate) fn withdraw(&self, mem: &Arc<SharedMemory>) {
        let mut pending = self.pending.lock();
        let found = pending.offers.iter().position(|(_, m)| Arc::ptr_eq(m, mem));
        if let Some(i) = found {
            // The memory is freed here only if the caller has dropped its own reference.
            let _ = pending.offers.remove(i);
        }
    }

    /// Maps what was offered at `pgoff` pages.
    pub(crate) fn mmap(&self, vma: &VmaNew, pgoff: u64) -> Result {
        let offset = pgoff.checked_mul(PAGE_SIZE as u64).ok_or(EINVAL)?;
        let mem = {
            let mut pending = self.pending.lock();
            let i = pending
                .offers
                .iter()
                .position(|(o, _)| *o == offset)
                .ok_or(EINVAL)?;
            pending.offers.remove(i).map_err(|_| EINVAL)?.1
        };
        mem.map(vma)
    }
}
