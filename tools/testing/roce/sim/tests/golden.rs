// SPDX-License-Identifier: GPL-2.0

//! The cost of RC in several kinds of networks: packets, recoveries and time.
//!
//! Other tests check that messages arrive. These fail if a change costs or saves more than a tenth.
//! If the change is intended, copy the new figures from the message.

use roce::opcode::Transport;
use sim::{
    net::Faults,
    switch::Bottleneck,
    world::Summary,
    Scenario,
    World, //
};

/// Seeds of each kind.
const SEEDS: u64 = 150;

/// The tolerance beside a tenth, because small totals vary by more than a tenth by chance.
const FEW: u64 = 8;

/// Packets, READ responses, timeouts, probes, losses shown by probes, sequence NAKs, missing
/// responses, RNR NAKs, replies, and microseconds.
type Totals = [u64; 10];

fn totals(summary: &Summary) -> Totals {
    let recoveries = &summary.recoveries;
    [
        summary.packets,
        summary.counters.read_segments,
        recoveries.timeouts,
        summary.counters.probes,
        recoveries.losses_found,
        recoveries.sent_naks,
        recoveries.gaps,
        recoveries.sent_rnrs,
        summary.counters.replies,
        summary.elapsed / 1000,
    ]
}

/// Runs the seeds in a perfect network that was modified by `change`.
fn run(change: fn(&mut Scenario)) -> Totals {
    let mut total = Summary::default();
    for seed in 0..SEEDS {
        let (mut scenario, rng) = Scenario::draw(seed, Transport::Rc);
        scenario.faults = Faults::default();
        scenario.sabotage = 0;
        scenario.mtu = 1024;
        scenario.backlog = 128;
        scenario.early = 128;
        scenario.recv_batch = 0;
        scenario.bottleneck = None;
        scenario.tick_ns = 0;
        scenario.foreign = false;
        scenario.stack.refuse = 0;
        change(&mut scenario);
        total.add(&World::new(scenario, rng).run().unwrap());
    }
    totals(&total)
}

fn check(kind: &str, change: fn(&mut Scenario), golden: Totals) {
    let found = run(change);
    let fits = found
        .iter()
        .zip(golden)
        .all(|(&found, golden)| found.abs_diff(golden) <= golden / 10 + FEW);
    assert!(fits, "{kind}: found {found:?}, expected {golden:?}");
}

#[test]
fn perfect_network() {
    check("perfect", |_| (), [9723, 1102, 0, 0, 0, 0, 0, 0, 56, 58356]);
}

#[test]
fn lossy_network() {
    let change = |scenario: &mut Scenario| scenario.faults.loss = 20;
    check(
        "lossy",
        change,
        [10320, 1129, 11, 32, 20, 57, 26, 0, 180, 176363],
    );
}

#[test]
fn network_that_reorders() {
    let change = |scenario: &mut Scenario| scenario.faults.reorder = 20;
    check(
        "reordering",
        change,
        [10193, 1116, 2, 7, 5, 44, 21, 0, 179, 75337],
    );
}

#[test]
fn network_that_duplicates() {
    let change = |scenario: &mut Scenario| scenario.faults.duplicate = 50;
    check(
        "repeating",
        change,
        [10443, 1158, 0, 0, 0, 0, 0, 0, 158, 58724],
    );
}

#[test]
fn receiver_that_is_not_ready() {
    let change = |scenario: &mut Scenario| {
        scenario.recv_batch = 2;
        scenario.recv_interval_ns = 200_000;
    };
    check(
        "not ready",
        change,
        [15342, 1045, 32, 10, 0, 0, 0, 788, 837, 238274],
    );
}

#[test]
fn short_queue() {
    let change = |scenario: &mut Scenario| {
        scenario.bottleneck = Some(Bottleneck {
            sixteenths_per_byte: 64,
            limit: 32,
            mark: 8,
        });
    };
    check(
        "short queue",
        change,
        [10557, 1102, 1, 0, 2, 3, 1, 0, 62, 70648],
    );
}
