// SPDX-License-Identifier: GPL-2.0

//! Responder resources: saved responses for duplicate requests (RC).

use super::MAX_RD_ATOMIC;
use crate::{
    opcode::{
        Opcode,
        Operation, //
    },
    psn::Psn,
    wire::Reth, //
};

/// The saved response to a request, for duplicates of it (IBTA: responder resources).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedResponse {
    /// READ: the memory, which is read again.
    Read(Reth),
    /// Atomic: the original value. The operation is not executed again.
    Found(u64),
    /// ATOMIC WRITE or FLUSH: no data. The operation is not executed again.
    Done,
}

/// Storage for a request that was executed, and its response.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The PSN of the request, which is also that of the first response.
    pub(super) first_psn: Psn,
    /// The number of PSNs of the response; 0 if the record is empty.
    pub(super) count: u32,
    /// The opcode of the request.
    pub(super) opcode: Opcode,
    pub(super) response: SavedResponse,
}

impl Record {
    /// Returns whether `psn` is one of the response. The record may be from an earlier round of the
    /// PSNs.
    fn covers(&self, psn: Psn) -> bool {
        self.first_psn.forward(psn) < self.count
    }
}

impl Default for Record {
    /// Returns an empty record.
    fn default() -> Record {
        Record {
            first_psn: Psn::new(0),
            count: 0,
            opcode: Opcode::RcInvalid,
            response: SavedResponse::Done,
        }
    }
}

/// Storage for the records of a queue pair: a power of two of them, see [`records_for`].
pub trait Records: AsRef<[Record]> + AsMut<[Record]> {}

impl<T: AsRef<[Record]> + AsMut<[Record]>> Records for T {}

/// Returns the number of records of a queue pair with `max_dest_rd_atomic`.
///
/// It is up to [`MAX_RD_ATOMIC`]. The peer may have more requests outstanding than
/// `max_dest_rd_atomic`: C rxe and some adapters round the number up to a power of two.
pub fn records_for(max_dest_rd_atomic: u8) -> usize {
    usize::from(max_dest_rd_atomic)
        .next_power_of_two()
        .min(MAX_RD_ATOMIC)
}

/// The last requests with an explicit response, as many as there is storage for.
#[derive(Debug)]
pub(super) struct ResponderResources<S> {
    records: S,
    /// The number of records ever saved, wrapping.
    total: usize,
    /// The PSN of the last FLUSH, unless a request was saved after it.
    ///
    /// FLUSHes take no records: C rxe does not count them as outstanding, so there may be any
    /// number of them, and their response needs no saved data.
    flush: Option<Psn>,
}

impl<S: Records> ResponderResources<S> {
    /// Creates resources in which nothing is saved.
    pub(super) fn new(records: S) -> ResponderResources<S> {
        ResponderResources {
            records,
            total: 0,
            flush: None,
        }
    }

    /// Forgets all requests.
    pub(super) fn clear(&mut self) {
        self.records.as_mut().fill(Record::default());
        self.total = 0;
        self.flush = None;
    }

    /// Returns the number of requests that can be saved.
    pub(super) fn capacity(&self) -> usize {
        self.records.as_ref().len()
    }

    /// Returns the number of requests that were ever saved, wrapping.
    pub(super) fn saved(&self) -> usize {
        self.total
    }

    /// Moves to other storage, together with the saved requests. Returns the old storage.
    pub(super) fn move_to(&mut self, records: S) -> S {
        let old = core::mem::replace(&mut self.records, records);
        let total = core::mem::replace(&mut self.total, 0);
        self.records.as_mut().fill(Record::default());
        for age in (1..=old.as_ref().len()).rev() {
            let index = index(total.wrapping_sub(age), old.as_ref().len());
            match old.as_ref().get(index) {
                Some(record) if record.count != 0 => self.save(*record),
                _ => {}
            }
        }
        old
    }

    pub(super) fn remember(&mut self, record: Record) {
        if record.opcode.operation() == Operation::Flush {
            self.flush = Some(record.first_psn);
            // A request that covers the PSN is from an earlier round of the PSNs. It would hide the
            // FLUSH from duplicates.
            for old in self.records.as_mut() {
                if old.covers(record.first_psn) {
                    *old = Record::default();
                }
            }
        } else {
            self.flush = None;
            self.save(record);
        }
    }

    fn save(&mut self, record: Record) {
        let index = index(self.total, self.capacity());
        if let Some(saved) = self.records.as_mut().get_mut(index) {
            *saved = record;
        }
        self.total = self.total.wrapping_add(1);
    }

    /// Returns whether `psn` is that of the last FLUSH.
    pub(super) fn is_flush(&self, psn: Psn) -> bool {
        self.flush == Some(psn)
    }

    /// Returns the record whose response covers `psn`, if there is one.
    pub(super) fn find(&self, psn: Psn) -> Option<&Record> {
        let records = self.records.as_ref();
        // The newest first.
        (1..=records.len())
            .filter_map(|age| records.get(index(self.total.wrapping_sub(age), records.len())))
            .find(|record| record.covers(psn))
    }
}

/// Returns the index of the record with a number among `len`, a power of two.
#[inline]
fn index(number: usize, len: usize) -> usize {
    number & len.wrapping_sub(1)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_resources))]
mod tests {
    use super::*;
    use crate::responder::DropReason;
    use crate::testutil::*;

    fn record(psn: u32) -> Record {
        Record {
            first_psn: Psn::new(psn),
            count: 1,
            opcode: Opcode::RcFetchAdd,
            response: SavedResponse::Found(u64::from(psn)),
        }
    }

    /// Returns a bitmap of the saved PSNs.
    fn saved<S: Records>(resources: &ResponderResources<S>) -> u32 {
        (0..32)
            .filter(|psn| resources.find(Psn::new(*psn)).is_some())
            .fold(0, |set, psn| set | 1 << psn)
    }

    #[test]
    fn last_requests_are_saved_and_moved() {
        let mut storage = [[Record::default(); 8]; 4];
        let mut storage = storage.each_mut();
        let [four, eight, two, none] = &mut storage;
        let mut resources = ResponderResources::new(&mut four[..4]);
        for psn in 0..6 {
            resources.remember(record(psn));
        }
        assert_eq!((resources.capacity(), saved(&resources)), (4, 0b11_1100));
        resources.move_to(&mut eight[..]);
        assert_eq!((resources.capacity(), saved(&resources)), (8, 0b11_1100));
        for psn in 6..12 {
            resources.remember(record(psn));
        }
        assert_eq!(saved(&resources), 0b1111_1111_0000);
        resources.move_to(&mut two[..2]);
        assert_eq!(saved(&resources), 0b1100_0000_0000);
        resources.clear();
        assert_eq!(saved(&resources), 0);
        resources.move_to(&mut none[..0]);
        resources.remember(record(1));
        assert_eq!(saved(&resources), 0);
    }

    #[test]
    fn half_reports_its_records() {
        assert_eq!(responder().records(), MAX_RD_ATOMIC);
        let two = Responder::with_records(Transport::Rc, [Record::default(); 2]);
        assert_eq!(two.records(), 2);
    }

    #[test]
    fn records_are_a_power_of_two() {
        for (outstanding, records) in [(0, 1), (1, 1), (3, 4), (4, 4), (16, 16), (255, 16)] {
            assert_eq!(records_for(outstanding), records);
        }
    }

    #[test]
    fn duplicate_of_longest_read_is_recognized() {
        let mut rx = responder();
        let mut transmit = read(1);
        // Other requesters do not split a long READ.
        let mut reth = transmit.reth.unwrap();
        reth.len = 1 << 31;
        transmit.reth = Some(reth);
        assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
        respond_all(&mut rx);
        assert_eq!(rx.epsn().get(), Psn::HALF);
        assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
    }

    #[test]
    fn duplicate_for_other_data_is_dropped() {
        let mut rx = responder();
        let mut transmit = read(2 * MTU + 1);
        assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
        respond_all(&mut rx);

        // The key and the address relative to those of the first request, and the length.
        let first = transmit.reth.unwrap();
        let reth = |key: u32, va: u32, len: u32| Reth {
            rkey: Rkey::new(first.rkey.get() + key),
            va: first.va + u64::from(va),
            len,
        };
        let bad = [
            (0, reth(1, 0, 2 * MTU + 1)),
            (0, reth(0, 1, 2 * MTU)),
            (0, reth(0, 0, 2 * MTU + 2)),
            (0, reth(0, 0, 0)),
            (1, reth(1, MTU, MTU + 1)),
            (1, reth(0, 0, MTU + 1)),
            (1, reth(0, MTU, MTU + 2)),
        ];
        for (psn, reth) in bad {
            transmit.psn = Psn::new(psn);
            transmit.reth = Some(reth);
            let verdict = request(&mut rx, &transmit);
            assert_eq!(verdict, Verdict::Drop(DropReason::Duplicate));
        }
        for (psn, reth) in [(0, first), (1, reth(0, MTU, MTU + 1))] {
            transmit.psn = Psn::new(psn);
            transmit.reth = Some(reth);
            let verdict = request(&mut rx, &transmit);
            assert!(matches!(verdict, Verdict::Read(read) if read.again));
            respond_all(&mut rx);
        }
    }

    #[test]
    fn newest_request_with_a_psn_is_found() {
        let mut resources = ResponderResources::new([Record::default(); 4]);
        for found in 0..6 {
            resources.remember(Record {
                response: SavedResponse::Found(found),
                ..record(7)
            });
            let saved = resources.find(Psn::new(7)).map(|record| record.response);
            assert_eq!(saved, Some(SavedResponse::Found(found)));
        }
    }

    #[test]
    fn former_contents_are_not_found() {
        let mut resources = ResponderResources::new([Record::default(); 2]);
        resources.move_to([record(1); 2]);
        assert_eq!(saved(&resources), 0);
        let flush = Record {
            opcode: Opcode::RcFlush,
            ..record(1)
        };
        resources.remember(flush);
        assert!(resources.is_flush(Psn::new(1)) && saved(&resources) == 0);
        resources.clear();
        assert!(!resources.is_flush(Psn::new(1)));
        resources.remember(flush);
        resources.remember(record(2));
        assert!(!resources.is_flush(Psn::new(1)));
    }
}
