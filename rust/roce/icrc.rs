// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC (ICRC) that protects every packet from end to end.
//!
//! It is the CRC-32 of Ethernet over the IP, UDP and InfiniBand headers and the padded payload. The
//! fields that a router or switch may change on the way are masked, that is, replaced by ones: ToS,
//! TTL and checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; and
//! the byte of the BTH that holds FECN and BECN. All other fields are covered as sent, which for
//! IPv4 includes the identification and the total length (C7-48, annex A17).
//!
//! The driver provides the CRC engine, because the kernel has a fast one: see [`Crc32`].

use core::marker::PhantomData;
use zerocopy::{
    FromBytes,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Bytes of an IPv4 header. RoCE v2 packets carry no options.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header. RoCE v2 packets carry no extension headers.
pub const IPV6_LEN: usize = 40;
/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;
/// Bytes of a base transport header.
const BTH_LEN: usize = 12;

/// State of the CRC after the stand-in for the link header that RoCE v2 does not have: eight bytes
/// of ones, from a start value of all ones.
const AFTER_LINK_HEADER: u32 = 0xdebb_20e3;

/// A CRC-32 engine: polynomial 0x04c11db7, least significant bit first, as `crc32_le()` of the
/// kernel.
pub trait Crc32 {
    /// Returns the state after `bytes`, given the state before them. Neither is inverted.
    fn update(crc: u32, bytes: &[u8]) -> u32;
}

/// Returns the ICRC of a linear packet over IPv4, from the IP header to the pad.
///
/// Returns `None` if the packet is too short for its headers. The masked fields are overwritten
/// temporarily, so that the engine is called only once.
#[inline]
pub fn of_ipv4<C: Crc32>(packet: &mut [u8]) -> Option<[u8; 4]> {
    of::<C, IPV4_LEN>(packet, PseudoHeader::mask_ipv4)
}

/// Returns the ICRC of a packet over IPv6, as [`of_ipv4`] does.
#[inline]
pub fn of_ipv6<C: Crc32>(packet: &mut [u8]) -> Option<[u8; 4]> {
    of::<C, IPV6_LEN>(packet, PseudoHeader::mask_ipv6)
}

#[inline]
fn of<C: Crc32, const IP: usize>(
    packet: &mut [u8],
    mask: impl FnOnce(&mut PseudoHeader<IP>),
) -> Option<[u8; 4]> {
    let (headers, _) = PseudoHeader::<IP>::mut_from_prefix(packet).ok()?;
    let kept = *headers;
    mask(headers);
    let icrc = Icrc::<C>::start(packet).finish();
    let (headers, _) = PseudoHeader::<IP>::mut_from_prefix(packet).ok()?;
    *headers = kept;
    Some(icrc)
}

/// The computation of an ICRC in several steps.
///
/// Start with the headers, feed the extension headers, payload and pad bytes in any number of
/// pieces, and finish.
#[derive(Debug)]
pub struct Icrc<C> {
    crc: u32,
    engine: PhantomData<C>,
}

impl<C: Crc32> Icrc<C> {
    /// Starts with the headers of a packet over IPv4.
    #[inline]
    pub fn ipv4(ip: &[u8; IPV4_LEN], udp: &[u8; UDP_LEN], bth: &[u8; BTH_LEN]) -> Self {
        let mut pseudo = PseudoHeader::new(*ip, udp, bth);
        pseudo.mask_ipv4();
        Self::start(pseudo.as_bytes())
    }

    /// Starts with the headers of a packet over IPv6.
    #[inline]
    pub fn ipv6(ip: &[u8; IPV6_LEN], udp: &[u8; UDP_LEN], bth: &[u8; BTH_LEN]) -> Self {
        let mut pseudo = PseudoHeader::new(*ip, udp, bth);
        pseudo.mask_ipv6();
        Self::start(pseudo.as_bytes())
    }

    #[inline]
    fn start(pseudo: &[u8]) -> Self {
        Self {
            crc: C::update(AFTER_LINK_HEADER, pseudo),
            engine: PhantomData,
        }
    }

    /// Adds the bytes that follow: extension headers, payload, pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.crc = C::update(self.crc, bytes);
    }

    /// Returns the four bytes of the ICRC, in the order of the wire.
    ///
    /// The specification writes the CRC as a big-endian number with swapped bytes; for a CRC that
    /// is computed least significant bit first that is plain little endian.
    #[inline]
    pub fn finish(self) -> [u8; 4] {
        (!self.crc).to_le_bytes()
    }
}

/// The headers that have masked bytes, contiguous so that the engine is called once for all of
/// them.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct PseudoHeader<const IP: usize> {
    ip: [u8; IP],
    udp: [u8; UDP_LEN],
    bth: [u8; BTH_LEN],
}

impl<const IP: usize> PseudoHeader<IP> {
    /// Joins the headers.
    #[inline]
    fn new(ip: [u8; IP], udp: &[u8; UDP_LEN], bth: &[u8; BTH_LEN]) -> Self {
        Self {
            ip,
            udp: *udp,
            bth: *bth,
        }
    }

    /// Masks the fields that do not depend on the version of IP.
    #[inline]
    fn mask_transport(&mut self) {
        // UDP checksum.
        self.udp[6] = 0xff;
        self.udp[7] = 0xff;
        // FECN, BECN and the adjacent reserved bits: resv8a of the original specification.
        self.bth[4] = 0xff;
    }
}

impl PseudoHeader<IPV4_LEN> {
    #[inline]
    fn mask_ipv4(&mut self) {
        self.mask_transport();
        // Type of service.
        self.ip[1] = 0xff;
        // Time to live.
        self.ip[8] = 0xff;
        // Header checksum.
        self.ip[10] = 0xff;
        self.ip[11] = 0xff;
    }
}

impl PseudoHeader<IPV6_LEN> {
    #[inline]
    fn mask_ipv6(&mut self) {
        self.mask_transport();
        // Traffic class and flow label: all of the first word but the version.
        self.ip[0] |= 0x0f;
        self.ip[1] = 0xff;
        self.ip[2] = 0xff;
        self.ip[3] = 0xff;
        // Hop limit.
        self.ip[7] = 0xff;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_icrc))]
mod tests {
    use super::*;

    /// A small, slow engine.
    struct TableCrc32;

    impl Crc32 for TableCrc32 {
        fn update(crc: u32, bytes: &[u8]) -> u32 {
            /// The CRC of each value of a nibble.
            const TABLE: [u32; 16] = [
                0x0000_0000,
                0x1db7_1064,
                0x3b6e_20c8,
                0x26d9_30ac,
                0x76dc_4190,
                0x6b6b_51f4,
                0x4db2_6158,
                0x5005_713c,
                0xedb8_8320,
                0xf00f_9344,
                0xd6d6_a3e8,
                0xcb61_b38c,
                0x9b64_c2b0,
                0x86d3_d2d4,
                0xa00a_e278,
                0xbdbd_f21c,
            ];

            fn half(crc: u32) -> u32 {
                let entry = TABLE.get((crc & 0xf) as usize).copied();
                (crc >> 4) ^ entry.unwrap_or_default()
            }

            bytes
                .iter()
                .fold(crc, |crc, byte| half(half(crc ^ u32::from(*byte))))
        }
    }

    /// The sample of the specification (volume 1, section 7.8.1): a packet without GRH, already
    /// masked, without its ICRC. Its text gives the result as 0x9625b75a, first byte first.
    const IBTA_SAMPLE: [u8; 52] = [
        0xf0, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0xff, 0x87, 0xb1,
        0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2,
        0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72,
        0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00,
    ];

    /// An RC SEND of 17 bytes over IPv4, made by scapy 2.8.0 (`scapy.contrib.roce`). No masked
    /// field is all ones.
    const SCAPY_IPV4: [u8; 64] = [
        0x45, 0x6a, 0x00, 0x40, 0x1f, 0x2e, 0x40, 0x00, 0x3d, 0x11, 0x88, 0xc1, 0xc0, 0xa8, 0x0a,
        0x01, 0xc0, 0xa8, 0x0a, 0x02, 0xc1, 0x23, 0x12, 0xb7, 0x00, 0x2c, 0x96, 0xe8, 0x04, 0xb0,
        0xff, 0xff, 0x80, 0x00, 0x12, 0x34, 0x80, 0xab, 0xcd, 0xef, 0x01, 0x02, 0x03, 0x04, 0x05,
        0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x00, 0x00, 0x00,
        0xa2, 0x52, 0x26, 0x64,
    ];

    /// An RC SEND of 16 bytes over IPv6, made by scapy 2.8.0.
    const SCAPY_IPV6: [u8; 80] = [
        0x6b, 0x45, 0x43, 0x21, 0x00, 0x28, 0x11, 0x3f, 0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x03, 0xf0, 0x0d, 0x12, 0xb7, 0x00,
        0x28, 0xc4, 0x50, 0x04, 0x00, 0x80, 0x01, 0x40, 0xfe, 0xdc, 0xba, 0x00, 0x00, 0x00, 0x01,
        0x73, 0x6f, 0x66, 0x74, 0x52, 0x6f, 0x43, 0x45, 0x69, 0x6e, 0x52, 0x75, 0x73, 0x74, 0x21,
        0x21, 0xe3, 0x50, 0xc7, 0x2a,
    ];

    /// Copies `N` bytes from `at` on.
    fn part<const N: usize>(packet: &[u8], at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&packet[at..at + N]);
        out
    }

    fn ipv4(packet: &[u8; 64]) -> [u8; 4] {
        let mut icrc =
            Icrc::<TableCrc32>::ipv4(&part(packet, 0), &part(packet, 20), &part(packet, 28));
        icrc.update(&packet[40..60]);
        icrc.finish()
    }

    fn ipv6(packet: &[u8; 80]) -> [u8; 4] {
        let mut icrc =
            Icrc::<TableCrc32>::ipv6(&part(packet, 0), &part(packet, 40), &part(packet, 48));
        icrc.update(&packet[60..76]);
        icrc.finish()
    }

    #[test]
    fn ibta_sample_packet() {
        let icrc = Icrc::<TableCrc32> {
            crc: TableCrc32::update(!0, &IBTA_SAMPLE),
            engine: PhantomData,
        };
        assert_eq!(icrc.finish(), [0x96, 0x25, 0xb7, 0x5a]);
    }

    #[test]
    fn initial_value_covers_dummy_lrh() {
        assert_eq!(TableCrc32::update(!0, &[0xff; 8]), AFTER_LINK_HEADER);
    }

    #[test]
    fn matches_scapy_packets() {
        assert_eq!(ipv4(&SCAPY_IPV4), SCAPY_IPV4[60..]);
        assert_eq!(ipv6(&SCAPY_IPV6), SCAPY_IPV6[76..]);
    }

    #[test]
    fn only_ipv4_variant_fields_are_masked() {
        const MASKED: [usize; 7] = [1, 8, 10, 11, 26, 27, 32];

        for at in 0..60 {
            let mut packet = SCAPY_IPV4;
            packet[at] ^= 0x10;
            let unchanged = ipv4(&packet) == SCAPY_IPV4[60..];
            assert_eq!(unchanged, MASKED.contains(&at));
        }
    }

    #[test]
    fn only_ipv6_variant_fields_are_masked() {
        const MASKED: [usize; 7] = [1, 2, 3, 7, 46, 47, 52];

        for at in 0..76 {
            // The version, in the upper half of byte 0, is not masked.
            let mut packet = SCAPY_IPV6;
            packet[at] ^= 0x10;
            let unchanged = ipv6(&packet) == SCAPY_IPV6[76..];
            assert_eq!(unchanged, MASKED.contains(&at));
        }
        let mut packet = SCAPY_IPV6;
        packet[0] ^= 0x0f;
        assert_eq!(ipv6(&packet), SCAPY_IPV6[76..]);
    }

    #[test]
    fn contiguous_packet_has_same_icrc_and_is_unmodified() {
        let mut packet = SCAPY_IPV4;
        let icrc = of_ipv4::<TableCrc32>(&mut packet[..60]);
        assert_eq!(
            icrc.as_ref().map(<[u8; 4]>::as_slice),
            Some(&SCAPY_IPV4[60..])
        );
        assert_eq!(packet, SCAPY_IPV4);

        let mut packet = SCAPY_IPV6;
        let icrc = of_ipv6::<TableCrc32>(&mut packet[..76]);
        assert_eq!(
            icrc.as_ref().map(<[u8; 4]>::as_slice),
            Some(&SCAPY_IPV6[76..])
        );
        assert_eq!(packet, SCAPY_IPV6);

        assert_eq!(of_ipv4::<TableCrc32>(&mut packet[..39]), None);
        assert_eq!(of_ipv6::<TableCrc32>(&mut packet[..59]), None);
        assert_eq!(packet, SCAPY_IPV6);
    }

    #[test]
    fn payload_may_be_split_anywhere() {
        let packet = &SCAPY_IPV4;
        for cut in 40..60 {
            let mut icrc =
                Icrc::<TableCrc32>::ipv4(&part(packet, 0), &part(packet, 20), &part(packet, 28));
            icrc.update(&packet[40..cut]);
            icrc.update(&packet[cut..60]);
            assert_eq!(icrc.finish(), SCAPY_IPV4[60..]);
        }
    }
}
