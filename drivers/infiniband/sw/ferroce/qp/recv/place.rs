// SPDX-License-Identifier: GPL-2.0

//! The placement of the payload of requests.

use super::{
    completion::grh_area,
    RecvHalf,
    Run, //
};
use crate::{
    device::IbQp,
    mr,
    packet::Incoming, //
};
use rdma::ib::Access;
use roce::{
    responder::Place,
    wire::Packet,
    wr::MemError, //
};

impl RecvHalf {
    /// Copies the payload of a packet to its destination, and invalidates the key that the packet
    /// names.
    #[inline]
    pub(super) fn place(
        &self,
        qp: &IbQp,
        place: &Place,
        packet: &Packet<'_>,
        incoming: &Incoming,
        run: &mut Run,
    ) -> Result<(), MemError> {
        let payload = incoming.payload(packet);
        match *place {
            Place::Recv { offset, len } => {
                // CAST: Widening.
                let bytes = payload.get(..len as usize).ok_or(MemError::Length)?;
                if packet.deth().is_some() {
                    self.rq.scatter(0, &grh_area(incoming), &mut run.regions)?;
                }
                self.rq.scatter(offset, bytes, &mut run.regions)?;
                if let Some(rkey) = packet.ieth() {
                    mr::invalidate(rkey.get(), self.pd, qp.qpn, true)
                        .map_err(|_| MemError::Invalidate)?;
                }
                Ok(())
            }
            // C9-88: key and address are not checked if there is nothing to write. rsockets sends
            // such WRITEs with a key of zero, to announce credits.
            Place::Remote { rest: 0, .. } => Ok(()),
            Place::Remote {
                rkey,
                va,
                len,
                rest,
            } => {
                let region =
                    run.regions
                        .find_remote(rkey.get(), self.pd, qp.qpn, Access::REMOTE_WRITE)?;
                let at = region.offset(va, u64::from(rest))?;
                // CAST: Widening.
                let bytes = payload.get(..len as usize).ok_or(MemError::Length)?;
                region.write(at, bytes)
            }
        }
    }
}
