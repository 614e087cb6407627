// SPDX-License-Identifier: GPL-2.0

//! Storage for values, in place if there are only a few.

use kernel::prelude::*;

/// `N` values in place, or more in an allocation of their own.
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
