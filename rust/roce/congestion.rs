// SPDX-License-Identifier: GPL-2.0

//! Congestion notification (IBTA annex A17.9, RFC 3168).
//!
//! ```text
//!  reaction point          network               notification point
//!    | -- packet, ECN-capable --> | -- packet, marked --> |
//!    | <----------- congestion notification packet ------ |
//!    | narrows its window                                 |
//! ```
//!
//! A network that supports ECN marks packets before its queues are full, instead of dropping them.
//! The receiver of a marked packet (the notification point) informs the sender (the reaction point)
//! by a congestion notification packet (CNP). For READ responses, the requester is both: it sees
//! the marks, and limits the responses that are on the way by its requests.
//!
//! A sender may set the ECN-capable codepoint only if marks have an effect. No message of the
//! connection manager says whether the peer reacts to marks. So each side announces that it does:
//! its packets without payload, such as acknowledgments and READ requests, are always ECN-capable.
//! Packets with payload are ECN-capable unless the peer has sent packets and none of them was.
//! Those of the first window are, although nothing is known of the peer then: a congested network
//! that marks packets drops all that are not ECN-capable, and if it drops the whole first window,
//! the peer never sends a packet.

use crate::{
    ids::Qpn,
    opcode::Opcode,
    time::Instant,
    wire::{
        Bth,
        HeaderWriter,
        TxPacket,
        CNP_LEN, //
    }, //
};

/// The ECN bits of the ToS or the traffic class.
const ECN_MASK: u8 = 0x03;

/// The binary logarithm of the period in which a half sends at most one CNP, in ns.
///
/// NICs send CNPs about as often.
const CNP_PERIOD: u32 = 16;

/// The ECN codepoint of a packet (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECT: a congested network drops it.
    NotCapable,
    /// ECT(0) or ECT(1): a congested network may mark it.
    Capable,
    /// CE: a congested network has marked it.
    Congested,
}

impl Ecn {
    /// Returns the codepoint of a ToS or a traffic class.
    #[inline]
    pub fn of(traffic_class: u8) -> Ecn {
        match traffic_class & ECN_MASK {
            0 => Ecn::NotCapable,
            ECN_MASK => Ecn::Congested,
            _ => Ecn::Capable,
        }
    }
}

/// The ECN state of one half of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Congestion {
    /// The number of the period in which the last CNP was sent, modulo 2^16.
    ///
    /// It wraps after 4.3 s. If the half sent its last CNP just that long ago, the next one is
    /// delayed by a period.
    notified_in: u16,
    /// True if any packet of the peer was ECN-capable, false if none was, `None` before the first
    /// one.
    is_peer_capable: Option<bool>,
    /// True if the half takes part in congestion notification.
    is_on: bool,
}

impl Congestion {
    /// Makes the state of a new path.
    pub fn new(is_on: bool) -> Congestion {
        Congestion {
            is_on,
            ..Congestion::default()
        }
    }

    /// Returns whether the half takes part in congestion notification.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Accounts for a packet of the peer with codepoint `ecn`.
    #[inline]
    pub fn heard(&mut self, ecn: Ecn) {
        if self.is_peer_capable != Some(true) {
            self.is_peer_capable = Some(ecn != Ecn::NotCapable);
        }
    }

    /// Returns the traffic class of a packet to send with `len` bytes of payload.
    ///
    /// `asked` is the traffic class of the address vector. Its ECN bits are not used, because the
    /// application cannot know whether the peer reacts to marks.
    #[inline]
    pub fn traffic_class(&self, asked: u8, len: u32) -> u8 {
        const CAPABLE: u8 = 0x02;

        let is_capable = self.is_on && (len == 0 || self.is_peer_capable != Some(false));
        (asked & !ECN_MASK) | if is_capable { CAPABLE } else { 0 }
    }

    /// Returns whether a CNP is to be sent for a marked packet.
    pub fn is_cnp_due(&mut self, now: Instant) -> bool {
        // CAST: The low bits, see `notified_in`.
        let period = (now.as_ns() >> CNP_PERIOD) as u16;
        let is_due = self.is_on && period != self.notified_in;
        if is_due {
            self.notified_in = period;
        }
        is_due
    }
}

/// A congestion notification packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cnp {
    /// The queue pair that sent the marked packet.
    pub dest_qpn: Qpn,
}

impl TxPacket for Cnp {
    #[inline]
    fn opcode(&self) -> Opcode {
        Opcode::Cnp
    }

    #[cold]
    fn write_headers(&self, buf: &mut [u8]) -> Option<usize> {
        let writer = HeaderWriter::new(buf, &Bth::cnp(self.dest_qpn))?;
        Some(writer.put(&[0u8; CNP_LEN])?.finish())
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_congestion))]
mod tests {
    use super::*;
    use crate::testutil::*;

    /// Returns a time in the middle of a period.
    fn in_period(period: u64) -> Instant {
        Instant::from_ns((2 * period + 1) << (CNP_PERIOD - 1))
    }

    #[test]
    fn cnp_matches_specification() {
        let cnp = Cnp {
            dest_qpn: Qpn::new(0xd2),
        };
        let mut buf = [0xee; 64];
        let len = cnp.write_headers(&mut buf).unwrap();
        let bth = [0x81, 0, 0xff, 0xff, 0x40, 0, 0, 0xd2, 0, 0, 0, 0];
        assert_eq!(buf[..12], bth);
        assert_eq!((len, &buf[12..len]), (28, &[0; 16][..]));

        let frame = Frame::new(&cnp);
        assert_eq!(frame.packet().opcode(), Opcode::Cnp);
        assert_eq!(frame.packet().dest_qpn(), Qpn::new(0xd2));
    }

    #[test]
    fn codepoint_is_low_bits_of_traffic_class() {
        let ecn = [0xfc, 0xfd, 0xfe, 0xff].map(Ecn::of);
        assert_eq!(ecn[0], Ecn::NotCapable);
        assert_eq!((ecn[1], ecn[2]), (Ecn::Capable, Ecn::Capable));
        assert_eq!(ecn[3], Ecn::Congested);
    }

    #[test]
    fn payload_is_ecn_capable_unless_the_peer_is_not() {
        let mut half = Congestion::new(true);
        assert_eq!(half.traffic_class(0x6b, 0), 0x6a);
        assert_eq!(half.traffic_class(0x6b, 1), 0x6a);
        half.heard(Ecn::NotCapable);
        assert_eq!(half.traffic_class(0x6b, 0), 0x6a);
        assert_eq!(half.traffic_class(0x6b, 1), 0x68);
        half.heard(Ecn::Capable);
        half.heard(Ecn::NotCapable);
        assert_eq!(half.traffic_class(0x6b, 1), 0x6a);
    }

    #[test]
    fn half_reports_whether_it_takes_part() {
        assert!(Congestion::new(true).is_on());
        assert!(!Congestion::new(false).is_on());
    }

    #[test]
    fn half_without_ecn_is_never_ecn_capable() {
        let mut half = Congestion::new(false);
        half.heard(Ecn::Congested);
        assert_eq!(half.traffic_class(0xff, 0), 0xfc);
        assert_eq!(half.traffic_class(0xff, 1), 0xfc);
        assert!(!half.is_cnp_due(in_period(9)));
    }

    #[test]
    fn one_cnp_is_sent_in_a_period() {
        let mut half = Congestion::new(true);
        // The number of the period wraps.
        for period in [9, 10, 12, (1 << 16) + 10] {
            assert!(half.is_cnp_due(in_period(period)));
            assert!(!half.is_cnp_due(in_period(period)));
            assert!(!half.is_cnp_due(in_period(period).after(1000)));
        }
    }
}
