// SPDX-License-Identifier: GPL-2.0

//! A simulator that drives two nodes with crate `roce` over a faulty network, in virtual time.
//!
//! A [`World`] holds two [`Node`]s, each with both halves of one queue pair, a memory region, a
//! receive queue and a list of operations to post. The parameters of the queue pairs, the
//! operations and the faults of the network and of the nodes are drawn from one seed. The same seed
//! gives the same run.
//!
//! `cargo test --release` runs thousands of seeds on all processors. `SIM_SEEDS=n` sets their
//! number. A failure prints its seed, and `SIM_SEED=n` runs that one again.
//!
//! A run ends when every posted operation of both nodes has completed. It is checked continuously;
//! see [`check`].

mod cause;
pub mod check;
pub mod hostile;
pub mod net;
pub mod node;
pub mod ops;
pub mod pattern;
pub mod rng;
pub mod runner;
pub mod scenario;
pub mod switch;
pub mod world;

pub use self::{
    node::Node,
    rng::Rng,
    scenario::Scenario,
    world::World, //
};
