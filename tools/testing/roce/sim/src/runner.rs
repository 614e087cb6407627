// SPDX-License-Identifier: GPL-2.0

//! Runs of many seeds on all processors.

use std::{
    env,
    sync::{
        atomic::{
            AtomicU64,
            Ordering, //
        },
        Mutex,
    },
    thread,
    time::Instant, //
};

use roce::opcode::Transport;

use crate::{
    world::Summary,
    Scenario,
    World, //
};

/// Runs one seed.
///
/// # Errors
///
/// Returns the violation and its scenario.
pub fn run_seed(transport: Transport, seed: u64) -> Result<Summary, String> {
    let (scenario, rng) = Scenario::draw(seed, transport);
    let description = format!("{scenario:?}");
    World::new(scenario, rng)
        .run()
        .map_err(|violation| format!("SIM_SEED={seed} {transport:?}: {violation}\n{description}"))
}

/// Runs seeds 0 to `seeds` - 1, and returns the sum of their summaries.
///
/// Panics at the first violation. RC: also panics if a fault of trains never happened, unless
/// `SIM_SEEDS` or `SIM_SEED` reduces the number of seeds.
///
/// The environment variable `SIM_SEED` selects a single seed, and `SIM_SEEDS` the number of seeds.
pub fn run_seeds(transport: Transport, seeds: u64) -> Summary {
    if let Some(seed) = number("SIM_SEED") {
        match run_seed(transport, seed) {
            Ok(summary) => {
                println!("{transport:?} seed {seed}: {summary:?}");
                return summary;
            }
            Err(violation) => panic!("{violation}"),
        }
    }
    let usual = seeds;
    let seeds = number("SIM_SEEDS").unwrap_or(usual);
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let total = Mutex::new(Summary::default());
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds || failure.lock().unwrap().is_some() {
                    return;
                }
                match run_seed(transport, seed) {
                    Ok(summary) => total.lock().unwrap().add(&summary),
                    Err(violation) => *failure.lock().unwrap() = Some(violation),
                }
            });
        }
    });
    if let Some(violation) = failure.into_inner().unwrap() {
        panic!("{violation}");
    }
    let total = total.into_inner().unwrap();
    println!(
        "{transport:?}: {seeds} seeds in {:.1} s: {total:?}",
        started.elapsed().as_secs_f64()
    );
    if transport == Transport::Rc && seeds >= usual {
        let missing = total.missing();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
    total
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}
