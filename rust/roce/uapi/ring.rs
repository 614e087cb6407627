// SPDX-License-Identifier: GPL-2.0

//! Geometry and index arithmetic of the rings that a process shares with the kernel.
//!
//! A ring is a [`RingHeader`] followed by a power of two of equal slots. One slot always stays
//! free, so that equal indices mean "empty". Indices count slots and wrap at the number of slots.
//! The other side's index can have any value at any time: every function here masks its arguments,
//! so no index is outside the ring.
//!
//! Nothing here accesses the shared memory. The driver loads the peer's index with acquire and
//! stores its own with release semantics; see the section about barriers in
//! `Documentation/infiniband/ferroce/abi.rst`.

use core::mem::{
    offset_of,
    size_of, //
};
use zerocopy::byteorder::native_endian::U32;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

/// The header before the slots: `struct rxe_queue_buf`.
///
/// The two indices have cache lines of their own. `librxe` reads the geometry from here; the kernel
/// writes it once and never reads it back.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RingHeader {
    /// Binary logarithm of the bytes in one slot.
    pub log2_elem_size: U32,
    /// Number of slots less one.
    pub index_mask: U32,
    /// Unused.
    pub pad_1: [U32; 30],
    /// Next slot to be filled.
    pub producer_index: U32,
    /// Unused.
    pub pad_2: [U32; 31],
    /// Next slot to be emptied.
    pub consumer_index: U32,
    /// Unused.
    pub pad_3: [U32; 31],
}

/// Offset in bytes of the producer index in the ring.
pub const PRODUCER_OFFSET: usize = offset_of!(RingHeader, producer_index);
/// Offset in bytes of the consumer index in the ring.
pub const CONSUMER_OFFSET: usize = offset_of!(RingHeader, consumer_index);
/// Offset in bytes of the first slot in the ring.
pub const DATA_OFFSET: usize = size_of::<RingHeader>();

const _: () = {
    assert!(offset_of!(RingHeader, log2_elem_size) == 0);
    assert!(offset_of!(RingHeader, index_mask) == 4);
    assert!(PRODUCER_OFFSET == 128);
    assert!(CONSUMER_OFFSET == 256);
    assert!(DATA_OFFSET == 384);
};

/// Slots are at least this long, and a multiple of it, so that two of them never share a cache
/// line.
pub const MIN_ELEM_SIZE: usize = 64;

/// Most slots that a ring can have.
const MAX_SLOTS: u32 = 1 << 21;

/// Most bytes that a slot can have.
const MAX_ELEM_SIZE: u32 = 1 << 16;

/// The bound on the size of a ring in bytes: rounded up to pages, it fits the 32 bits of
/// [`MmapInfo`](super::resp::MmapInfo).
const MAX_RING_LEN: usize = 0xffff_0000;

/// Geometry of one ring. It holds no index and no pointer.
///
/// # Invariants
///
/// - `mask + 1` is a power of two from 2 to `MAX_SLOTS`.
/// - `1 << shift` is from `MIN_ELEM_SIZE` to `MAX_ELEM_SIZE`.
/// - The header and all slots together take less than `MAX_RING_LEN` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    mask: u32,
    shift: u32,
}

impl Ring {
    /// Lays out a ring for at least `entries` elements of at least `elem_size` bytes.
    ///
    /// Both are rounded up, the former to one less than a power of two: see
    /// [`capacity`](Self::capacity) and [`elem_size`](Self::elem_size). Returns `None` if the ring
    /// would be far larger than the limits of the device, which the caller has checked.
    pub const fn new(entries: u32, elem_size: u32) -> Option<Self> {
        if entries >= MAX_SLOTS || elem_size > MAX_ELEM_SIZE {
            return None;
        }
        // OVERFLOW: Both arguments are far below 2^31, so the next powers of two exist.
        let wanted = entries.wrapping_add(1).next_power_of_two();
        let slots = if wanted < 2 { 2 } else { wanted };
        // CAST: The constant fits.
        let elem_size = if elem_size < MIN_ELEM_SIZE as u32 {
            MIN_ELEM_SIZE as u32
        } else {
            elem_size.next_power_of_two()
        };
        // INVARIANT: `slots` and `elem_size` are powers of two within the bounds just checked.
        let ring = Self {
            mask: slots.wrapping_sub(1),
            shift: elem_size.trailing_zeros(),
        };
        if ring.len() >= MAX_RING_LEN {
            return None;
        }
        Some(ring)
    }

    /// Returns the header of a fresh, empty ring.
    pub fn header(&self) -> RingHeader {
        RingHeader {
            log2_elem_size: U32::new(self.shift),
            index_mask: U32::new(self.mask),
            pad_1: [U32::ZERO; 30],
            producer_index: U32::ZERO,
            pad_2: [U32::ZERO; 31],
            consumer_index: U32::ZERO,
            pad_3: [U32::ZERO; 31],
        }
    }

    /// Returns the most elements that the ring can hold, which is the number of slots minus one.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        self.mask
    }

    /// Returns the mask that every index is and'ed with.
    #[inline]
    pub const fn index_mask(&self) -> u32 {
        self.mask
    }

    /// Returns the bytes in one slot: a power of two, 64 at least.
    #[inline]
    pub const fn elem_size(&self) -> usize {
        1usize.wrapping_shl(self.shift)
    }

    /// Returns the bytes in the header and all slots, not rounded to pages.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "the length of the memory, not of what is queued"
    )]
    pub const fn len(&self) -> usize {
        // OVERFLOW: 2^21 slots of 2^16 bytes are 2^37 bytes, which fit into the 64 bits of `usize`;
        // on a 32-bit machine the saturated result is refused by `new`.
        (self.mask as usize)
            .wrapping_add(1)
            .saturating_mul(self.elem_size())
            .saturating_add(DATA_OFFSET)
    }

    /// Returns the offset in bytes of slot `index` in the ring; the whole slot lies below
    /// [`len`](Self::len).
    #[inline]
    pub const fn offset(&self, index: u32) -> usize {
        // OVERFLOW: By the type's invariants the sum is below `MAX_RING_LEN`.
        ((index & self.mask) as usize)
            .wrapping_shl(self.shift)
            .wrapping_add(DATA_OFFSET)
    }

    /// Returns the index after `index`, masked.
    #[inline]
    pub const fn next(&self, index: u32) -> u32 {
        index.wrapping_add(1) & self.mask
    }

    /// Returns the number of queued elements: 0 to [`capacity`](Self::capacity), for any indices.
    #[inline]
    pub const fn count(&self, producer: u32, consumer: u32) -> u32 {
        producer.wrapping_sub(consumer) & self.mask
    }

    /// Returns whether the ring is empty.
    #[inline]
    pub const fn is_empty(&self, producer: u32, consumer: u32) -> bool {
        self.count(producer, consumer) == 0
    }

    /// Returns whether the ring is full.
    #[inline]
    pub const fn is_full(&self, producer: u32, consumer: u32) -> bool {
        self.count(producer, consumer) == self.mask
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_uapi_ring))]
mod tests {
    use super::*;

    fn ring(entries: u32, elem_size: u32) -> Ring {
        match Ring::new(entries, elem_size) {
            Some(ring) => ring,
            None => Ring { mask: 0, shift: 0 },
        }
    }

    #[test]
    fn sizes_are_rounded_up_with_one_spare_slot() {
        for (entries, capacity) in [
            (0, 1),
            (1, 1),
            (2, 3),
            (3, 3),
            (4, 7),
            (100, 127),
            (128, 255),
        ] {
            assert_eq!(ring(entries, 64).capacity(), capacity);
        }
        for (asked, got) in [
            (0, 64),
            (1, 64),
            (64, 64),
            (65, 128),
            (208, 256),
            (272, 512),
        ] {
            assert_eq!(ring(1, asked).elem_size(), got);
        }
        assert_eq!(ring(3, 64).len(), 384 + 4 * 64);
    }

    #[test]
    fn oversized_rings_are_refused() {
        assert!(Ring::new(u32::MAX, 64).is_none());
        assert!(Ring::new(MAX_SLOTS, 64).is_none());
        assert!(Ring::new(1, u32::MAX).is_none());
        assert!(Ring::new(1 << 20, 1 << 16).is_none());
        assert!(Ring::new((1 << 20) - 1, 1024).is_some());
    }

    #[test]
    fn hostile_indices_stay_in_bounds() {
        let ring = ring(7, 128);
        for index in [0, 7, 8, 9, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            assert!(ring.offset(index) >= DATA_OFFSET);
            assert!(ring.offset(index) + ring.elem_size() <= ring.len());
            assert!(ring.next(index) <= 7);
            for other in [0, 3, 8, u32::MAX] {
                assert!(ring.count(index, other) <= ring.capacity());
            }
        }
    }

    #[test]
    fn fills_and_drains_across_wrap() {
        let ring = ring(3, 64);
        let (mut producer, mut consumer) = (2, 2);
        for queued in 0..3 {
            assert_eq!(ring.count(producer, consumer), queued);
            assert!(!ring.is_full(producer, consumer));
            producer = ring.next(producer);
        }
        assert!(ring.is_full(producer, consumer));
        assert!(!ring.is_empty(producer, consumer));
        for _ in 0..3 {
            consumer = ring.next(consumer);
        }
        assert_eq!(consumer, 1);
        assert!(ring.is_empty(producer, consumer));
    }

    #[test]
    fn header_describes_geometry() {
        let header = ring(3, 200).header();
        assert_eq!(header.log2_elem_size.get(), 8);
        assert_eq!(header.index_mask.get(), 3);
    }
}
