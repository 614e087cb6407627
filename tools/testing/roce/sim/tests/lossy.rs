// SPDX-License-Identifier: GPL-2.0

//! Long READs over a network that loses many packets.

use roce::wr::SendOp;
use sim::{
    net::Faults,
    ops::{
        self,
        GUARD, //
    },
    Rng,
    Scenario,
    World, //
};

/// The peer may get the request for a part of a READ only as a probe for one response, and that
/// response may be lost, too. A repetition must then not ask for more: the peer would drop it.
#[test]
fn read_succeeds() {
    const COUNT: u64 = 4;

    for seed in 0..20 {
        let mut scenario = Scenario::slow();
        scenario.stall = None;
        scenario.mtu = 4096;
        scenario.max_rd_atomic = 16;
        scenario.latency_ns = 200_000;
        scenario.faults = Faults {
            loss: 50,
            ..Faults::default()
        };
        let (ops, memory) = ops::transfers(SendOp::Read, COUNT, 8 << 20);
        let world = World::with_ops(scenario, Rng::new(seed), (ops, GUARD), (vec![], memory));
        let summary = world.run().unwrap();
        assert_eq!((summary.succeeded, summary.failed), (COUNT, 0));
    }
}
