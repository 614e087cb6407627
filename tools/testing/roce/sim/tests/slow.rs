// SPDX-License-Identifier: GPL-2.0

//! A long READ over a link on which each part takes longer than the timeout.

use roce::wr::SendOp;
use sim::{
    Rng,
    Scenario,
    World, //
};

/// A READ that is requested again once must be answered only once more.
///
/// Otherwise one timeout causes further ones.
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
