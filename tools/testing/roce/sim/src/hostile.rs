// SPDX-License-Identifier: GPL-2.0

//! A hostile peer and a hostile consumer.
//!
//! [`drive`] interprets a string of bytes as a list of actions on the two halves of a queue pair.
//! The property tests pass random bytes, the fuzz targets evolved ones. For any input, the code
//! must not panic (the tests run with overflow checks, like the kernel), requests must complete in
//! order and once, and no byte may be placed or read outside of the given memory.

use std::num::NonZero;

use roce::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Operation,
        Transport, //
    },
    psn::Psn,
    qp::QpAccess,
    requester::{
        RareHeader,
        Requester,
        SendParams,
        Slot,
        Step,
        Transmit, //
    },
    responder::{
        Action,
        Place,
        ReadRequest,
        RecvParams,
        RecvQueue,
        Responder,
        Verdict, //
    },
    time::Instant,
    wire::{
        pad_for,
        AtomicEth,
        Deth,
        Feth,
        Packet,
        Reth,
        TxPacket,
        ICRC_LEN,
        MAX_HEADER_LEN,
        MAX_MESSAGE_LEN, //
    },
    wr::{
        MemError,
        SendOp,
        SendWr,
        Status, //
    }, //
};

const MTU: u32 = 256;
const SLOTS: usize = 5;
const QKEY: Qkey = Qkey::new(0x1111);

/// Executes the actions in `data` on a queue pair.
pub fn drive(transport: Transport, data: &[u8]) {
    let mut input = Input(data);
    let mut target = Target::new(transport);
    while let Some(action) = input.byte() {
        target.act(action, &mut input);
        target.complete();
        assert!(target.requester.snapshot().taken <= SLOTS);
    }
}

/// Bytes that are read one after the other. An exhausted input reads as zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn u8(&mut self) -> u8 {
        self.byte().unwrap_or_default()
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes([self.u8(), self.u8(), self.u8(), self.u8()])
    }

    /// Returns a length that is small, close to a limit, or arbitrary.
    fn length(&mut self) -> u32 {
        match self.u8() {
            0..=99 => u32::from(self.u8()),
            100..=179 => MTU * u32::from(self.u8() % 8),
            180..=219 => MAX_MESSAGE_LEN.wrapping_sub(u32::from(self.u8())),
            _ => self.u32(),
        }
    }

    fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }
}

/// The receive queue: the number of receive requests, and their size.
struct Recvs {
    left: u8,
    size: u32,
    bad: bool,
}

impl RecvQueue for Recvs {
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        self.left = self.left.checked_sub(1)?;
        Some(if self.bad {
            Err(MemError::Protection)
        } else {
            Ok(self.size)
        })
    }
}

struct Target {
    transport: Transport,
    requester: Requester<Vec<Slot>>,
    responder: Responder,
    recvs: Recvs,
    now: u64,
    posted: u64,
    completed: u64,
}

impl Target {
    fn new(transport: Transport) -> Target {
        let mut requester = Requester::new(transport, vec![Slot::default(); SLOTS]);
        requester.set_params(&SendParams {
            mtu: MTU,
            ack_timeout: NonZero::new(10),
            retry_cnt: 3,
            rnr_retry: 3,
            max_rd_atomic: 2,
            has_ecn: true,
            ..SendParams::default()
        });
        requester.set_psn(Psn::new(0x00ff_fff0));
        let mut responder = Responder::new(transport);
        responder.set_params(&RecvParams {
            mtu: MTU,
            qkey: QKEY,
            access: QpAccess::from_bits(
                QpAccess::REMOTE_WRITE
                    | QpAccess::REMOTE_READ
                    | QpAccess::REMOTE_ATOMIC
                    | QpAccess::FLUSH_GLOBAL
                    | QpAccess::FLUSH_PERSISTENT,
            )
            .unwrap_or_default(),
            max_dest_rd_atomic: 2,
            ..RecvParams::default()
        });
        responder.set_epsn(Psn::new(0x00ff_fff0));
        Target {
            transport,
            requester,
            responder,
            recvs: Recvs {
                left: 0,
                size: 0,
                bad: false,
            },
            now: 0,
            posted: 0,
            completed: 0,
        }
    }

    fn act(&mut self, action: u8, input: &mut Input<'_>) {
        let now = Instant::from_ns(self.now);
        match action % 16 {
            0..=2 => self.post(input),
            3..=5 => {
                for _ in 0..input.u8() {
                    let Some(transmit) = self.requester.poll_transmit() else {
                        break;
                    };
                    self.requester.transmitted(now, &transmit);
                }
                if self.requester.poll_local().is_some() {
                    let failed = input.u8() < 10;
                    let result = if failed { Err(Status::MwBind) } else { Ok(()) };
                    self.requester.local_done(result);
                    // A second report must have no effect.
                    self.requester.local_done(result);
                }
            }
            6 | 7 => self.respond(input),
            8..=10 => self.request(input),
            11 => {
                self.recvs = Recvs {
                    left: input.u8() % 4,
                    size: input.length(),
                    bad: input.u8() < 10,
                }
            }
            12 => {
                self.now += u64::from(input.u8()) * 1_000;
                self.requester.on_timeout(Instant::from_ns(self.now));
            }
            13 => self
                .requester
                .local_error(u16::from(input.u8() % 8), Status::LocProt),
            14 => match input.u8() {
                0..=119 => self.requester.drain(),
                120..=239 => self.requester.resume(),
                240..=247 => self.requester.flush(),
                _ => {
                    self.requester.reset();
                    self.requester.set_psn(Psn::new(input.u32()));
                    self.completed = self.posted;
                }
            },
            _ => {
                if let Ok(pkt) = Packet::parse(input.0) {
                    self.deliver(&pkt, input.0.len());
                }
            }
        }
    }

    fn post(&mut self, input: &mut Input<'_>) {
        let ops = [
            SendOp::Send,
            SendOp::SendImm,
            SendOp::Write,
            SendOp::WriteImm,
            SendOp::Read,
            SendOp::SendInv,
            SendOp::CompareSwap,
            SendOp::FetchAdd,
            SendOp::AtomicWrite,
            SendOp::Flush,
            SendOp::LocalInv,
            SendOp::BindMw,
        ];
        let wr = SendWr {
            wr_id: self.posted,
            op: ops[usize::from(input.u8()) % ops.len()],
            length: input.length(),
            va: u64::from(input.u32()) << 32,
            fence: input.flag(),
            ..SendWr::default()
        };
        if self.requester.post(wr).is_ok() {
            self.posted += 1;
        }
    }

    /// Polls completions, which must be those of the oldest requests, each once.
    fn complete(&mut self) {
        while let Some(completion) = self.requester.poll_completion() {
            assert_eq!(completion.wr_id, self.completed);
            self.completed += 1;
        }
        let posted = (self.posted - self.completed) as usize;
        assert_eq!(self.requester.snapshot().taken, posted);
        self.requester.take_error();
    }

    /// Handles a forged response with a PSN near those in flight.
    fn respond(&mut self, input: &mut Input<'_>) {
        let opcodes = [
            Opcode::RcAcknowledge,
            Opcode::RcReadResponseFirst,
            Opcode::RcReadResponseMiddle,
            Opcode::RcReadResponseLast,
            Opcode::RcReadResponseOnly,
            Opcode::RcAtomicAcknowledge,
        ];
        let opcode = opcodes[usize::from(input.u8()) % opcodes.len()];
        let back = if input.flag() {
            u32::from(input.u8() % 16)
        } else {
            input.u32()
        };
        let psn = self.requester.next_psn().sub(back);
        let mut frame = frame(opcode, psn, input, MTU);
        if opcode.has_aeth() {
            // Most of the time, use one of the usual syndromes.
            frame[12] = match input.u8() {
                0..=149 => 0x1f,
                150..=199 => 0x60,
                200..=219 => 0x21,
                _ => input.u8(),
            };
        }
        if let Ok(pkt) = Packet::parse(&frame) {
            self.deliver(&pkt, frame.len());
        }
    }

    /// Handles a forged request with a PSN near the expected one.
    fn request(&mut self, input: &mut Input<'_>) {
        let opcode = Opcode::ALL[usize::from(input.u8()) % Opcode::ALL.len()];
        let psn = match input.u8() {
            0..=199 => self.responder.epsn(),
            200..=239 => self.responder.epsn().sub(u32::from(input.u8() % 8)),
            _ => self.responder.epsn().add(input.u32()),
        };
        let frame = frame(opcode, psn, input, MTU);
        if let Ok(pkt) = Packet::parse(&frame) {
            self.deliver(&pkt, frame.len());
        }
    }

    fn deliver(&mut self, pkt: &Packet<'_>, total: usize) {
        let end = pkt.payload_offset() + pkt.payload_len() as usize + usize::from(pkt.pad());
        assert_eq!(end + ICRC_LEN, total);

        let now = Instant::from_ns(self.now);
        if self.requester.is_kept_due() {
            self.requester.took_kept(None);
        }
        let response = self.requester.on_response(now, pkt);
        if response.is_early {
            match self.requester.may_keep(pkt.psn()) && self.posted % 4 != 0 {
                true => self.requester.kept(pkt.psn()),
                false => self.requester.not_kept(pkt.psn()),
            }
        }
        if let Some(place) = response.place {
            match place.found {
                Some(_) => assert_eq!(pkt.payload_len(), 0),
                None => assert_eq!(place.len, pkt.payload_len()),
            }
            match self.posted % 16 {
                0 => self.requester.placed(now, Err(Status::LocProt)),
                1 => {}
                _ => self.requester.placed(now, Ok(())),
            }
        }
        if self.responder.is_kept_due() {
            self.responder.took_kept(None);
            let _ = self.responder.report_gap();
        }
        let size = self.recvs.size;
        let held = self.responder.snapshot().held.is_some();
        match self.responder.on_request(pkt, &mut self.recvs) {
            Verdict::Drop(_) | Verdict::Reply(_) => {}
            Verdict::Early(_) => {
                if self.responder.may_keep(pkt.psn()) {
                    self.responder.kept(pkt.psn());
                }
            }
            Verdict::Fail(outcome) => {
                assert!(outcome.error || self.transport == Transport::Ud);
            }
            Verdict::Place(place) => self.place(pkt, place, (!held).then_some(size)),
            Verdict::Read(request) => self.read(request),
            Verdict::Execute(command) => {
                let word = !matches!(command.action, Action::Flush { .. });
                assert!(!word || command.va % 8 == 0);
                let allowed = command.rkey.get() % 8 != 7;
                let outcome = self.responder.executed(if allowed {
                    Ok(command.va)
                } else {
                    Err(MemError::Protection)
                });
                assert!(outcome.error != allowed && outcome.reply.is_some());
            }
        }
        if self.responder.snapshot().held.is_some() && self.transport == Transport::Ud {
            panic!("a datagram left a receive WQE behind");
        }
    }

    fn place(&mut self, pkt: &Packet<'_>, place: Place, size: Option<u32>) {
        let result = match place {
            Place::Recv { offset, len } => {
                assert_eq!(len, pkt.payload_len());
                if let Some(size) = size {
                    assert!(offset.checked_add(len).is_some_and(|end| end <= size));
                }
                Ok(())
            }
            Place::Remote {
                rkey,
                va,
                len,
                rest,
            } => {
                assert_eq!(len, pkt.payload_len());
                assert!(rest >= len && rest <= MAX_MESSAGE_LEN);
                let fits = va.checked_add(u64::from(rest)).is_some();
                if rkey.get() % 8 != 7 && fits {
                    Ok(())
                } else {
                    Err(MemError::Protection)
                }
            }
        };
        self.responder.finish(result);
    }

    /// Sends some of the responses to a READ, of which there may be many.
    fn read(&mut self, request: ReadRequest) {
        let reth = request.reth;
        let end = reth.va.checked_add(u64::from(reth.len));
        let result = end.map(|_| ()).ok_or(MemError::Protection);
        self.responder.start_read(result);
        let mut next = reth.va;
        for _ in 0..64 {
            let Some(segment) = self.responder.poll_response() else {
                return;
            };
            assert_eq!(segment.va, next);
            next += u64::from(segment.len);
            assert!(end.is_some_and(|end| next <= end));
            self.responder.response_sent();
        }
        self.responder.response_failed(MemError::Protection);
    }
}

/// Makes a packet with valid lengths; everything else comes from the input.
fn frame(opcode: Opcode, psn: Psn, input: &mut Input<'_>, mtu: u32) -> Vec<u8> {
    let len = match input.u8() {
        0..=127 => mtu,
        _ => input.u32() % (mtu + 8),
    };
    let len = match opcode.operation() {
        Operation::Acknowledge
        | Operation::AtomicAck
        | Operation::ReadRequest
        | Operation::Atomic
        | Operation::Flush => 0,
        Operation::AtomicWrite if input.flag() => 8,
        _ => len,
    };
    let transmit = Transmit {
        slot: 0,
        opcode,
        psn,
        ack_req: input.flag(),
        solicited: false,
        offset: 0,
        len,
        reth: opcode.has_reth().then(|| Reth {
            va: u64::from(input.u32()) << (input.u8() % 33),
            rkey: Rkey::new(u32::from(input.u8())),
            len: if input.flag() { len } else { input.length() },
        }),
        // The content of headers that a request never has does not matter, only their size.
        imm: (opcode.has_immdt() || opcode.has_aeth()).then_some([0; 4]),
        rare: if opcode.has_feth() {
            RareHeader::Feth(Feth::new(input.u8() % 4, input.u8() % 3).unwrap_or_default())
        } else if opcode.has_atomic() {
            RareHeader::Atomic(AtomicEth {
                va: u64::from(input.u32()) << (input.u8() % 33),
                rkey: Rkey::new(u32::from(input.u8())),
                swap_add: 1,
                compare: 2,
            })
        } else if opcode.has_ieth() {
            RareHeader::Ieth(Rkey::new(u32::from(input.u8())))
        } else if opcode.has_deth() || opcode.has_atomic_ack() {
            RareHeader::Deth(Deth {
                qkey: QKEY,
                src_qpn: Qpn::new(2),
            })
        } else {
            RareHeader::None
        },
        dest_qpn: Qpn::new(3),
        again: false,
        oversize: false,
        step: Step::default(),
    };
    let mut head = [0; MAX_HEADER_LEN];
    let written = transmit.write_headers(&mut head);
    let mut bytes = head[..written.unwrap_or_default()].to_vec();
    let tail = len as usize + usize::from(pad_for(len)) + ICRC_LEN;
    bytes.resize(bytes.len() + tail, 0);
    bytes
}
