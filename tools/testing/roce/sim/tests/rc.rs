// SPDX-License-Identifier: GPL-2.0

//! RC in the simulator.

use roce::opcode::Transport;

#[test]
fn reliable_connection() {
    sim::runner::run_seeds(Transport::Rc, 10_000);
}
