// SPDX-License-Identifier: GPL-2.0

//! Packets and READ responses that wait for memory.

use super::{
    run,
    RecvHalf,
    Run, //
};
use crate::{
    device::{
        IbQp,
        QpRef, //
    },
    mr::{
        self,
        OdpFault, //
    },
    packet::Incoming,
    qp::{
        command,
        wait::{
            ahead,
            ahead_in_message, //
        }, //
    }, //
};
use kernel::prelude::*;
use rdma::ib::Access;
use roce::{
    responder::{
        Place,
        ReadSegment,
        Verdict, //
    },
    wire::Packet,
    wr::MemError, //
};

/// A packet, and the verdict to apply once its memory is present.
pub(super) struct Parked {
    pub(super) incoming: Incoming,
    pub(super) verdict: Verdict,
}

/// Reports the end of a fetch, and runs the half if it waits for it.
fn fetched(qp: &QpRef, round: u64, result: Result<(), MemError>) {
    if qp.recv.lock().wait.finish(round, result) {
        run(qp);
    }
}

impl RecvHalf {
    /// Parks a packet until its memory is present; later packets wait behind it.
    #[cold]
    pub(super) fn park(&mut self, qp: &IbQp, parked: Parked, run: &mut Run) {
        let Ok(packet) = parked.incoming.packet() else {
            return;
        };
        let failed = match self.odp_fault(qp, &parked.verdict, &packet) {
            Ok(Some(fault)) => {
                if self.wait.start(qp, 0, fault, fetched).is_ok() {
                    self.parked = Some(parked);
                } else {
                    self.abandon();
                }
                return;
            }
            // The memory is present by now.
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if !self.go_on(qp, &parked, failed, run) {
            // The memory became absent again.
            self.abandon();
        }
    }

    /// Applies the verdict on the packet that waited for memory.
    #[cold]
    pub(super) fn unpark(&mut self, qp: &IbQp, run: &mut Run) {
        let Some(parked) = self.parked.take() else {
            return;
        };
        let failed = self.wait.take_failure(0);
        if !self.go_on(qp, &parked, failed, run) {
            self.park(qp, parked, run);
        }
    }

    /// Applies the verdict on a parked packet; returns `false` if memory has to be fetched first.
    /// `failed` is the error of the fetch that the packet waited for.
    fn go_on(
        &mut self,
        qp: &IbQp,
        parked: &Parked,
        failed: Option<MemError>,
        run: &mut Run,
    ) -> bool {
        let Ok(packet) = parked.incoming.packet() else {
            return true;
        };
        let incoming = &parked.incoming;
        self.apply_verdict(qp, &parked.verdict, &packet, incoming, failed, run)
    }

    /// Returns the fault to resolve before the verdict on a packet can be applied.
    fn odp_fault(
        &self,
        qp: &IbQp,
        verdict: &Verdict,
        packet: &Packet<'_>,
    ) -> Result<Option<OdpFault>, MemError> {
        match *verdict {
            Verdict::Place(Place::Recv { offset, len }) => {
                // The GRH area in front of a datagram is written, too.
                let from = if packet.deth().is_some() { 0 } else { offset };
                let len = offset.saturating_sub(from).saturating_add(len);
                self.rq.odp_fault(from, len, ahead(packet.opcode()))
            }
            Verdict::Place(Place::Remote {
                rkey,
                va,
                len,
                rest,
            }) => {
                let region = mr::find_remote(rkey.get(), self.pd, qp.qpn, Access::REMOTE_WRITE)?;
                let at = region.offset(va, u64::from(rest))?;
                Ok(region.odp_fault(at, u64::from(len), ahead_in_message(rest, len), true))
            }
            Verdict::Execute(ref command) => command::odp_fault(command, self.pd, qp.qpn),
            _ => Ok(None),
        }
    }

    /// Starts to fetch the memory of a READ response.
    ///
    /// # Errors
    ///
    /// The reason why the READ fails: the key is not valid any more, or the fetch has failed.
    #[cold]
    pub(super) fn await_segment(
        &mut self,
        qp: &IbQp,
        segment: &ReadSegment,
    ) -> Result<(), MemError> {
        let psn = segment.psn.get();
        if let Some(error) = self.wait.take_failure(psn) {
            return Err(error);
        }
        let region = mr::find_remote(segment.rkey.get(), self.pd, qp.qpn, Access::REMOTE_READ)?;
        let len = u64::from(segment.len);
        let at = region.offset(segment.va, len)?;
        let ahead = ahead_in_message(segment.rest, segment.len);
        match region.odp_fault(at, len, ahead, false) {
            Some(fault) => {
                if self.wait.start(qp, psn, fault, fetched).is_err() {
                    // The memory cannot be fetched now. Skip the response: the peer requests it
                    // again.
                    self.resp.response_sent();
                    qp.defer();
                }
            }
            // The memory became present meanwhile.
            None => qp.defer(),
        }
        Ok(())
    }
}
