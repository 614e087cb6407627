// SPDX-License-Identifier: GPL-2.0

//! Fixtures for the tests of both halves, and the types that most tests use: `use testutil::*`.

use core::ops::{
    Deref,
    DerefMut, //
};

pub(crate) use crate::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Transport, //
    },
    psn::Psn,
    qp::QpAccess,
    requester::{
        Expired,
        PostError,
        RareHeader,
        Requester,
        Response,
        ResponseKind,
        SendParams,
        Slot,
        Transmit,
        MIN_RTO_NS, //
    },
    responder::{
        AsyncEvent,
        Outcome,
        ReadSegment,
        RecvParams,
        RecvQueue,
        Reply,
        ReplyKind,
        Responder,
        Verdict, //
    },
    time::Instant,
    wire::{
        pad_for,
        Aeth,
        Feth,
        NakCode,
        Packet,
        Reth,
        Syndrome,
        TxPacket,
        ICRC_LEN, //
    },
    wr::{
        MemError,
        SendOp,
        SendWr,
        Status, //
    }, //
};

/// The path MTU in the tests.
pub(crate) const MTU: u32 = 256;

/// An arbitrary time.
pub(crate) const NOW: Instant = Instant::from_ns(1_000);

/// The retransmission timeout of all tests.
pub(crate) const TIMEOUT_NS: u64 = 4_096;

/// A packet whose payload is all zero.
pub(crate) struct Frame {
    bytes: [u8; 320],
    len: usize,
}

impl Frame {
    /// Makes a packet.
    pub(crate) fn new(packet: &impl TxPacket) -> Frame {
        let mut bytes = [0; 320];
        let header_len = packet.write_headers(&mut bytes).unwrap_or_default();
        let payload = packet.payload_len();
        let body = (payload + u32::from(pad_for(payload))) as usize;
        Frame {
            bytes,
            len: header_len + body + ICRC_LEN,
        }
    }

    /// Makes a reply to a request.
    pub(crate) fn reply(kind: ReplyKind, psn: u32, syndrome: Syndrome) -> Frame {
        Frame::new(&Reply {
            kind,
            psn: Psn::new(psn),
            syndrome,
            msn: 0,
            dest_qpn: Qpn::new(1),
        })
    }

    /// Makes an acknowledgment.
    pub(crate) fn ack(psn: u32, syndrome: Syndrome) -> Frame {
        Frame::reply(ReplyKind::Acknowledge, psn, syndrome)
    }

    /// Returns the packet with the request for an acknowledgment, which is the bit above the PSN.
    pub(crate) fn with_ack_request(&self) -> Frame {
        let mut bytes = self.bytes;
        bytes[8] |= 0x80;
        Frame {
            bytes,
            len: self.len,
        }
    }

    /// Returns the parsed packet.
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes[..self.len]).unwrap()
    }
}

/// A receive queue with some work requests of one size.
pub(crate) struct Recvs {
    pub(crate) left: usize,
    size: u32,
}

impl Recvs {
    /// Makes a queue of `left` work requests of `size` bytes each.
    pub(crate) fn new(left: usize, size: u32) -> Recvs {
        Recvs { left, size }
    }
}

impl RecvQueue for Recvs {
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        self.left = self.left.checked_sub(1)?;
        Some(Ok(self.size))
    }
}

/// A receive queue with work requests whose buffers cannot be used.
pub(crate) struct BadRecvs;

impl RecvQueue for BadRecvs {
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        Some(Err(MemError::Protection))
    }
}

/// Makes a signalled work request.
pub(crate) fn wr(op: SendOp, length: u32) -> SendWr {
    let mut wr = SendWr {
        wr_id: u64::from(length),
        op,
        length,
        va: 0x1000,
        rkey: Rkey::new(7),
        imm: [1, 2, 3, 4],
        signalled: true,
        ..SendWr::default()
    };
    match op {
        SendOp::Send | SendOp::SendImm => wr.set_datagram(Qpn::new(0x22), Qkey::new(0x33)),
        SendOp::Flush => wr.set_feth(Feth::default()),
        _ => {}
    }
    wr
}

/// Makes an unsignalled SEND of zero bytes.
pub(crate) fn unsignalled() -> SendWr {
    SendWr {
        signalled: false,
        ..wr(SendOp::Send, 0)
    }
}

/// The slots of a send half, up to twelve.
pub(crate) struct Slots {
    all: [Slot; 12],
    len: usize,
}

impl Slots {
    pub(crate) fn new(len: usize) -> Slots {
        Slots {
            all: Default::default(),
            len,
        }
    }
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        &self.all[..self.len]
    }
}

impl DerefMut for Slots {
    fn deref_mut(&mut self) -> &mut [Slot] {
        &mut self.all[..self.len]
    }
}

/// A send half that owns its slots.
pub(crate) type Half = Requester<Slots>;

/// Returns the attributes of a send half in the tests.
pub(crate) fn send_params() -> SendParams {
    SendParams {
        mtu: MTU,
        dest_qpn: Qpn::new(0x44),
        src_qpn: Qpn::new(0x55),
        ack_timeout: core::num::NonZero::new(TIMEOUT_NS),
        retry_cnt: 1,
        rnr_retry: 1,
        max_rd_atomic: 2,
        has_ecn: true,
    }
}

/// Sets the attributes of a send half to those in the tests, except for a change.
pub(crate) fn adjust(rc: &mut Half, change: impl FnOnce(&mut SendParams)) {
    let mut params = send_params();
    change(&mut params);
    rc.set_params(&params);
}

/// A timeout that leaves room for many probes, in ns.
pub(crate) const LONG_TIMEOUT_NS: u64 = 64 * MIN_RTO_NS;

/// Makes a requester that has measured a round-trip time of 0 and has sent PSN 0.
pub(crate) fn measured(slots: usize) -> Half {
    let mut rc = requester(Transport::Rc, slots);
    adjust(&mut rc, |params| {
        params.ack_timeout = core::num::NonZero::new(LONG_TIMEOUT_NS)
    });
    post(&mut rc, &[wr(SendOp::Send, 0)]);
    assert!(send(&mut rc).is_some());
    assert_eq!(rc.next_timeout(), Some(NOW.after(LONG_TIMEOUT_NS)));
    acknowledge(&mut rc, 0, Syndrome::ACK);
    assert_eq!(rc.next_timeout(), None);
    rc
}

/// Sends up to four packets, and returns the PSN and the AckReq bit of each.
pub(crate) fn sent(rc: &mut Half) -> [Option<(u32, bool)>; 4] {
    [(); 4].map(|()| send(rc).map(|sent| (sent.psn.get(), sent.ack_req)))
}

/// Returns the attributes of a receive half in the tests.
pub(crate) fn recv_params() -> RecvParams {
    RecvParams {
        mtu: MTU,
        dest_qpn: Qpn::new(0x44),
        min_rnr_timer: 3,
        qkey: Qkey::new(0x33),
        access: QpAccess::from_bits(
            QpAccess::REMOTE_WRITE
                | QpAccess::REMOTE_READ
                | QpAccess::REMOTE_ATOMIC
                | QpAccess::FLUSH_GLOBAL,
        )
        .unwrap_or_default(),
        max_dest_rd_atomic: 2,
    }
}

/// Makes a send half with `slots` slots that starts at PSN 0.
pub(crate) fn requester(transport: Transport, slots: usize) -> Half {
    let mut requester = Requester::new(transport, Slots::new(slots));
    requester.set_params(&send_params());
    requester.set_psn(crate::psn::Psn::new(0));
    requester
}

/// Makes a send half without a retransmission timer.
pub(crate) fn untimed(slots: usize) -> Half {
    let mut rc = requester(Transport::Rc, slots);
    adjust(&mut rc, |params| params.ack_timeout = None);
    rc
}

/// Sends the next packet, and returns it.
pub(crate) fn send(rc: &mut Half) -> Option<Transmit> {
    transmit_at(rc, NOW)
}

/// Sends the next packet, which must exist, and returns it as the peer receives it.
pub(crate) fn next(rc: &mut Half) -> Frame {
    Frame::new(&send(rc).unwrap())
}

/// Sends the next packet at a time; returns false if there is none.
pub(crate) fn send_at(rc: &mut Half, now: Instant) -> bool {
    transmit_at(rc, now).is_some()
}

fn transmit_at(rc: &mut Half, now: Instant) -> Option<Transmit> {
    let transmit = rc.poll_transmit()?;
    rc.transmitted(now, &transmit);
    Some(transmit)
}

/// Sends all packets, and returns their number.
pub(crate) fn send_all(rc: &mut Half) -> usize {
    let mut count = 0;
    while send(rc).is_some() {
        count += 1;
    }
    count
}

/// Sends the next packet, which must be a READ request.
///
/// Returns its PSN and the number of responses that it requests.
pub(crate) fn next_read(rc: &mut Half) -> Option<(u32, u32)> {
    let sent = send(rc)?;
    Some((sent.psn.get(), sent.reth?.len.div_ceil(MTU)))
}

/// Returns the range of the only packet to send, a READ request; see [`next_read`].
pub(crate) fn requested(rc: &mut Half) -> Option<(u32, u32)> {
    let read = next_read(rc);
    assert_eq!(rc.poll_transmit(), None);
    read
}

/// Posts work requests, for which there must be slots.
pub(crate) fn post(rc: &mut Half, wrs: &[SendWr]) {
    for wr in wrs {
        assert!(rc.post(*wr).is_ok());
    }
}

/// Posts work requests of `length` bytes each, for which there must be slots.
pub(crate) fn post_ops(rc: &mut Half, ops: &[SendOp], length: u32) {
    for op in ops {
        post(rc, &[wr(*op, length)]);
    }
}

/// Handles a response that arrives at `now`, and does not keep it.
fn respond_at(rc: &mut Half, now: Instant, frame: &Frame) -> Response {
    let response = rc.on_response(now, &frame.packet());
    if response.is_early {
        rc.not_kept(frame.packet().psn());
    }
    response
}

/// Handles a response, and does not keep it.
pub(crate) fn respond(rc: &mut Half, frame: &Frame) -> Response {
    respond_at(rc, NOW, frame)
}

/// Handles the explicit response that is expected next, and places its data.
pub(crate) fn take(rc: &mut Half, frame: &Frame) {
    let response = respond(rc, frame);
    assert!(response.place.is_some(), "{response:?}");
    rc.placed(NOW, Ok(()));
}

/// Handles an acknowledgment, or a NAK, that arrives at `now`.
pub(crate) fn acknowledge_at(
    rc: &mut Half,
    now: Instant,
    psn: u32,
    syndrome: Syndrome,
) -> ResponseKind {
    respond_at(rc, now, &Frame::ack(psn, syndrome)).outcome
}

/// Handles an acknowledgment, or a NAK.
pub(crate) fn acknowledge(rc: &mut Half, psn: u32, syndrome: Syndrome) -> ResponseKind {
    acknowledge_at(rc, NOW, psn, syndrome)
}

/// Returns the status of the next completion, if there is one.
pub(crate) fn status(rc: &mut Half) -> Option<Status> {
    rc.poll_completion().map(|completion| completion.status)
}

/// Makes the first `N` packets of work requests, as the peer receives them.
pub(crate) fn frames<const N: usize>(transport: Transport, wrs: &[SendWr]) -> [Frame; N] {
    let mut tx = requester(transport, N);
    post(&mut tx, wrs);
    [(); N].map(|()| next(&mut tx))
}

/// Makes the first packet of an RC request, with PSN 0.
pub(crate) fn transmit(wr: SendWr) -> Transmit {
    let mut rc = requester(Transport::Rc, 1);
    post(&mut rc, &[wr]);
    rc.poll_transmit().unwrap()
}

/// Makes a READ request with PSN 0.
pub(crate) fn read(length: u32) -> Transmit {
    transmit(wr(SendOp::Read, length))
}

/// Makes a receive half.
pub(crate) fn responder_of(transport: Transport) -> Responder {
    let mut responder = Responder::new(transport);
    responder.set_params(&recv_params());
    responder
}

/// Makes an RC receive half.
pub(crate) fn responder() -> Responder {
    responder_of(Transport::Rc)
}

/// Handles a request that consumes no receive request.
pub(crate) fn request(rx: &mut Responder, transmit: &Transmit) -> Verdict {
    let mut rq = Recvs::new(0, 0);
    rx.on_request(&Frame::new(transmit).packet(), &mut rq)
}

/// Returns the outcome of a request that must have been refused.
pub(crate) fn failure(verdict: Verdict) -> Outcome {
    let outcome = match verdict {
        Verdict::Fail(outcome) => Some(outcome),
        _ => None,
    };
    outcome.unwrap()
}

/// Returns whether a request was refused as invalid.
pub(crate) fn refused(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fail(outcome)
        if outcome.error
            && outcome.event == Some(AsyncEvent::RequestError)
            && outcome.reply.map(|reply| reply.syndrome)
                == Some(Syndrome::Nak(NakCode::InvalidRequest)))
}

/// Starts a READ, and sends all responses.
pub(crate) fn respond_all(rx: &mut Responder) {
    assert_eq!(rx.start_read(Ok(())), None);
    while rx.poll_response().is_some() {
        rx.response_sent();
    }
}

/// Sends all responses, and compares opcodes and PSNs.
pub(crate) fn check_responses(rx: &mut Responder, expected: &[(Opcode, u32)]) {
    for &(opcode, psn) in expected {
        let segment = rx.poll_response();
        let found = segment.map(|segment| (segment.opcode, segment.psn.get()));
        assert_eq!(found, Some((opcode, psn)));
        rx.response_sent();
    }
    assert_eq!(rx.poll_response(), None);
    assert!(!rx.read_in_progress());
}

/// Returns a READ response packet from the peer.
pub(crate) fn read_response(opcode: Opcode, psn: u32, len: u32) -> Frame {
    let segment = ReadSegment {
        opcode,
        psn: Psn::new(psn),
        rkey: Rkey::default(),
        va: 0,
        len,
        rest: len,
        aeth: opcode.has_aeth().then_some(Aeth {
            syndrome: Syndrome::ACK,
            msn: 0,
        }),
        dest_qpn: Qpn::new(1),
        again: false,
    };
    Frame::new(&segment)
}

/// Returns a READ response packet with as much data as fits.
pub(crate) fn piece(opcode: Opcode, psn: u32) -> Frame {
    read_response(opcode, psn, MTU)
}
