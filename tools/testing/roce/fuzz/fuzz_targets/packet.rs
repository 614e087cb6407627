// SPDX-License-Identifier: GPL-2.0

//! Any bytes, as a packet.

#![no_main]

use libfuzzer_sys::fuzz_target;
use roce::wire::{
    Packet,
    ICRC_LEN, //
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(pkt) = Packet::parse(bytes) else {
        return;
    };
    let end = pkt.payload_offset() + pkt.payload_len() as usize;
    assert_eq!(end + usize::from(pkt.pad()) + ICRC_LEN, bytes.len());
    assert_eq!(pkt.reth().is_some(), pkt.opcode().has_reth());
    assert_eq!(pkt.aeth().is_some(), pkt.opcode().has_aeth());
    assert_eq!(pkt.imm().is_some(), pkt.opcode().has_immdt());
    assert_eq!(pkt.deth().is_some(), pkt.opcode().has_deth());
});
