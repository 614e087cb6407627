// SPDX-License-Identifier: GPL-2.0

//! Responses to RDMA READs, new and duplicate (RC).

use zerocopy::network_endian::U32;

use super::{
    message::Message,
    resources::{
        Record,
        Records,
        SavedResponse, //
    },
    DropReason,
    Outcome,
    Pending,
    ReadRequest,
    Responder,
    Verdict, //
};
use crate::{
    ids::{
        Qpn,
        Rkey, //
    },
    opcode::{
        Opcode,
        Position, //
    },
    psn::Psn,
    qp::QpAccess,
    wire::{
        packets_for,
        Aeth,
        Bth,
        HeaderWriter,
        Packet,
        Reth,
        Syndrome,
        TxPacket,
        MAX_MESSAGE_LEN, //
    },
    wr::MemError, //
};

/// A READ response packet to send: its headers, and the source of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// The opcode.
    pub opcode: Opcode,
    /// The PSN.
    pub psn: Psn,
    /// The key of the memory region.
    pub rkey: Rkey,
    /// The address of the payload.
    pub va: u64,
    /// The length of the payload in bytes.
    pub len: u32,
    /// The length of the data of the READ from `va` on in bytes.
    pub rest: u32,
    /// The acknowledgment, if the packet carries one.
    pub aeth: Option<Aeth>,
    /// The QPN of the peer.
    pub dest_qpn: Qpn,
    /// True if the READ is a duplicate.
    pub again: bool,
}

impl TxPacket for ReadSegment {
    #[inline]
    fn opcode(&self) -> Opcode {
        self.opcode
    }

    #[inline]
    fn payload_len(&self) -> u32 {
        self.len
    }

    #[inline]
    fn write_headers(&self, buf: &mut [u8]) -> Option<usize> {
        let bth = Bth::new(self, self.dest_qpn, self.psn);
        let aeth = self.aeth.map(|aeth| U32::new(aeth.bits()));
        Some(HeaderWriter::new(buf, &bth)?.put_some(aeth)?.finish())
    }
}

/// The remaining responses to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    psn: Psn,
    rkey: Rkey,
    va: u64,
    remaining: u32,
    /// True if no response was sent yet.
    first: bool,
    /// True if the READ is a duplicate.
    again: bool,
    /// The MSN of the acknowledgments.
    msn: u32,
}

impl Stream {
    /// Makes the responses to the READ request with PSN `psn`.
    fn new(psn: Psn, reth: Reth, again: bool, msn: u32) -> Stream {
        Stream {
            psn,
            rkey: reth.rkey,
            va: reth.va,
            remaining: reth.len,
            first: true,
            again,
            msn,
        }
    }
}

impl<S: Records> Responder<S> {
    /// Handles a new READ request.
    pub(super) fn on_read(&mut self, pkt: &Packet<'_>) -> Verdict {
        let psn = pkt.psn();
        let Some(reth) = pkt.reth() else {
            return Verdict::Drop(DropReason::BadOpcode);
        };
        let is_valid = self.message == Message::None
            && self.params.access.allows(QpAccess::REMOTE_READ)
            && self.params.max_dest_rd_atomic > 0
            && reth.len <= MAX_MESSAGE_LEN;
        if !is_valid {
            return Verdict::Fail(self.invalid_request(psn));
        }
        self.request_read(psn, reth, false)
    }

    /// Handles a duplicate READ request, for all or part of the data of the original one.
    ///
    /// A duplicate beyond the original range is dropped, even if the key would allow it. A
    /// duplicate that arrives after the consumer has forbidden READs is dropped, too: it would read
    /// the present data.
    pub(super) fn on_read_again(&mut self, pkt: &Packet<'_>) -> Verdict {
        let psn = pkt.psn();
        if !self.params.access.allows(QpAccess::REMOTE_READ) {
            return Verdict::Drop(DropReason::Duplicate);
        }
        let (Some(reth), Some(record)) = (pkt.reth(), self.resources.find(psn)) else {
            return Verdict::Drop(DropReason::Duplicate);
        };
        let SavedResponse::Read(whole) = record.response else {
            return Verdict::Drop(DropReason::Duplicate);
        };
        let skipped = u64::from(record.first_psn.forward(psn)).wrapping_mul(self.params.mtu.into());
        let rest = u64::from(whole.len).saturating_sub(skipped);
        let same = reth.rkey == whole.rkey
            && reth.va == whole.va.wrapping_add(skipped)
            && u64::from(reth.len) <= rest
            && (reth.len > 0 || whole.len == 0);
        if !same {
            return Verdict::Drop(DropReason::Duplicate);
        }
        self.request_read(psn, reth, true)
    }

    fn request_read(&mut self, psn: Psn, reth: Reth, again: bool) -> Verdict {
        let request = ReadRequest { reth, again };
        self.pending = Pending::Read { psn, request };
        Verdict::Read(request)
    }

    /// Reports whether the memory that [`Verdict::Read`] names may be read.
    ///
    /// If so, [`Responder::poll_response`] returns the packets to send.
    pub fn start_read(&mut self, result: Result<(), MemError>) -> Option<Outcome> {
        let Pending::Read { psn, request } = self.pending else {
            return None;
        };
        self.pending = Pending::None;
        if let Err(error) = result {
            // A duplicate whose memory does not exist any more is probably a late copy, because the
            // consumer frees the memory when the peer has the data. If the peer does not have it,
            // it runs out of retries.
            return (!request.again).then(|| self.access_refused(psn, error));
        }
        let ReadRequest { reth, again } = request;
        if !again {
            let count = packets_for(reth.len, self.params.mtu);
            self.resources.remember(Record {
                first_psn: psn,
                count,
                opcode: Opcode::RcReadRequest,
                response: SavedResponse::Read(reth),
            });
            self.sequence.skip_to(psn.add(count));
            self.sequence.count_message();
            self.early.acknowledged();
        }
        self.stream = Some(Stream::new(psn, reth, again, self.sequence.msn()));
        self.established().map(|event| Outcome {
            event: Some(event),
            ..Outcome::default()
        })
    }

    /// Returns whether responses to a READ are being sent.
    #[inline]
    pub fn read_in_progress(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns the READ response to send now, if there is one.
    ///
    /// This does not change the state; see [`Responder::response_sent`].
    #[inline]
    pub fn poll_response(&self) -> Option<ReadSegment> {
        let stream = self.stream?;
        let len = self.segment_len(&stream);
        let position = match (stream.first, stream.remaining == len) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        let opcode = Opcode::read_response(position);
        Some(ReadSegment {
            opcode,
            psn: stream.psn,
            rkey: stream.rkey,
            va: stream.va,
            len,
            rest: stream.remaining,
            aeth: opcode.has_aeth().then_some(Aeth {
                syndrome: Syndrome::ACK,
                msn: stream.msn,
            }),
            dest_qpn: self.params.dest_qpn,
            again: stream.again,
        })
    }

    /// Reports that the response returned by [`Responder::poll_response`] was sent.
    #[inline]
    pub fn response_sent(&mut self) {
        let Some(stream) = self.stream else {
            return;
        };
        let len = self.segment_len(&stream);
        let remaining = stream.remaining.wrapping_sub(len);
        let psn = stream.psn.next();
        self.stream = if remaining > 0 {
            Some(Stream {
                psn,
                va: stream.va.wrapping_add(u64::from(len)),
                remaining,
                first: false,
                ..stream
            })
        } else if stream.again || psn == self.sequence.epsn() {
            None
        } else {
            self.next_taken_back(psn, stream.msn)
        };
    }

    /// Returns the responses to the READ with PSN `psn`, which were taken back, too.
    ///
    /// `msn` is the MSN of the READ before it.
    #[cold]
    fn next_taken_back(&self, psn: Psn, msn: u32) -> Option<Stream> {
        let record = self.resources.find(psn)?;
        let SavedResponse::Read(reth) = record.response else {
            return None;
        };
        Some(Stream::new(psn, reth, false, msn.wrapping_add(1)))
    }

    /// Ends a READ because the memory that [`Responder::poll_response`] named cannot be read.
    #[cold]
    pub fn response_failed(&mut self, error: MemError) -> Outcome {
        match self.stream.take() {
            Some(stream) if !stream.again => self.access_refused(stream.psn, error),
            // As in `start_read`.
            Some(_) | None => Outcome::default(),
        }
    }

    #[inline]
    fn segment_len(&self, stream: &Stream) -> u32 {
        stream.remaining.min(self.params.mtu)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_read))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn partial_repeat_of_read_gets_responses() {
        let mut rx = responder();
        let mut transmit = read(2 * MTU + 1);
        let verdict = request(&mut rx, &transmit);
        assert!(matches!(verdict, Verdict::Read(read) if read.reth.len == 2 * MTU + 1));
        assert_eq!(rx.start_read(Ok(())), None);
        assert!(rx.read_in_progress());
        assert_eq!(request(&mut rx, &transmit), Verdict::Drop(DropReason::Busy));
        let whole = [
            (Opcode::RcReadResponseFirst, 0),
            (Opcode::RcReadResponseMiddle, 1),
            (Opcode::RcReadResponseLast, 2),
        ];
        check_responses(&mut rx, &whole);
        assert_eq!(rx.epsn().get(), 3);

        transmit.psn = Psn::new(1);
        let mut reth = transmit.reth.unwrap();
        reth.va += u64::from(MTU);
        reth.len -= MTU;
        transmit.reth = Some(reth);
        assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
        assert_eq!(rx.start_read(Ok(())), None);
        let part = [
            (Opcode::RcReadResponseFirst, 1),
            (Opcode::RcReadResponseLast, 2),
        ];
        check_responses(&mut rx, &part);
        assert_eq!(rx.epsn().get(), 3);

        // The same PSN with another address was never requested.
        reth.va += 1;
        transmit.reth = Some(reth);
        let verdict = request(&mut rx, &transmit);
        assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
    }

    #[test]
    fn zero_length_read_gets_empty_response() {
        let mut rx = responder();
        assert!(matches!(request(&mut rx, &read(0)), Verdict::Read(_)));
        assert_eq!(rx.start_read(Ok(())), None);
        check_responses(&mut rx, &[(Opcode::RcReadResponseOnly, 0)]);
        assert_eq!(rx.epsn().get(), 1);
    }

    #[test]
    fn memory_error_during_read_is_fatal() {
        for (error, code) in [
            (MemError::Protection, NakCode::RemoteAccess),
            // The page could not be faulted in, which is not the requester's fault.
            (MemError::Fault, NakCode::RemoteOperation),
        ] {
            let mut rx = responder();
            assert!(matches!(request(&mut rx, &read(1)), Verdict::Read(_)));
            assert_eq!(rx.start_read(Ok(())), None);
            let outcome = rx.response_failed(error);
            assert!(outcome.error);
            let syndrome = outcome.reply.map(|reply| reply.syndrome);
            assert_eq!(syndrome, Some(Syndrome::Nak(code)));
            assert_eq!(outcome.event, Some(AsyncEvent::AccessError));
            assert_eq!(rx.poll_response(), None);
        }
    }

    #[test]
    fn read_of_forbidden_memory_is_refused() {
        let mut rx = responder();
        assert!(matches!(request(&mut rx, &read(1)), Verdict::Read(_)));
        let outcome = rx.start_read(Err(MemError::Protection));
        assert_eq!(outcome.map(|outcome| outcome.error), Some(true));
        assert_eq!(rx.epsn().get(), 0);
    }

    #[test]
    fn read_without_right_or_resources_is_refused() {
        let mut others = [recv_params(); 2];
        others[0].access = QpAccess::from_bits(QpAccess::REMOTE_WRITE).unwrap_or_default();
        others[1].max_dest_rd_atomic = 0;
        for params in others {
            let mut rx = responder();
            rx.set_params(&params);
            assert!(refused(request(&mut rx, &read(1))));
            assert!(!rx.is_busy());
        }
    }

    #[test]
    fn duplicate_after_reads_were_forbidden_is_dropped() {
        let mut rx = responder();
        assert!(matches!(request(&mut rx, &read(1)), Verdict::Read(_)));
        assert_eq!(rx.start_read(Ok(())), None);
        respond_all(&mut rx);
        assert!(matches!(request(&mut rx, &read(1)), Verdict::Read(_)));
        rx.abandon();
        rx.set_params(&RecvParams {
            access: QpAccess::default(),
            ..recv_params()
        });
        let verdict = request(&mut rx, &read(1));
        assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
    }

    #[test]
    fn read_counts_as_message_once() {
        let mut rx = responder();
        let transmit = read(1);
        for _ in 0..2 {
            assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
            assert_eq!(rx.start_read(Ok(())), None);
            let aeth = rx.poll_response().and_then(|segment| segment.aeth);
            assert_eq!(aeth.map(|aeth| aeth.msn), Some(1));
            rx.response_sent();
        }
    }

    #[test]
    fn repeat_of_read_ends_before_the_next_one() {
        let mut rx = responder();
        for psn in [0, 2, 0] {
            let mut transmit = read(2 * MTU);
            transmit.psn = Psn::new(psn);
            let verdict = request(&mut rx, &transmit);
            assert!(matches!(verdict, Verdict::Read(_)));
            assert_eq!(rx.start_read(Ok(())), None);
            for (offset, rest) in [(0, 2 * MTU), (u64::from(MTU), MTU)] {
                let place = rx.poll_response().map(|segment| (segment.va, segment.rest));
                assert_eq!(place, Some((0x1000 + offset, rest)));
                rx.response_sent();
            }
            assert!(!rx.read_in_progress());
        }
    }

    #[test]
    fn memory_error_during_repeat_is_ignored() {
        let mut rx = responder();
        for is_new in [true, false] {
            assert_eq!(request(&mut rx, &read(1)).is_expected(), is_new);
            assert_eq!(rx.start_read(Ok(())), None);
            if is_new {
                rx.response_sent();
            }
        }
        assert_eq!(rx.response_failed(MemError::Protection), Outcome::default());
    }
}
