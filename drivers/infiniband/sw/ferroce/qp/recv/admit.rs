// SPDX-License-Identifier: GPL-2.0

//! Checks of received packets: state, source and destination, UDP source port. Also counts refused
//! remote accesses.

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    counters::Counter,
    device::IbQp,
    gids,
    packet::Origin, //
};
use roce::wr::MemError;

impl RecvHalf {
    /// Checks that a packet with this origin is for this queue pair, and that the state of the
    /// queue pair allows it.
    ///
    /// # Errors
    ///
    /// The drop counter, if not.
    #[inline]
    pub(super) fn admits(&mut self, qp: &IbQp, origin: &Origin) -> Result<(), Counter> {
        if !qp.state().is_receiving() {
            return Err(Counter::BadState);
        }
        if qp.ty.is_connected() {
            let path = self.tx.path().ok_or(Counter::BadAddress)?;
            return path.admits(origin);
        }
        // Look the destination up only if it differs from that of the last datagram.
        let here = Some((gids::generation(), origin.net, origin.daddr));
        if self.address != here && gids::contains(qp.device().number, &origin.address()) {
            self.address = here;
        }
        (self.address == here)
            .then_some(())
            .ok_or(Counter::BadAddress)
    }

    /// Notifies the peer if a congested network has marked its request.
    #[inline]
    pub(super) fn see_mark(&mut self, qp: &IbQp, origin: &Origin, run: &mut Run) {
        if origin.is_marked() {
            self.hand_over(qp, run);
            self.tx.marked(self.resp.dest_qpn());
        }
    }

    /// Counts an access of the peer that its key does not allow.
    #[inline]
    pub(super) fn count_refused<T>(&self, result: Result<T, MemError>) {
        if let Err(MemError::Protection | MemError::Invalidate) = result {
            self.tx.counters.count(Counter::RemoteAccess);
        }
    }
}
