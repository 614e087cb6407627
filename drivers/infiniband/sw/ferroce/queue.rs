// SPDX-License-Identifier: GPL-2.0

//! Rings in memory that a user process may have mapped.
//!
//! The same layout serves kernel consumers, whose rings are not mapped.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::mm::SharedMemory;
use roce::uapi::ring::{
    Ring,
    CONSUMER_OFFSET,
    DATA_OFFSET,
    MIN_ELEM_SIZE,
    PRODUCER_OFFSET, //
};
use zerocopy::IntoBytes;

/// A ring and its memory.
///
/// It contains no index: each side keeps its own, and masks the index of the other. The producer
/// index of a kernel consumer is only in the ring, and changes under the lock of that side.
pub(crate) struct Queue {
    mem: Arc<SharedMemory>,
    ring: Ring,
}

/// The fill level of a ring, for diagnostics.
pub(crate) struct Fill {
    /// The number of elements that were added and not removed.
    pub(crate) posted: u32,
    /// The number of elements that fit.
    pub(crate) capacity: u32,
    /// The producer index.
    pub(crate) producer: u32,
    /// The consumer index.
    pub(crate) consumer: u32,
}

impl Queue {
    /// Allocates an empty ring. May sleep.
    pub(crate) fn new(ring: Ring) -> Result<Self> {
        let mem = SharedMemory::new(ring.len())?;
        let header = ring.header();
        if header.as_bytes().len() != DATA_OFFSET || !mem.write(0, header.as_bytes()) {
            return Err(EINVAL);
        }
        Ok(Self {
            mem: Arc::new(mem, GFP_KERNEL_ACCOUNT)?,
            ring,
        })
    }

    /// Returns another handle of the ring, for its other side.
    pub(crate) fn share(&self) -> Self {
        Self {
            mem: self.mem.clone(),
            ring: self.ring,
        }
    }

    /// Returns the memory, which a process may map.
    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.mem
    }

    /// Returns the geometry.
    #[inline]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the fill level for two masked indexes.
    pub(crate) fn fill(&self, producer: u32, consumer: u32) -> Fill {
        Fill {
            posted: self.ring.count(producer, consumer),
            capacity: self.ring.capacity(),
            producer,
            consumer,
        }
    }

    /// Loads the producer index, masked, with acquire semantics.
    #[inline]
    pub(crate) fn producer(&self) -> u32 {
        self.mem.load_acquire(PRODUCER_OFFSET).unwrap_or(0) & self.ring.index_mask()
    }

    /// Loads the consumer index, masked, with acquire semantics.
    #[inline]
    pub(crate) fn consumer(&self) -> u32 {
        self.mem.load_acquire(CONSUMER_OFFSET).unwrap_or(0) & self.ring.index_mask()
    }

    /// Publishes the producer index, with release semantics.
    #[inline]
    pub(crate) fn set_producer(&self, index: u32) {
        self.mem.store_release(PRODUCER_OFFSET, index);
    }

    /// Publishes the consumer index, with release semantics.
    #[inline]
    pub(crate) fn set_consumer(&self, index: u32) {
        self.mem.store_release(CONSUMER_OFFSET, index);
    }

    /// Copies bytes out, from `offset` of the element at `index`. `offset` and the length must be
    /// multiples of eight, and within the element; otherwise nothing is copied, and this returns
    /// `false`.
    #[inline]
    pub(crate) fn read(&self, index: u32, offset: usize, out: &mut [u8]) -> bool {
        self.fits(offset, out.len())
            && self
                .mem
                .read(self.ring.offset(index).saturating_add(offset), out)
    }

    /// Copies bytes in, to `offset` of the element at `index`. Arguments and result as for
    /// [`read`](Self::read).
    #[inline]
    pub(crate) fn write_at(&self, index: u32, offset: usize, bytes: &[u8]) -> bool {
        self.fits(offset, bytes.len())
            && self
                .mem
                .write(self.ring.offset(index).saturating_add(offset), bytes)
    }

    /// Copies the element at `index` from another ring with elements of the same size. The index is
    /// the same in this ring, except for the mask.
    pub(crate) fn copy_element(&self, from: &Self, index: u32) {
        // The size of every element is a multiple of this.
        let mut bytes = [0; MIN_ELEM_SIZE];
        let mut offset = 0;
        while offset < self.ring.elem_size() {
            if !from.read(index, offset, &mut bytes) || !self.write_at(index, offset, &bytes) {
                return;
            }
            offset = offset.saturating_add(MIN_ELEM_SIZE);
        }
    }

    #[inline]
    fn fits(&self, offset: usize, len: usize) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.ring.elem_size())
    }
}
