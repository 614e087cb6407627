// SPDX-License-Identifier: GPL-2.0

//! Arbitrary bytes as a list of actions of the peer and the consumer on a queue pair.

#![no_main]

use libfuzzer_sys::fuzz_target;
use roce::opcode::Transport;

fuzz_target!(|bytes: &[u8]| {
    let Some((transport, data)) = bytes.split_first() else {
        return;
    };
    let transport = match transport % 4 {
        0 => Transport::Ud,
        1 => Transport::Uc,
        _ => Transport::Rc,
    };
    sim::hostile::drive(transport, data);
});
