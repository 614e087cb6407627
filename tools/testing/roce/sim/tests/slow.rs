// SPDX-License-Identifier: GPL-2.0

//! Peers that are slow.

use roce::wr::SendOp;
use sim::{
    net::Faults,
    Rng,
    Scenario,
    World, //
};

/// A READ that is requested again once must be answered only once more.
///
/// Each part takes longer than the timeout. Otherwise one timeout causes further ones.
#[test]
fn single_stall_causes_few_timeouts() {
    const LEN: u32 = 16 << 20;

    let scenario = Scenario::slow();
    let ideal = u64::from(LEN) * scenario.sixteenths_per_byte / 16;
    let summary = World::transfer(scenario, Rng::new(1), SendOp::Read, 1, LEN);
    assert!(summary.counters.timeouts <= 3, "{summary:?}");
    assert!(
        summary.elapsed < ideal * 5 / 4,
        "{summary:?}, ideal {ideal}"
    );
}

/// A peer may have no receive request for any time if `rnr_retry` is 7, although packets and RNR
/// NAKs are lost.
#[test]
fn receiver_is_not_ready_for_long() {
    for seed in 0..20 {
        let mut scenario = Scenario::slow();
        scenario.stall = None;
        scenario.recv_batch = 2;
        scenario.recv_interval_ns = 1_000_000_000;
        scenario.faults = Faults {
            loss: 20,
            ..Faults::default()
        };
        let summary = World::transfer(scenario, Rng::new(seed), SendOp::Send, 4, 64);
        // More than the seven retries between two receive requests.
        assert!(summary.counters.timeouts > 16, "{summary:?}");
    }
}
