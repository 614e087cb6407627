// SPDX-License-Identifier: GPL-2.0

//! Packets that wait.

use super::{
    raw,
    SkBuff, //
};
use crate::bindings;
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};

/// Packets that wait, oldest first, each with a value of the owner of the queue.
///
/// It needs no memory: the packets are linked with each other, and the value is in the control
/// block of the packet (`cb`), which belongs to the owner of a packet.
///
/// # Invariants
///
/// `first` is null if `len` is 0. Else it begins a list of `len` packets, which ends with `last`.
/// These packets fulfil the invariants of [`SkBuff`] and belong to this value, and the control
/// block of each begins with a `T`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{net::{skbuff::SkBuffQueue, SkBuff}, time::ktime_get_ns};
/// // Packets, and the times of their arrival.
/// let mut queue = SkBuffQueue::<u64>::new();
/// queue.push(SkBuff::alloc(0, 64).ok_or(ENOMEM)?, ktime_get_ns());
/// assert_eq!(queue.len(), 1);
///
/// while let Some((packet, arrived)) = queue.pop() {
///     packet.consume();
/// }
/// # Ok::<(), Error>(())
/// ```
pub struct SkBuffQueue<T: Copy> {
    first: *mut bindings::sk_buff,
    last: *mut bindings::sk_buff,
    len: usize,
    _p: PhantomData<T>,
}

// SAFETY: Packets may be handed to another thread, and the values by the bound.
unsafe impl<T: Copy + Send> Send for SkBuffQueue<T> {}

impl<T: Copy> SkBuffQueue<T> {
    /// The control block has room for a value: it is 48 bytes, aligned to eight.
    const FITS: () = assert!(size_of::<T>() <= 48 && align_of::<T>() <= 8);

    /// Creates an empty queue.
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        // INVARIANT: There is no packet.
        Self {
            first: null_mut(),
            last: null_mut(),
            len: 0,
            _p: PhantomData,
        }
    }

    /// Returns whether no packet waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Returns how many packets wait.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the value of the packet that has waited longest.
    pub fn first(&self) -> Option<T> {
        let first = NonNull::new(self.first)?;
        // SAFETY: By the type invariant the packet is owned, and its control block begins with a
        // value.
        Some(unsafe { (&raw const (*first.as_ptr()).cb).cast::<T>().read() })
    }

    /// Adds a packet, and a value for it.
    pub fn push(&mut self, skb: SkBuff, value: T) {
        let () = Self::FITS;
        let raw = ManuallyDrop::new(skb).as_raw();

        // SAFETY: The packet is owned, so no one else uses its link and its control block, which
        // has room for the value. By the type invariant `last` is a packet of this queue unless
        // that is empty.
        unsafe {
            (&raw mut (*raw).cb).cast::<T>().write(value);
            raw::set_next(raw, null_mut());
            if self.first.is_null() {
                self.first = raw;
            } else {
                raw::set_next(self.last, raw);
            }
        }
        // INVARIANT: The packet was owned, and is the last one now.
        self.last = raw;
        self.len = self.len.wrapping_add(1);
    }

    /// Removes the packet that has waited longest, and its value.
    pub fn pop(&mut self) -> Option<(SkBuff, T)> {
        let value = self.first()?;

        // INVARIANT: The list begins with the next packet, or is empty.
        // SAFETY: By the type invariant the packets are owned.
        let first = unsafe { raw::take_first(&mut self.first) }?;
        self.len = self.len.wrapping_sub(1);
        // SAFETY: By the type invariant; it is removed from the list.
        Some((unsafe { SkBuff::from_raw(first) }, value))
    }
}

impl<T: Copy> Drop for SkBuffQueue<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
