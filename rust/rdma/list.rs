// SPDX-License-Identifier: GPL-2.0

//! Vectors that grow and shrink without a call to a panic.
//!
//! `KVec::push` and `KVec::retain` do arithmetic and indexing that cannot fail but that the
//! compiler leaves checks for, in the crate that uses them. A gate looks for such calls in the
//! kernel module, and cannot tell harmless ones from others.

use kernel::{
    alloc::Flags,
    prelude::*, //
};

/// Appends a value. Sleeps only if `flags` allow it.
///
/// # Errors
///
/// `ENOMEM`; the vector is unchanged then.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::list;
///
/// let mut ports = KVec::new();
/// list::push(&mut ports, 4791u16, GFP_KERNEL)?;
/// assert_eq!(ports.len(), 1);
/// # Ok::<(), Error>(())
/// ```
pub fn push<T>(list: &mut KVec<T>, value: T, flags: Flags) -> Result {
    const FIRST_CAPACITY: usize = 4;

    let value = match list.push_within_capacity(value) {
        Ok(()) => return Ok(()),
        Err(e) => e.0,
    };
    let capacity = list.len().saturating_mul(2).max(FIRST_CAPACITY);
    let mut larger = KVec::with_capacity(capacity, flags)?;
    for item in core::mem::take(list) {
        // There is room for twice as many.
        let _ = larger.push_within_capacity(item);
    }
    let _ = larger.push_within_capacity(value);
    *list = larger;
    Ok(())
}

/// Removes elements for which `wanted` returns false; the order is not kept. A list that becomes
/// empty owns no memory.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::list;
///
/// let mut ports = KVec::new();
/// list::push(&mut ports, 4791u16, GFP_KERNEL)?;
/// list::retain(&mut ports, |port| *port != 4791);
/// assert!(ports.is_empty());
/// # Ok::<(), Error>(())
/// ```
pub fn retain<T>(list: &mut KVec<T>, wanted: impl Fn(&T) -> bool) {
    let mut at: usize = 0;
    while let Some(item) = list.get(at) {
        if wanted(item) {
            at = at.wrapping_add(1);
            continue;
        }
        let last = list.pop();
        if let (Some(last), Some(slot)) = (last, list.get_mut(at)) {
            *slot = last;
        }
    }
    if list.is_empty() {
        // Free the memory, too: a list in a static is never dropped.
        *list = KVec::new();
    }
}
