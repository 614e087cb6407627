// SPDX-License-Identifier: GPL-2.0

//! READs of which the responses meet in front of a slow link.

use sim::{
    ops::{
        self,
        GUARD, //
    },
    switch::Bottleneck,
    world::Summary,
    Rng,
    Scenario,
    World, //
};

const MTU: u32 = 4096;

/// Runs `count` READs of `len` bytes through a queue of 30 packets, in front of a link that is
/// `slower` times as slow as that of the hosts.
fn read(count: u64, len: u32, slower: u64) -> Summary {
    let mut scenario = Scenario::slow();
    scenario.stall = None;
    scenario.mtu = MTU;
    scenario.slots = 64;
    scenario.sixteenths_per_byte = 16;
    scenario.latency_ns = 20_000;
    scenario.max_rd_atomic = 16;
    scenario.bottleneck = Some(Bottleneck {
        sixteenths_per_byte: 16 * slower,
        limit: 30,
        mark: 30,
    });
    let (reads, memory) = ops::reads(count, len);
    let world = World::with_ops(scenario, Rng::new(1), (reads, GUARD), (vec![], memory));
    world.run().unwrap()
}

/// The requester must not ask for more at once than the queue holds again and again: without a
/// limit, up to 40 responses were sent for each that was needed.
#[test]
fn responses_do_not_overrun_queue() {
    for (count, len) in [(1, 8 << 20), (64, 64 << 10)] {
        for slower in [10, 80] {
            let summary = read(count, len, slower);
            assert_eq!((summary.succeeded, summary.failed), (count, 0));
            let needed = count * u64::from(len / MTU);
            let sent = summary.counters.read_segments;
            assert!(
                sent < needed * 7 / 2,
                "{count} READs of {len} bytes, {slower} times slower: {sent} for {needed}"
            );
        }
    }
}
