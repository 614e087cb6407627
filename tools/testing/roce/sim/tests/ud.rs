// SPDX-License-Identifier: GPL-2.0

//! UD in the simulator.

use roce::opcode::Transport;

#[test]
fn datagram() {
    sim::runner::run_seeds(Transport::Ud, 2_000);
}
