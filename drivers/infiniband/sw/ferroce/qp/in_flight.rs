// SPDX-License-Identifier: GPL-2.0

//! Bounds on the packets that a half of a queue pair has in flight.

use kernel::prelude::*;
use rdma::net::tx_in_flight::TxInFlight;

/// After so many nanoseconds without a packet another CPU may send in any case. A packet may stay
/// in the network stack for ever, so its return must not be waited for.
pub(super) const HANDOVER: u64 = 100_000_000;

/// Opens the account of a half; `wake(qpn)` ends a pause. May sleep.
pub(super) fn account(wake: fn(u32), qpn: u32) -> Result<TxInFlight> {
    TxInFlight::new(HANDOVER, wake, qpn)
}

/// Returns whether the half may send another packet, where `limit` may be in flight. A pause ends
/// when three quarters of them have left. Bottom halves are off.
#[inline]
pub(super) fn admits(account: &TxInFlight, limit: u32) -> bool {
    account.admits(limit, limit / 4)
}
