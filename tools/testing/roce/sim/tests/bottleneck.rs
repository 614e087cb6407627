// SPDX-License-Identifier: GPL-2.0

//! READ responses or WRITEs that meet in the queue of a slow link.

use roce::wr::SendOp;
use sim::{
    switch::Bottleneck,
    world::Summary,
    Rng,
    Scenario,
    World, //
};

const MTU: u32 = 4096;
const QUEUE: usize = 30;

/// Runs `count` operations of `len` bytes through a queue of 30 packets.
///
/// The link behind the queue is `slower` times as slow as that of the hosts. With more than `mark`
/// packets in the queue, packets are marked.
fn run(op: SendOp, count: u64, len: u32, slower: u64, mark: usize) -> Summary {
    let mut scenario = Scenario::fast();
    scenario.mtu = MTU;
    scenario.bottleneck = Some(Bottleneck {
        sixteenths_per_byte: 16 * slower,
        limit: QUEUE,
        mark,
    });
    World::transfer(scenario, Rng::new(1), op, count, len)
}

/// The requester must not overrun the queue again and again, by packets or by READ responses.
///
/// Without a limit, up to 40 READ responses were sent for each that was needed.
#[test]
fn queue_is_not_overrun_for_long() {
    for op in [SendOp::Read, SendOp::Write] {
        for (count, len) in [(1, 8 << 20), (64, 64 << 10)] {
            for slower in [10, 80] {
                let summary = run(op, count, len, slower, QUEUE);
                let needed = count * u64::from(len / MTU);
                let sent = summary.sent_for(op);
                let what = format!("{count} times {op:?}, {len} bytes, {slower} times slower");
                assert!(sent < needed * 2, "{what}: {sent} for {needed}");
                let ideal = needed * u64::from(MTU) * slower;
                let elapsed = summary.elapsed;
                assert!(elapsed < ideal * 3 / 2, "{what}: {elapsed} ns for {ideal}");
            }
        }
    }
}

/// If the switch marks packets, it drops none after the first window, which is twice its queue.
#[test]
fn marked_queue_is_not_overrun() {
    for op in [SendOp::Read, SendOp::Write] {
        for (count, len) in [(1, 8 << 20), (64, 64 << 10)] {
            for slower in [10, 80] {
                let summary = run(op, count, len, slower, QUEUE / 4);
                let what = format!("{count} times {op:?}, {len} bytes, {slower} times slower");
                let dropped = summary.disturbances.dropped;
                assert!(dropped < 64, "{what}: {dropped} packets dropped");
                let ideal = count * u64::from(len) * slower;
                let elapsed = summary.elapsed;
                assert!(elapsed < ideal * 6 / 5, "{what}: {elapsed} ns for {ideal}");
                assert!(summary.counters.cnps > 0);
            }
        }
    }
}
