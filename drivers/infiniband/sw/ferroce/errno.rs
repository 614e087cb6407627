// SPDX-License-Identifier: GPL-2.0

//! Conversion of the protocol's errors to errnos.

use kernel::prelude::*;
use roce::qp::ErrnoKind;

/// Returns the errno of a protocol error.
pub(crate) fn errno(kind: ErrnoKind) -> Error {
    match kind {
        ErrnoKind::Invalid => EINVAL,
        ErrnoKind::Unsupported => EOPNOTSUPP,
    }
}
