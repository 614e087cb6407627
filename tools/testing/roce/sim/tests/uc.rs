// SPDX-License-Identifier: GPL-2.0

//! UC in the simulator.

use roce::opcode::Transport;

#[test]
fn unreliable_connection() {
    sim::runner::run_seeds(Transport::Uc, 2_000);
}
