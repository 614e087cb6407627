// SPDX-License-Identifier: GPL-2.0

//! Two nodes in virtual time: a simulator that drives crate `roce` over a network that may be bad.
//!
//! A [`World`] holds two [`Node`]s, each with both halves of one queue pair, a memory region, a
//! receive queue and a list of operations to post. Everything that happens is drawn from one seed:
//! the parameters of the queue pairs, the operations, the faults of the network and of the nodes.
//! The same seed gives the same run.
//!
//! `cargo test --release` runs thousands of seeds on all processors. `SIM_SEEDS=n` sets how many; a
//! failure prints its seed, and `SIM_SEED=n` runs that one again.
//!
//! A run ends when every posted operation of both nodes has completed. What must hold is checked on
//! the way; see [`check`].

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
