// SPDX-License-Identifier: GPL-2.0

//! Long READs from a peer that repeats responses as C rxe does.

use roce::wr::SendOp;
use sim::{
    net::Faults,
    Rng,
    Scenario,
    World, //
};

/// The requester must not depend on responses before the start of a repeated READ.
///
/// After the peer has repeated a READ from some response on, it drops requests for earlier ones.
#[test]
fn read_that_goes_back_succeeds() {
    const COUNT: u64 = 4;
    const LEN: u32 = 1 << 20;

    let mut dropped = 0;
    for seed in 0..100 {
        let mut scenario = Scenario::slow();
        scenario.seed = seed;
        scenario.stall = None;
        scenario.foreign = true;
        scenario.mtu = 1024;
        scenario.max_rd_atomic = 4;
        // The requester keeps early responses, or rewinds.
        scenario.early = if seed % 2 == 0 { 128 } else { 0 };
        scenario.faults = Faults {
            loss: 20,
            reorder: 200,
            ..Faults::default()
        };
        let summary = World::transfer(scenario, Rng::new(seed), SendOp::Read, COUNT, LEN);
        dropped += summary.oddities.dropped_reads;
    }
    assert!(dropped > 0);
}
