// SPDX-License-Identifier: GPL-2.0

//! Storage for the requests of a peer that it may repeat.

use super::RecvHalf;
use crate::few::Few;
use kernel::prelude::*;
use roce::responder::{
    records_for,
    Record, //
};

/// The number of records that most queue pairs need. They cost nothing: the slab object of a half
/// has room for them.
const FEW: usize = 4;

/// Records of READs and atomics, for as many as the peer may have outstanding.
pub(crate) type Records = Few<Record, FEW>;

/// Returns the records of a queue pair that is not connected yet.
pub(super) fn few() -> Records {
    Records::Few([Record::default(); FEW])
}

/// Allocates records for a peer that may have `max_dest_rd_atomic` requests outstanding, if that
/// takes more than `have` records. May sleep.
///
/// # Errors
///
/// `ENOMEM`.
pub(in crate::qp) fn beyond(have: usize, max_dest_rd_atomic: u8) -> Result<Option<KVec<Record>>> {
    let wanted = records_for(max_dest_rd_atomic);
    if wanted <= have {
        return Ok(None);
    }
    let records = KVec::from_elem(Record::default(), wanted, GFP_KERNEL_ACCOUNT)?;
    Ok(Some(records))
}

impl RecvHalf {
    /// Moves the saved requests of the peer to a larger set of records.
    // Not inlined, to keep the stack frame of modify small.
    #[inline(never)]
    pub(in crate::qp) fn save_in(&mut self, records: KVec<Record>) {
        self.resp.move_records(Records::Many(records));
    }
}
