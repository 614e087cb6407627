// SPDX-License-Identifier: GPL-2.0

//! Responder resources: saved responses for repeated requests (RC).

use super::MAX_RD_ATOMIC;
use crate::{
    ids::Rkey,
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn, //
};

/// The saved response to a request, in case the request is repeated (IBTA: responder resources).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedResponse {
    /// READ: the memory, which is read again.
    Read { rkey: Rkey, va: u64, len: u32 },
    /// Atomic: the original value. The operation is not executed again.
    Found(u64),
    /// ATOMIC WRITE or FLUSH: no data. The operation is not executed again.
    Done,
}

/// A request that was executed, and its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// The PSN of the request, which is also that of the first response.
    pub(super) first_psn: Psn,
    /// The number of PSNs of the response; 0 if the record is empty.
    pub(super) count: u32,
    /// The opcode of the request.
    pub(super) opcode: Opcode,
    pub(super) response: SavedResponse,
}

impl Record {
    const EMPTY: Record = Record {
        first_psn: Psn::new(0),
        count: 0,
        opcode: Opcode::RcInvalid,
        response: SavedResponse::Done,
    };
}

/// The last requests with an explicit response, up to the number that a queue pair may have
/// outstanding.
///
/// A peer may have more outstanding than `max_dest_rd_atomic`: C rxe and some adapters round the
/// number up to a power of two.
#[derive(Debug)]
pub(super) struct ResponderResources {
    records: [Record; MAX_RD_ATOMIC],
    /// The number of records ever saved, wrapping.
    total: usize,
    /// The PSN of the last FLUSH.
    ///
    /// FLUSHes take no records: C rxe does not count them as outstanding, so there may be any
    /// number of them, and their response needs no saved data.
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

    /// Returns the record whose response covers the PSN, if there is one.
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
