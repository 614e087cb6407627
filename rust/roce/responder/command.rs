// SPDX-License-Identifier: GPL-2.0

//! Atomic operations, ATOMIC WRITE and FLUSH (RC).
//!
//! Each is executed once; a duplicate is only answered again.

use super::{
    message::Message,
    resources::{
        Record,
        Records,
        SavedResponse, //
    },
    Action,
    Command,
    DropReason,
    Outcome,
    Pending,
    Reply,
    ReplyKind,
    Responder,
    Verdict, //
};
use crate::{
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    qp::QpAccess,
    wire::{
        Feth,
        Packet,
        MAX_MESSAGE_LEN, //
    },
    wr::MemError, //
};

/// The size of an atomic operand in bytes.
const WORD: u32 = 8;

impl<S: Records> Responder<S> {
    /// Handles a new request that the driver executes.
    pub(super) fn on_command(&mut self, pkt: &Packet<'_>) -> Verdict {
        let psn = pkt.psn();
        let Some(command) = self.command(pkt) else {
            return Verdict::Fail(self.invalid_request(psn));
        };
        self.pending = Pending::Execute {
            psn,
            opcode: pkt.opcode(),
        };
        Verdict::Execute(command)
    }

    /// Answers a request that was executed before, as long as its response is saved (C9-150,
    /// oA19-14).
    ///
    /// The response to a FLUSH is always the same, so it is not saved. But if the queue pair allows
    /// no FLUSH, or the PSN is that of another request, the packet is forged: the response would
    /// end the connection of a peer that expects another one.
    pub(super) fn on_command_again(&mut self, pkt: &Packet<'_>) -> Verdict {
        let psn = pkt.psn();
        match self.resources.find(psn) {
            Some(record) if record.opcode == pkt.opcode() => {
                Verdict::Reply(self.saved_reply(psn, record.response))
            }
            None if self.flush(pkt).is_some() => {
                Verdict::Reply(self.saved_reply(psn, SavedResponse::Done))
            }
            _ => Verdict::Drop(DropReason::Duplicate),
        }
    }

    /// Returns the response to the last request, if that was an atomic, an ATOMIC WRITE or a FLUSH.
    pub(super) fn last_response(&self) -> Option<Reply> {
        let psn = self.sequence.epsn().prev();
        if self.resources.is_flush(psn) {
            return Some(self.saved_reply(psn, SavedResponse::Done));
        }
        let record = self.resources.find(psn)?;
        (!matches!(record.response, SavedResponse::Read(_)))
            .then(|| self.saved_reply(psn, record.response))
    }

    /// Reports the result of the command of [`Verdict::Execute`], with the original value of an
    /// atomic, and returns the outcome.
    ///
    /// Returns the default outcome, which requests nothing, if no command was pending.
    pub fn executed(&mut self, result: Result<u64, MemError>) -> Outcome {
        let Pending::Execute { psn, opcode } = self.pending else {
            return Outcome::default();
        };
        self.pending = Pending::None;
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.access_refused(psn, error),
        };
        let response = match opcode.operation() {
            Operation::Atomic => SavedResponse::Found(found),
            _ => SavedResponse::Done,
        };
        self.resources.remember(Record {
            first_psn: psn,
            count: 1,
            opcode,
            response,
        });
        self.sequence.skip_to(psn.next());
        self.sequence.count_message();
        self.early.acknowledged();
        Outcome {
            reply: Some(self.saved_reply(psn, response)),
            event: self.established(),
            ..Outcome::default()
        }
    }

    /// Returns the command of a request, or `None` if the request is invalid.
    fn command(&self, pkt: &Packet<'_>) -> Option<Command> {
        if self.message != Message::None {
            return None;
        }
        let operation = pkt.opcode().operation();
        // The queue pair has no responder resources, of which a FLUSH needs none.
        if self.params.max_dest_rd_atomic == 0 && operation != Operation::Flush {
            return None;
        }
        match operation {
            Operation::Atomic => self.atomic(pkt),
            Operation::AtomicWrite => self.store(pkt),
            Operation::Flush => self.flush(pkt),
            _ => None,
        }
    }

    fn atomic(&self, pkt: &Packet<'_>) -> Option<Command> {
        let eth = pkt.atomic()?;
        if !self.params.access.allows(QpAccess::REMOTE_ATOMIC) || !is_aligned(eth.va) {
            return None;
        }
        Some(Command {
            rkey: eth.rkey,
            va: eth.va,
            action: if pkt.opcode() == Opcode::RcCompareSwap {
                Action::CompareSwap {
                    compare: eth.compare,
                    swap: eth.swap_add,
                }
            } else {
                Action::FetchAdd { add: eth.swap_add }
            },
        })
    }

    fn store(&self, pkt: &Packet<'_>) -> Option<Command> {
        let reth = pkt.reth()?;
        if !self.params.access.allows(QpAccess::REMOTE_WRITE) || !is_aligned(reth.va) {
            return None;
        }
        // Exactly one word (oA19-28).
        if reth.len != WORD || pkt.payload_len() != WORD {
            return None;
        }
        Some(Command {
            rkey: reth.rkey,
            va: reth.va,
            action: Action::Store,
        })
    }

    /// Returns the command of a FLUSH. `None` also for the packet of another request.
    fn flush(&self, pkt: &Packet<'_>) -> Option<Command> {
        let (reth, feth) = (pkt.reth()?, pkt.feth()?);
        let is_valid =
            feth.is_valid() && may_flush(feth, self.params.access) && reth.len <= MAX_MESSAGE_LEN;
        is_valid.then_some(Command {
            rkey: reth.rkey,
            va: reth.va,
            action: Action::Flush {
                len: reth.len,
                feth,
            },
        })
    }

    /// Returns the reply to the request with PSN `psn`.
    fn saved_reply(&self, psn: Psn, response: SavedResponse) -> Reply {
        Reply {
            kind: match response {
                SavedResponse::Found(found) => ReplyKind::Found(found),
                SavedResponse::Done | SavedResponse::Read(_) => ReplyKind::Done,
            },
            ..self.ack(psn)
        }
    }
}

fn may_flush(feth: Feth, access: QpAccess) -> bool {
    (!feth.global() || access.allows(QpAccess::FLUSH_GLOBAL))
        && (!feth.persistent() || access.allows(QpAccess::FLUSH_PERSISTENT))
}

fn is_aligned(va: u64) -> bool {
    va & u64::from(WORD - 1) == 0
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_command))]
mod tests {
    use super::*;
    use crate::responder::MAX_RD_ATOMIC;
    use crate::testutil::*;

    fn flush(placement: u8, level: u8) -> Transmit {
        let mut flush = wr(SendOp::Flush, 64);
        flush.set_feth(Feth::new(placement, level).unwrap_or_default());
        transmit(flush)
    }

    #[test]
    fn duplicate_atomic_is_not_executed_again() {
        let mut rx = responder();
        let mut swap = wr(SendOp::CompareSwap, 8);
        (swap.compare, swap.swap_add) = (1, 2);
        let sent = transmit(swap);
        let verdict = request(&mut rx, &sent);
        let command = Command {
            rkey: swap.rkey,
            va: swap.va,
            action: Action::CompareSwap {
                compare: 1,
                swap: 2,
            },
        };
        assert_eq!(verdict, Verdict::Execute(command));
        assert!(rx.is_busy());
        assert_eq!(request(&mut rx, &sent), Verdict::Drop(DropReason::Busy));
        let reply = rx.executed(Ok(77)).reply;
        assert_eq!(reply.map(|reply| reply.kind), Some(ReplyKind::Found(77)));
        assert_eq!(reply.map(|reply| reply.msn), Some(1));
        assert_eq!(rx.epsn().get(), 1);
        assert_eq!(
            rx.last_ack().map(|ack| ack.kind),
            Some(ReplyKind::Found(77))
        );
        assert_eq!(reply.map(Verdict::Reply), Some(request(&mut rx, &sent)));
        // A different request with the same PSN gets no response.
        let verdict = request(&mut rx, &transmit(wr(SendOp::FetchAdd, 8)));
        assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
        assert_eq!(rx.executed(Ok(78)), Outcome::default());
    }

    /// Executes a request, and returns the kind of its response.
    fn execute(rx: &mut Responder, sent: &mut Transmit, psn: u32) -> Option<ReplyKind> {
        sent.psn = Psn::new(psn);
        assert!(matches!(request(rx, sent), Verdict::Execute(_)));
        rx.executed(Ok(u64::from(psn)))
            .reply
            .map(|reply| reply.kind)
    }

    /// Repeats an executed request, and returns the kind of its response.
    fn repeat(rx: &mut Responder, sent: &mut Transmit, psn: u32) -> Option<ReplyKind> {
        sent.psn = Psn::new(psn);
        match request(rx, sent) {
            Verdict::Reply(reply) => Some(reply.kind),
            verdict => {
                assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
                None
            }
        }
    }

    #[test]
    fn last_max_rd_atomic_atomics_are_saved() {
        let mut rx = responder();
        let mut atomic = transmit(wr(SendOp::FetchAdd, 8));
        // CAST: 16.
        let count = MAX_RD_ATOMIC as u32 + 1;
        for psn in 0..count {
            execute(&mut rx, &mut atomic, psn);
        }
        assert_eq!(repeat(&mut rx, &mut atomic, 0), None);
        for psn in 1..count {
            let found = Some(ReplyKind::Found(u64::from(psn)));
            assert_eq!(repeat(&mut rx, &mut atomic, psn), found);
        }
    }

    #[test]
    fn repeated_flush_is_answered_only_if_it_may_have_been_executed() {
        let mut rx = responder();
        let (mut atomic, mut flush) = (transmit(wr(SendOp::FetchAdd, 8)), flush(1, 1));
        execute(&mut rx, &mut atomic, 0);
        execute(&mut rx, &mut flush, 1);
        let dropped = Verdict::Drop(DropReason::Duplicate);
        flush.psn = Psn::new(0);
        assert_eq!(request(&mut rx, &flush), dropped);
        flush.psn = Psn::new(1);
        assert!(matches!(request(&mut rx, &flush), Verdict::Reply(_)));
        rx.set_params(&RecvParams {
            access: Default::default(),
            ..recv_params()
        });
        assert_eq!(request(&mut rx, &flush), dropped);
    }

    #[test]
    fn repeated_flush_is_answered_after_psns_have_wrapped() {
        let mut rx = responder();
        let (mut atomic, mut flush) = (transmit(wr(SendOp::FetchAdd, 8)), flush(1, 1));
        execute(&mut rx, &mut atomic, 0);
        // In the next round of PSNs.
        rx.sequence.skip_to(Psn::new(0));
        let done = execute(&mut rx, &mut flush, 0);
        assert_eq!(repeat(&mut rx, &mut flush, 0), done);
    }

    #[test]
    fn flushes_do_not_evict_atomic_responses() {
        let mut rx = responder();
        let (mut atomic, mut flush) = (transmit(wr(SendOp::FetchAdd, 8)), flush(1, 1));
        execute(&mut rx, &mut atomic, 0);
        for psn in 1..100 {
            execute(&mut rx, &mut flush, psn);
        }
        let last = rx.last_ack();
        assert_eq!(last.map(|ack| ack.kind), Some(ReplyKind::Done));
        assert_eq!(last.map(|ack| ack.psn.get()), Some(99));
        let found = Some(ReplyKind::Found(0));
        assert_eq!(repeat(&mut rx, &mut atomic, 0), found);
        for psn in 1..100 {
            let done = Some(ReplyKind::Done);
            assert_eq!(repeat(&mut rx, &mut flush, psn), done);
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let unaligned = |op, length| {
            transmit(SendWr {
                va: 0x1004,
                ..wr(op, length)
            })
        };
        assert!(refused(request(
            &mut responder(),
            &unaligned(SendOp::FetchAdd, 8)
        )));
        assert!(refused(request(
            &mut responder(),
            &unaligned(SendOp::AtomicWrite, 8)
        )));
        let long = transmit(wr(SendOp::AtomicWrite, 12));
        assert!(refused(request(&mut responder(), &long)));
        // Not allowed by the queue pair.
        assert!(refused(request(&mut responder(), &flush(2, 0))));
        let nothing = transmit(wr(SendOp::Flush, 8));
        assert!(refused(request(&mut responder(), &nothing)));

        let mut rx = responder();
        rx.set_params(&RecvParams {
            max_dest_rd_atomic: 0,
            ..recv_params()
        });
        let sent = transmit(wr(SendOp::FetchAdd, 8));
        assert!(refused(request(&mut rx, &sent)));
        // A FLUSH needs no responder resources.
        rx.reset();
        assert!(!refused(request(&mut rx, &flush(1, 1))));
        let mut rx = responder();
        rx.set_params(&RecvParams {
            access: Default::default(),
            ..recv_params()
        });
        assert!(refused(request(&mut rx, &sent)));
    }

    #[test]
    fn command_on_forbidden_memory_is_refused() {
        let mut rx = responder();
        let sent = transmit(wr(SendOp::FetchAdd, 8));
        assert!(matches!(request(&mut rx, &sent), Verdict::Execute(_)));
        let outcome = rx.executed(Err(MemError::Protection));
        let nak = Syndrome::Nak(NakCode::RemoteAccess);
        assert_eq!(outcome.reply.map(|reply| reply.syndrome), Some(nak));
        assert_eq!(outcome.event, Some(AsyncEvent::AccessError));
        assert!(outcome.error);
        assert_eq!(rx.epsn().get(), 0);
    }

    #[test]
    fn flush_and_atomic_write_get_empty_response() {
        for sent in [flush(1, 1), transmit(wr(SendOp::AtomicWrite, 8))] {
            let mut rx = responder();
            assert!(matches!(request(&mut rx, &sent), Verdict::Execute(_)));
            let reply = rx.executed(Ok(0)).reply;
            assert_eq!(reply.map(|reply| reply.kind), Some(ReplyKind::Done));
            assert_eq!(reply.map(Verdict::Reply), Some(request(&mut rx, &sent)));
        }
    }

    #[test]
    fn only_executed_ends_a_command() {
        let mut rx = responder();
        let sent = transmit(wr(SendOp::FetchAdd, 8));
        assert!(matches!(request(&mut rx, &sent), Verdict::Execute(_)));
        assert_eq!(rx.finish(Ok(())), Outcome::default());
        assert!(rx.executed(Ok(1)).reply.is_some());
    }

    #[test]
    fn lengths_of_commands_are_checked() {
        let mut short = transmit(wr(SendOp::AtomicWrite, 8));
        short.len = 4;
        assert!(refused(request(&mut responder(), &short)));
        let mut longest = flush(1, 1);
        for (len, is_refused) in [(MAX_MESSAGE_LEN, false), (MAX_MESSAGE_LEN + 1, true)] {
            longest.reth = longest.reth.map(|reth| Reth { len, ..reth });
            let verdict = request(&mut responder(), &longest);
            assert_eq!(refused(verdict), is_refused);
        }
    }

    #[test]
    fn each_placement_of_flush_needs_its_right() {
        let (global, persistent) = (QpAccess::FLUSH_GLOBAL, QpAccess::FLUSH_PERSISTENT);
        let accesses = [0, global, persistent, global | persistent];
        for (placement, rights) in [
            (1, [false, true, false, true]),
            (2, [false, false, true, true]),
            (3, [false, false, false, true]),
        ] {
            let feth = Feth::new(placement, 0).unwrap_or_default();
            for (bits, is_allowed) in accesses.into_iter().zip(rights) {
                let access = QpAccess::from_bits(bits).unwrap_or_default();
                assert_eq!(may_flush(feth, access), is_allowed);
            }
        }
    }
}
