// SPDX-License-Identifier: GPL-2.0

//! The UDP source port of a peer.
//!
//! A sender derives the port from the flow label or from the two queue pair numbers, so that
//! switches keep the packets of a connection on one path (C rxe, mlx5, irdma:
//! `rdma_get_udp_sport()`). No device on the way may change it, because the ICRC covers it.
//!
//! The sender itself may change the port by a modify of the address vector in SQD, or by
//! `mlx5dv_modify_qp_udp_sport()`. C rxe sends its first responses before it has set the port. So
//! another port is not refused forever. Requests and responses are checked separately, because the
//! requester and the responder of the peer need not use the same port.

use crate::time::Instant;

/// The time for which packets from another port are refused while the known port is silent, in ns.
///
/// It is less than two ACK timeouts of the usual code, 14 (67 ms). So a peer that has changed its
/// port is accepted at its second retry at the latest.
const DOUBT_NS: u64 = 100_000_000;

/// The UDP source port of packets of a peer.
///
/// The first expected packet sets the port. A packet from another port is refused. If [`DOUBT_NS`]
/// pass after that without an expected packet from the known port, any port is admitted until the
/// next expected packet, which sets the port again.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourcePort {
    known: Option<u16>,
    /// The time when a packet from another port was first refused since the last expected packet.
    doubted: Option<Instant>,
}

impl SourcePort {
    /// Returns whether a packet from `port` is admitted. The clock is read only if time matters.
    #[inline]
    pub fn admits(&mut self, port: u16, clock: impl FnOnce() -> Instant) -> bool {
        if self.known.is_none_or(|known| known == port) {
            return true;
        }
        self.admits_other(clock())
    }

    #[cold]
    fn admits_other(&mut self, now: Instant) -> bool {
        now.since(*self.doubted.get_or_insert(now)) >= DOUBT_NS
    }

    /// Accounts for an admitted packet that was expected.
    ///
    /// That is a request with the next PSN, or a response that a request waits for.
    #[inline]
    pub fn heard(&mut self, port: u16) {
        if self.known != Some(port) || self.doubted.is_some() {
            *self = Self {
                known: Some(port),
                doubted: None,
            };
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(not(test), kernel::macros::kunit_tests(roce_source_port))]
mod tests {
    use super::*;

    const PEER: u16 = 0xc123;
    const OTHER: u16 = 0xc124;

    fn at(ms: u64) -> impl FnOnce() -> Instant {
        move || Instant::from_ns(1_000_000 * (ms + 5000))
    }

    #[test]
    fn any_port_is_admitted_until_one_is_known() {
        let mut port = SourcePort::default();
        assert!(port.admits(OTHER, at(0)));
        assert!(port.admits(PEER, at(0)));
        port.heard(PEER);
        assert!(port.admits(PEER, at(0)));
        assert!(!port.admits(OTHER, at(0)));
    }

    #[test]
    fn other_ports_are_refused_while_peer_is_heard() {
        let mut port = SourcePort::default();
        port.heard(PEER);
        for ms in (0..10_000).step_by(30) {
            assert!(!port.admits(OTHER, at(ms)));
            assert!(!port.admits(OTHER, at(ms + 29)));
            assert!(port.admits(PEER, at(ms + 29)));
            port.heard(PEER);
        }
        // The first packet from another port is refused after any time of silence.
        assert!(!port.admits(OTHER, at(1_000_000)));
    }

    #[test]
    fn changed_port_is_admitted_after_doubt_time() {
        let mut port = SourcePort::default();
        port.heard(PEER);
        assert!(!port.admits(OTHER, at(0)));
        assert!(!port.admits(OTHER, at(67)));
        // Admitting packets of the old port that are still in flight does not end the doubt.
        assert!(port.admits(PEER, at(70)));
        assert!(port.admits(OTHER, at(134)));
        port.heard(OTHER);
        assert!(port.admits(OTHER, at(134)));
        assert!(!port.admits(PEER, at(134)));
    }

    #[test]
    fn doubt_ends_after_its_time() {
        let start = Instant::from_ns(5);
        let mut port = SourcePort::default();
        port.heard(PEER);
        assert!(!port.admits(OTHER, || start));
        assert!(!port.admits(OTHER, || start.after(DOUBT_NS - 1)));
        assert!(port.admits(OTHER, || start.after(DOUBT_NS)));
    }
}
