// SPDX-License-Identifier: GPL-2.0

//! Marks of a congested switch.

use roce::{
    congestion::Cnp,
    opcode::Operation,
    time::Instant,
    wire::Packet, //
};

use super::{
    packet,
    Node,
    Violation, //
};

impl Node {
    /// Handles the mark of a packet, before the packet itself is handled.
    pub(super) fn on_marked(&mut self, now: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.counters.marked += 1;
        let Ok(pkt) = Packet::parse(bytes) else {
            return Ok(());
        };
        let opcode = pkt.opcode();
        let is_response = opcode.operation() == Operation::ReadResponse;
        if self.failed || !self.reliable || !(opcode.is_request() || is_response) {
            return Ok(());
        }
        let congestion = match is_response {
            true if !self.requester.on_mark(&pkt) => return Ok(()),
            true => &mut self.response_congestion,
            false => &mut self.request_congestion,
        };
        if !congestion.is_cnp_due(Instant::from_ns(now)) {
            return Ok(());
        }
        self.counters.cnps += 1;
        let cnp = Cnp {
            dest_qpn: self.peer_qpn,
        };
        let packet = packet(&cnp, &[])?;
        self.out.push_back(vec![packet]);
        Ok(())
    }
}
