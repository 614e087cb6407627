// SPDX-License-Identifier: GPL-2.0

//! Access rights of a memory region or a queue pair.

use super::enums::sets;
use crate::bindings;

/// A set of `enum ib_access_flags`.
///
/// # Examples
///
/// ```
/// use rdma::ib::Access;
///
/// const REMOTE: Access = Access::REMOTE_WRITE.or(Access::REMOTE_READ);
///
/// let access = Access::LOCAL_WRITE.or(Access::REMOTE_WRITE);
/// assert!(access.contains(Access::LOCAL_WRITE));
/// assert!(access.intersects(REMOTE));
/// assert!(!access.contains(REMOTE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Access(u32);

sets!(Access,);

impl Access {
    /// The device may write to the region for a local request.
    pub const LOCAL_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE);
    /// A peer may write.
    pub const REMOTE_WRITE: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE);
    /// A peer may read.
    pub const REMOTE_READ: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ);
    /// A peer may execute atomic operations.
    pub const REMOTE_ATOMIC: Self = Self(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Self = Self(bindings::ib_access_flags_IB_ACCESS_MW_BIND);
    /// The first byte has the address zero.
    pub const ZERO_BASED: Self = Self(bindings::ib_access_flags_IB_ZERO_BASED);
    /// FLUSH for global visibility by a peer.
    pub const FLUSH_GLOBAL: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL);
    /// FLUSH for persistence by a peer.
    pub const FLUSH_PERSISTENT: Self = Self(bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT);
    /// Pages are fetched when they are used.
    pub const ON_DEMAND: Self = Self(bindings::ib_access_flags_IB_ACCESS_ON_DEMAND);
    /// The pages are huge ones; goes with [`ON_DEMAND`](Self::ON_DEMAND).
    pub const HUGETLB: Self = Self(bindings::ib_access_flags_IB_ACCESS_HUGETLB);
    /// All hints that a driver may ignore.
    pub const OPTIONAL: Self = Self(bindings::RUST_CONST_HELPER_IB_ACCESS_OPTIONAL);

    /// Wraps the flags of the core.
    pub const fn from_raw(flags: u32) -> Self {
        Self(flags)
    }

    /// Returns the flags as the core has them.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// Returns `self` if `condition` holds, else the empty set.
    pub const fn when(self, condition: bool) -> Self {
        if condition {
            self
        } else {
            Self::NONE
        }
    }

    /// Returns `true` if `self` has any flag of `other`.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns `true` if `self` is a subset of `other`.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}
