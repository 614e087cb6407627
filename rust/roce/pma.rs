// SPDX-License-Identifier: GPL-2.0

//! The counters of a port in management datagrams (IBTA 16.1).
//!
//! ```text
//!  0          24            64                                  256
//!  | MAD header | reserved   | attribute                          |
//! ```
//!
//! A management datagram (MAD) has 256 bytes. Only `Get` of three attributes gets a response. `Set`
//! is refused, so no node can clear the counters of others.

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// The class of performance management, in the second byte.
const CLASS: u8 = 0x04;
/// The version of the header and of the class.
const VERSION: u8 = 1;

const METHOD_GET: u8 = 0x01;
const METHOD_SET: u8 = 0x02;
const METHOD_GET_RESP: u8 = 0x81;

const STATUS_BAD_VERSION: u16 = 1 << 2;
const STATUS_NO_SUCH_ATTRIBUTE: u16 = 3 << 2;
const STATUS_BAD_VALUE: u16 = 7 << 2;

const CLASS_PORT_INFO: u16 = 0x0001;
const PORT_COUNTERS: u16 = 0x0012;
const PORT_COUNTERS_EXT: u16 = 0x001d;

/// The capability flag of the extended counters, including those for multicast.
const EXT_WIDTH: u16 = 1 << 9;

/// Bytes in a word of the data counters.
const WORD: u64 = 4;

/// The offset of an attribute.
const ATTRIBUTE: usize = 64;

/// Returns whether ib_mad may receive the payload of a datagram to queue pair 1: a MAD of the only
/// version.
///
/// ib_mad reads 256 bytes whatever the length is, does not repost a receive request that was too
/// short, and logs each unknown version.
#[inline]
pub fn is_mad(payload: &[u8]) -> bool {
    payload.len() == MAD_LEN && payload.first() == Some(&VERSION)
}

/// The counters of a port since its device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Bytes sent.
    pub xmit_bytes: u64,
    /// Bytes received.
    pub rcv_bytes: u64,
    /// Packets sent.
    pub xmit_packets: u64,
    /// Packets received.
    pub rcv_packets: u64,
    /// Packets sent to multicast groups; also counted in `xmit_packets`.
    pub xmit_multicast: u64,
    /// Packets received by multicast groups; also counted in `rcv_packets`.
    pub rcv_multicast: u64,
    /// The number of times that the link went down.
    pub link_downed: u64,
    /// Packets received with an error, or without room for them.
    pub rcv_errors: u64,
    /// Packets received with a wrong partition key.
    pub rcv_constraint_errors: u64,
    /// Packets that could not be sent.
    pub xmit_discards: u64,
}

/// Answers a management datagram for a port.
///
/// Returns whether there is a response in `response`. Datagrams of another class, and responses,
/// get none. `counters` is called at most once, and only if the request is for counters.
pub fn respond(
    request: &[u8; MAD_LEN],
    port: u8,
    counters: impl FnOnce() -> PortCounters,
    response: &mut [u8; MAD_LEN],
) -> bool {
    let &[version, CLASS, class_version, method, ..] = request else {
        return false;
    };
    if method != METHOD_GET && method != METHOD_SET {
        return false;
    }
    let mut out = Writer(response);
    out.begin(request);
    let attribute = field(request, 16).map_or(0, u16::from_be_bytes);
    let selected = field(request, ATTRIBUTE + 1).map_or(0, u8::from_be_bytes);
    let status = match attribute {
        _ if version != VERSION || class_version != VERSION => STATUS_BAD_VERSION,
        _ if method != METHOD_GET => STATUS_NO_SUCH_ATTRIBUTE,
        CLASS_PORT_INFO => out.class_port_info(),
        PORT_COUNTERS | PORT_COUNTERS_EXT if selected != port => STATUS_BAD_VALUE,
        PORT_COUNTERS => out.port_counters(port, &counters()),
        PORT_COUNTERS_EXT => out.port_counters_ext(port, &counters()),
        _ => STATUS_NO_SUCH_ATTRIBUTE,
    };
    out.put(4, &status.to_be_bytes());
    true
}

/// Returns the bytes at an offset.
fn field<const N: usize>(mad: &[u8; MAD_LEN], at: usize) -> Option<[u8; N]> {
    mad.get(at..)?.first_chunk().copied()
}

/// Writes a response.
struct Writer<'a>(&'a mut [u8; MAD_LEN]);

impl Writer<'_> {
    /// Writes `bytes` at an offset, unless they exceed the datagram.
    fn put<const N: usize>(&mut self, at: usize, bytes: &[u8; N]) {
        if let Some(room) = self.0.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>) {
            *room = *bytes;
        }
    }

    /// Writes the header of a response, and zeroes behind it.
    fn begin(&mut self, request: &[u8; MAD_LEN]) {
        *self.0 = [0; MAD_LEN];
        // Versions, class and method; then transaction, attribute and modifier.
        self.put(0, &[VERSION, CLASS, VERSION, METHOD_GET_RESP]);
        if let Some(rest) = field::<16>(request, 8) {
            self.put(8, &rest);
        }
    }

    fn class_port_info(&mut self) -> u16 {
        self.put(ATTRIBUTE, &[VERSION, VERSION]);
        self.put(ATTRIBUTE + 2, &EXT_WIDTH.to_be_bytes());
        0
    }

    /// Writes PortCounters, whose counters stop at all ones.
    fn port_counters(&mut self, port: u8, counters: &PortCounters) -> u16 {
        let at = |offset: usize| ATTRIBUTE.wrapping_add(offset);

        self.put(at(1), &[port]);
        self.put(at(7), &[narrow8(counters.link_downed)]);
        self.put(at(8), &narrow16(counters.rcv_errors));
        self.put(at(14), &narrow16(counters.xmit_discards));
        self.put(at(17), &[narrow8(counters.rcv_constraint_errors)]);
        self.put(at(24), &narrow32(counters.xmit_bytes / WORD));
        self.put(at(28), &narrow32(counters.rcv_bytes / WORD));
        self.put(at(32), &narrow32(counters.xmit_packets));
        self.put(at(36), &narrow32(counters.rcv_packets));
        0
    }

    /// Writes PortCountersExtended, whose counters have 64 bits.
    fn port_counters_ext(&mut self, port: u8, counters: &PortCounters) -> u16 {
        let unicast_xmit = counters
            .xmit_packets
            .saturating_sub(counters.xmit_multicast);
        let unicast_rcv = counters.rcv_packets.saturating_sub(counters.rcv_multicast);
        let values = [
            counters.xmit_bytes / WORD,
            counters.rcv_bytes / WORD,
            counters.xmit_packets,
            counters.rcv_packets,
            unicast_xmit,
            unicast_rcv,
            counters.xmit_multicast,
            counters.rcv_multicast,
        ];

        self.put(ATTRIBUTE + 1, &[port]);
        for (value, at) in values.iter().zip((ATTRIBUTE + 8..).step_by(8)) {
            self.put(at, &value.to_be_bytes());
        }
        0
    }
}

fn narrow8(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn narrow16(value: u64) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()
}

fn narrow32(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_pma))]
mod tests {
    use super::*;

    const PORT: u8 = 1;

    const COUNTERS: PortCounters = PortCounters {
        xmit_bytes: 4001,
        rcv_bytes: 1 << 40,
        xmit_packets: 1 << 33,
        rcv_packets: 20,
        xmit_multicast: 3,
        rcv_multicast: 4,
        link_downed: 300,
        rcv_errors: 70_000,
        rcv_constraint_errors: 5,
        xmit_discards: 6,
    };

    fn get(attribute: u16) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        let mut writer = Writer(&mut mad);
        writer.put(0, &[VERSION, CLASS, VERSION, METHOD_GET]);
        writer.put(8, &[1, 2, 3, 4, 5, 6, 7, 8]);
        writer.put(16, &attribute.to_be_bytes());
        writer.put(ATTRIBUTE + 1, &[PORT]);
        mad
    }

    fn response_to(request: &[u8; MAD_LEN]) -> Option<[u8; MAD_LEN]> {
        response_with(request, COUNTERS)
    }

    fn response_with(request: &[u8; MAD_LEN], counters: PortCounters) -> Option<[u8; MAD_LEN]> {
        let mut response = [0xee; MAD_LEN];
        respond(request, PORT, || counters, &mut response).then_some(response)
    }

    fn status(request: &[u8; MAD_LEN]) -> Option<u16> {
        field(&response_to(request)?, 4).map(u16::from_be_bytes)
    }

    #[test]
    fn response_echoes_tid_and_attribute() {
        let request = get(PORT_COUNTERS);
        let response = response_to(&request).unwrap();
        assert_eq!(field(&response, 0), Some([1, 4, 1, 0x81, 0, 0, 0, 0]));
        assert_eq!(field::<16>(&response, 8), field(&request, 8));
    }

    #[test]
    fn port_counters_saturate() {
        let response = response_to(&get(PORT_COUNTERS)).unwrap();
        // Symbol errors, recoveries, link downed, receive errors.
        assert_eq!(field(&response, 68), Some([0, 0, 0, 255, 255, 255]));
        // Discards, transmit and receive constraint errors.
        assert_eq!(field(&response, 78), Some([0, 6, 0, 5]));
        assert_eq!(field(&response, 88), Some(1000u32.to_be_bytes()));
        assert_eq!(field(&response, 92), Some([255; 4]));
        assert_eq!(field(&response, 96), Some([255; 4]));
        assert_eq!(field(&response, 100), Some(20u32.to_be_bytes()));
        assert_eq!(field(&response, 104), Some([0; 8]));
    }

    #[test]
    fn counters_of_data_are_in_words() {
        let counters = PortCounters {
            xmit_bytes: 4001,
            rcv_bytes: 8003,
            ..COUNTERS
        };
        let response = response_with(&get(PORT_COUNTERS), counters).unwrap();
        assert_eq!(field(&response, 88), Some(1000u32.to_be_bytes()));
        assert_eq!(field(&response, 92), Some(2000u32.to_be_bytes()));
    }

    #[test]
    fn counters_name_port() {
        for attribute in [PORT_COUNTERS, PORT_COUNTERS_EXT] {
            let response = response_to(&get(attribute)).unwrap();
            assert_eq!(field(&response, ATTRIBUTE), Some([0, PORT, 0, 0]));
        }
    }

    #[test]
    fn extended_counters_separate_multicast() {
        let response = response_to(&get(PORT_COUNTERS_EXT)).unwrap();
        let values = [
            1000,
            1 << 38,
            1 << 33,
            20,
            (1 << 33) - 3,
            16,
            3,
            4, //
        ];
        for (index, value) in values.iter().enumerate() {
            let got = field(&response, 72 + 8 * index).map(u64::from_be_bytes);
            assert_eq!(got, Some(*value));
        }
        assert_eq!(field(&response, 136), Some([0; 8]));
    }

    #[test]
    fn class_port_info_reports_extended_counters() {
        let response = response_to(&get(CLASS_PORT_INFO)).unwrap();
        assert_eq!(field(&response, 64), Some([1, 1, 2, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn unsupported_requests_get_error_status() {
        assert_eq!(status(&get(PORT_COUNTERS)), Some(0));
        assert_eq!(status(&get(0x0010)), Some(STATUS_NO_SUCH_ATTRIBUTE));
        let mut request = get(PORT_COUNTERS);
        request[ATTRIBUTE + 1] = 2;
        assert_eq!(status(&request), Some(STATUS_BAD_VALUE));
        let mut request = get(PORT_COUNTERS);
        request[3] = METHOD_SET;
        assert_eq!(status(&request), Some(STATUS_NO_SUCH_ATTRIBUTE));
        let mut request = get(PORT_COUNTERS);
        request[2] = 2;
        assert_eq!(status(&request), Some(STATUS_BAD_VERSION));
    }

    #[test]
    fn non_requests_and_other_classes_are_ignored() {
        for method in [0x03, 0x05, 0x07, METHOD_GET_RESP, 0xff] {
            let mut request = get(PORT_COUNTERS);
            request[3] = method;
            assert_eq!(response_to(&request), None);
        }
        let mut request = get(PORT_COUNTERS);
        request[1] = 0x07;
        assert_eq!(response_to(&request), None);
    }
}
