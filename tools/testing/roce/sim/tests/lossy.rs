// SPDX-License-Identifier: GPL-2.0

//! Networks that lose packets or deliver them late.

use roce::wr::SendOp;
use sim::{
    net::Faults,
    world::Summary,
    Rng,
    Scenario,
    World, //
};

/// A READ must not be requested again beyond its probe, if the peer may have received only that.
///
/// The peer drops a duplicate READ that is longer than the original. It happens if the request for
/// a part is lost, and the response to the probe, too.
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
        World::transfer(scenario, Rng::new(seed), SendOp::Read, COUNT, 8 << 20);
    }
}

/// A path that loses all trains takes single packets. So no request runs out of retries.
#[test]
fn lost_trains_are_sent_singly() {
    for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
        for (count, len) in [(64, 64), (1000, 20_000), (4, 8 << 20)] {
            let mut scenario = Scenario::fast();
            scenario.early = 512;
            scenario.faults = Faults {
                train_loss: 1000,
                ..Faults::default()
            };
            World::transfer(scenario, Rng::new(7), op, count, len);
        }
    }
}

/// Runs `count` operations of `len` bytes four times.
///
/// Returns the total time, and the number of requests and READ responses that were sent.
fn effort(op: SendOp, count: u64, len: u32, faults: Faults) -> (u64, u64) {
    let mut total = Summary::default();
    for seed in 0..4 {
        let mut scenario = Scenario::fast();
        scenario.early = 512;
        scenario.faults = faults;
        total.add(&World::transfer(scenario, Rng::new(seed), op, count, len));
    }
    (total.elapsed, total.sent_for(op))
}

/// Only missing packets must be sent again, and the window must stay wide.
///
/// One train of a hundred is lost, or arrives up to two round trips late.
#[test]
fn lost_and_late_trains_cost_little() {
    let lost = Faults {
        loss: 10,
        ..Faults::default()
    };
    let late = Faults {
        reorder: 10,
        ..Faults::default()
    };
    for op in [SendOp::Read, SendOp::Write] {
        for (count, len) in [(4, 8 << 20), (512, 64 << 10)] {
            let (time, packets) = effort(op, count, len, Faults::default());
            for (what, faults, most_time, most_packets) in
                [("lost", lost, 140, 115), ("late", late, 110, 105)]
            {
                let (longer, more) = effort(op, count, len, faults);
                let percent = (longer * 100 / time, more * 100 / packets);
                assert!(
                    percent.0 < most_time && percent.1 < most_packets,
                    "{count} times {op:?}, {len} bytes, {what}: {percent:?} %"
                );
            }
        }
    }
}
