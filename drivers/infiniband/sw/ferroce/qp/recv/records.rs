// SPDX-License-Identifier: GPL-2.0

//! Storage for the requests of a peer that it may repeat.

use super::RecvHalf;
use crate::few::Few;
use kernel::prelude::*;
use roce::responder::{
    records_for,
    Record, //
};

/// As many records as most queue pairs need. They cost nothing: a half is allocated from a cache of
/// objects of a size that has room for them.
const FEW: usize = 4;

/// Records of READs and atomics, for as many as the peer may have outstanding.
pub(crate) type Records = Few<Record, FEW>;

/// Returns the records of a queue pair that is not connected.
pub(super) fn few() -> Records {
    Records::Few([Record::default(); FEW])
}

/// Allocates records for a queue pair whose peer may have so many outstanding, if it needs more
/// than `have`. May sleep.
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
    /// Saves as many requests of the peer as there are records.
    // Not inlined, so that the frame of modify stays small.
    #[inline(never)]
    pub(in crate::qp) fn save_in(&mut self, records: KVec<Record>) {
        self.resp.move_records(Records::Many(records));
    }
}
