// SPDX-License-Identifier: GPL-2.0

//! Storage for some values, in place if they are few.

use kernel::prelude::*;

/// Values, up to `N` of which need no memory of their own.
pub(crate) enum Few<T, const N: usize> {
    Few([T; N]),
    Many(KVec<T>),
}

impl<T, const N: usize> AsRef<[T]> for Few<T, N> {
    #[inline]
    fn as_ref(&self) -> &[T] {
        match self {
            Self::Few(few) => few,
            Self::Many(many) => many,
        }
    }
}

impl<T, const N: usize> AsMut<[T]> for Few<T, N> {
    #[inline]
    fn as_mut(&mut self) -> &mut [T] {
        match self {
            Self::Few(few) => few,
            Self::Many(many) => many,
        }
    }
}
