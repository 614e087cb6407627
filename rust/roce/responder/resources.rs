// SPDX-License-Identifier: GPL-2.0

//! What the peer was answered, in case that it asks again (RC).

use super::MAX_RD_ATOMIC;
use crate::{
    ids::Rkey,
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn, //
};

/// What a request was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Memory, which is read again.
    Read { rkey: Rkey, va: u64, len: u32 },
    /// What an atomic operation found, which is not executed again.
    Found(u64),
    /// That it was done: ATOMIC WRITE or FLUSH, which is not done again either.
    Done,
}

/// A request that was executed and answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The PSN of the request, which is that of the first response.
    pub(super) first_psn: Psn,
    /// How many PSNs the answer took; 0 if the record is empty.
    pub(super) count: u32,
    /// What the request was.
    pub(super) opcode: Opcode,
    pub(super) answer: Answer,
}

impl Record {
    const EMPTY: Record = Record {
        first_psn: Psn::new(0),
        count: 0,
        opcode: Opcode::RcInvalid,
        answer: Answer::Done,
    };
}

/// The last requests that were answered: as many as any queue pair may have outstanding.
///
/// A peer may have more outstanding than it was told that this queue pair takes: C rxe, and more
/// than one kind of hardware, round the number up to a power of two.
#[derive(Debug)]
pub(super) struct ResponderResources {
    records: [Record; MAX_RD_ATOMIC],
    /// How many were ever remembered.
    total: usize,
    /// The last FLUSH. They take no place among the others: C rxe does not count them as
    /// outstanding, so there may be any number of them. None has to be remembered to be answered
    /// again.
    flush: Option<Psn>,
}

impl ResponderResources {
    pub(super) fn new() -> ResponderResources {
        ResponderResources {
            records: [Record::EMPTY; MAX_RD_ATOMIC],
            total: 0,
            flush: None,
        }
    }

    pub(super) fn remember(&mut self, record: Record) {
        if record.opcode.operation() == Operation::Flush {
            self.flush = Some(record.first_psn);
            return;
        }
        if let Some(place) = self.records.get_mut(self.total % MAX_RD_ATOMIC) {
            *place = record;
        }
        self.total = self.total.wrapping_add(1);
    }

    /// Returns whether the last FLUSH has the PSN.
    pub(super) fn is_flush(&self, psn: Psn) -> bool {
        self.flush == Some(psn)
    }

    /// Returns the request whose answer has the PSN, if it is remembered.
    pub(super) fn find(&self, psn: Psn) -> Option<&Record> {
        // The newest first.
        (1..=MAX_RD_ATOMIC)
            .filter_map(|age| {
                let index = self.total.wrapping_sub(age) % MAX_RD_ATOMIC;
                self.records.get(index)
            })
            .find(|record| record.first_psn.forward(psn) < record.count)
    }
}
