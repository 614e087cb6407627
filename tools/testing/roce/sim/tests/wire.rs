// SPDX-License-Identifier: GPL-2.0

//! Properties of the packet format.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select, //
};
use roce::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    requester::{
        RareHeader,
        Step,
        Transmit, //
    },
    responder::{
        ReadSegment,
        Reply,
        ReplyKind, //
    },
    wire::{
        pad_for,
        Aeth,
        AtomicEth,
        Deth,
        Feth,
        Packet,
        Reth,
        Syndrome,
        TxPacket,
        ICRC_LEN,
        MAX_HEADER_LEN, //
    },
};

/// Checks that the offsets and lengths of a packet are within it.
fn check(pkt: &Packet<'_>, bytes: &[u8]) {
    assert_eq!(pkt.payload_offset(), pkt.opcode().header_len());
    let end = pkt.payload_offset() + pkt.payload_len() as usize;
    assert_eq!(end + usize::from(pkt.pad()) + ICRC_LEN, bytes.len());
    assert_eq!(pkt.reth().is_some(), pkt.opcode().has_reth());
    assert_eq!(pkt.aeth().is_some(), pkt.opcode().has_aeth());
    assert_eq!(pkt.imm().is_some(), pkt.opcode().has_immdt());
    assert_eq!(pkt.deth().is_some(), pkt.opcode().has_deth());
    assert_eq!(pkt.feth().is_some(), pkt.opcode().has_feth());
    assert_eq!(pkt.atomic().is_some(), pkt.opcode().has_atomic());
    assert_eq!(pkt.found().is_some(), pkt.opcode().has_atomic_ack());
    assert_eq!(pkt.ieth().is_some(), pkt.opcode().has_ieth());
}

/// Appends payload, pad and ICRC.
fn finish(head: &[u8], len: u32) -> Vec<u8> {
    let tail = len as usize + usize::from(pad_for(len)) + ICRC_LEN;
    let mut bytes = head.to_vec();
    bytes.resize(head.len() + tail, 0xa5);
    bytes
}

fn requests() -> Vec<Opcode> {
    let all = Opcode::ALL.iter().copied();
    all.filter(|opcode| opcode.is_request()).collect()
}

prop_compose! {
    fn transmit()(
        opcode in select(requests()),
        psn in any::<u32>(),
        flags in any::<[bool; 2]>(),
        len in 0u32..4096,
        words in any::<[u32; 6]>(),
        va in any::<u64>(),
        imm in any::<[u8; 4]>(),
    ) -> Transmit {
        Transmit {
            slot: 0,
            opcode,
            psn: Psn::new(psn),
            ack_req: flags[0],
            solicited: flags[1],
            offset: 0,
            len: match opcode.operation() {
                Operation::ReadRequest | Operation::Atomic | Operation::Flush => 0,
                _ => len,
            },
            reth: opcode.has_reth().then_some(Reth {
                va,
                rkey: Rkey::new(words[0]),
                len: words[1],
            }),
            imm: opcode.has_immdt().then_some(imm),
            rare: if opcode.has_feth() {
                RareHeader::Feth(Feth::new(1 + imm[0] % 3, imm[1] % 2).unwrap_or_default())
            } else if opcode.has_atomic() {
                RareHeader::Atomic(AtomicEth {
                    va,
                    rkey: Rkey::new(words[0]),
                    swap_add: u64::from(words[2]) << 32 | u64::from(words[3]),
                    compare: u64::from(words[4]) << 32 | u64::from(words[5]),
                })
            } else if opcode.has_ieth() {
                RareHeader::Ieth(Rkey::new(words[5]))
            } else if opcode.has_deth() {
                RareHeader::Deth(Deth {
                    qkey: Qkey::new(words[2]),
                    src_qpn: Qpn::new(words[3]),
                })
            } else {
                RareHeader::None
            },
            dest_qpn: Qpn::new(words[4]),
            again: false,
            oversize: false,
            step: Step::default(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_bytes_parse_consistently(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(pkt) = Packet::parse(&bytes) {
            check(&pkt, &bytes);
        }
    }

    /// Random bytes are rarely a valid packet. These are valid most of the time.
    #[test]
    fn likely_packets_parse_consistently(
        opcode in select(Opcode::ALL),
        pad in 0u8..4,
        words in 0usize..40,
        mut bytes in vec(any::<u8>(), 200),
    ) {
        bytes[0] = opcode.raw();
        bytes[1] = (bytes[1] & 0xc0) | pad << 4;
        bytes.truncate(12 + words * 4);
        if let Ok(pkt) = Packet::parse(&bytes) {
            check(&pkt, &bytes);
        }
    }

    #[test]
    fn requests_round_trip(sent in transmit(), pkey in any::<u16>()) {
        let mut head = [0; MAX_HEADER_LEN];
        let written = sent.write_headers(&mut head).unwrap();
        prop_assert_eq!(&head[2..4], &[0xff; 2]);
        head[2..4].copy_from_slice(&pkey.to_be_bytes());
        let bytes = finish(&head[..written], sent.len);
        let pkt = Packet::parse(&bytes).unwrap();
        check(&pkt, &bytes);
        prop_assert_eq!(pkt.opcode(), sent.opcode);
        prop_assert_eq!(pkt.psn(), sent.psn);
        prop_assert_eq!(pkt.pkey().get(), pkey);
        prop_assert_eq!(pkt.dest_qpn(), sent.dest_qpn);
        prop_assert_eq!(pkt.ack_req(), sent.ack_req);
        prop_assert_eq!(pkt.solicited(), sent.solicited);
        prop_assert_eq!(pkt.payload_len(), sent.len);
        prop_assert_eq!(pkt.reth(), sent.reth);
        prop_assert_eq!(pkt.imm(), sent.imm);
        let rare = [
            pkt.deth().map(RareHeader::Deth),
            pkt.feth().map(RareHeader::Feth),
            pkt.atomic().map(RareHeader::Atomic),
            pkt.ieth().map(RareHeader::Ieth),
        ];
        let rare: Vec<_> = rare.into_iter().flatten().collect();
        let expected = match sent.rare {
            RareHeader::None => vec![],
            header => vec![header],
        };
        prop_assert_eq!(rare, expected);
        // A buffer that is too short is not written beyond its end.
        let short = head.get_mut(..written - 1).unwrap();
        prop_assert_eq!(sent.write_headers(short), None);
    }

    #[test]
    fn replies_round_trip(
        psn in any::<u32>(),
        raw in any::<u8>(),
        msn in 0u32..1 << 24,
        kind in select(&[ReplyKind::Acknowledge, ReplyKind::Found(0), ReplyKind::Done][..]),
        found in any::<u64>(),
    ) {
        let (kind, opcode, found) = match kind {
            ReplyKind::Acknowledge => (kind, Opcode::RcAcknowledge, None),
            ReplyKind::Found(_) => {
                (ReplyKind::Found(found), Opcode::RcAtomicAcknowledge, Some(found))
            }
            ReplyKind::Done => (kind, Opcode::RcReadResponseOnly, None),
        };
        let reply = Reply {
            kind,
            psn: Psn::new(psn),
            syndrome: Syndrome::parse(raw),
            msn,
            dest_qpn: Qpn::new(9),
        };
        let mut head = [0; MAX_HEADER_LEN];
        let written = reply.write_headers(&mut head).unwrap();
        let bytes = finish(&head[..written], 0);
        let pkt = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(pkt.opcode(), opcode);
        prop_assert_eq!(pkt.found(), found);
        prop_assert_eq!(pkt.psn(), reply.psn);
        prop_assert_eq!(pkt.aeth(), Some(Aeth { syndrome: reply.syndrome, msn }));
    }

    #[test]
    fn read_responses_round_trip(
        kind in 0x0du8..=0x10, psn in any::<u32>(), len in 0u32..4096
    ) {
        let opcode = Opcode::parse(kind).unwrap();
        let segment = ReadSegment {
            opcode,
            psn: Psn::new(psn),
            rkey: Rkey::new(1),
            va: 0,
            len,
            rest: len,
            aeth: opcode.has_aeth().then_some(Aeth { syndrome: Syndrome::ACK, msn: 5 }),
            dest_qpn: Qpn::new(9),
            again: false,
        };
        let mut head = [0; MAX_HEADER_LEN];
        let written = segment.write_headers(&mut head).unwrap();
        let bytes = finish(&head[..written], len);
        let pkt = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(pkt.opcode(), opcode);
        prop_assert_eq!(pkt.aeth(), segment.aeth);
        prop_assert_eq!(pkt.payload_len(), len);
    }
}
