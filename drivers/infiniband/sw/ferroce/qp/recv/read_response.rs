// SPDX-License-Identifier: GPL-2.0

//! READ responses.

use super::{
    RecvHalf,
    Run, //
};
use crate::{
    device::IbQp,
    mr::RegionCache,
    qp::{
        path::SendError,
        tx::{
            Handed,
            TxRun, //
        }, //
    },
    traces, //
};
use rdma::{
    ib::{
        object::PdId,
        Access, //
    },
    net::skbuff::SkBuff, //
};
use roce::{
    responder::{
        ReadSegment,
        ResponseCheckpoint, //
    },
    wr::MemError, //
};

/// The transmit state of a run, with the position of the first response of a train.
pub(super) type ReadRun = TxRun<ResponseCheckpoint>;

impl RecvHalf {
    /// Sends responses of the READ in progress, within the budget. The caller hands over the last
    /// train.
    pub(super) fn send_responses(&mut self, qp: &IbQp, run: &mut Run) {
        if !self.wait.is_pending() && self.build_responses(qp, run) {
            // Packets may have been received meanwhile.
            run.again |= !self.backlog.is_empty();
        }
    }

    /// Sends responses; see [`RecvHalf::send_responses`]. Returns whether all of them were sent.
    #[inline]
    pub(super) fn build_responses(&mut self, qp: &IbQp, run: &mut Run) -> bool {
        while let Some(segment) = self.resp.poll_response() {
            if !self.tx.may_send(qp, &mut run.responses) || !run.spend() {
                return false;
            }
            let result = if self.tx.takes_trains(qp) {
                self.add_to_train(qp, run, &segment)
            } else if self.hand_over(qp, run) {
                self.send_segment(qp, &segment, run)
            } else {
                return false;
            };
            match result {
                Ok(()) => {
                    traces::sent_response(qp, &segment);
                    self.resp.response_sent();
                }
                Err(SendError::NoRoom) => return false,
                // The peer requests missing responses again.
                Err(SendError::Lost | SendError::NoMemory) => {
                    self.resp.response_sent();
                }
                Err(SendError::Memory(error)) => {
                    // Send the responses before it first.
                    if self.hand_over(qp, run) {
                        self.cannot_read(qp, &segment, error, run);
                    }
                    return false;
                }
            }
            if segment.again && !self.resp.read_in_progress() && !self.hand_over(qp, run) {
                return false;
            }
        }
        true
    }

    /// Waits for the memory of a response, or ends the READ.
    #[cold]
    fn cannot_read(&mut self, qp: &IbQp, segment: &ReadSegment, error: MemError, run: &mut Run) {
        if self.last_reply.is_some() {
            // In ERR, the half does not wait for memory. The NAK goes without the responses.
            self.resp.response_failed(error);
            run.again = true;
            return;
        }
        let result = match error {
            MemError::NotPresent => self.await_segment(qp, segment),
            error => Err(error),
        };
        let Err(error) = result else {
            return;
        };
        let outcome = self.resp.response_failed(error);
        self.execute(qp, &outcome, None, run);
    }

    /// Builds a response and adds it to the train, or begins one with it.
    #[inline]
    fn add_to_train(
        &mut self,
        qp: &IbQp,
        run: &mut Run,
        segment: &ReadSegment,
    ) -> Result<(), SendError> {
        let pd = self.pd;
        let skb = self.tx.build(segment, |skb| {
            append(qp, pd, segment, skb, &mut run.regions)
        })?;
        if let Err(skb) = run.responses.join(skb) {
            if !self.hand_over(qp, run) {
                return Err(SendError::NoRoom);
            }
            run.responses.begin(skb, self.resp.checkpoint_responses());
        }
        Ok(())
    }

    /// Hands the train over; returns `false` if its packets were taken back because a queue below
    /// was full.
    #[inline]
    pub(super) fn hand_over(&mut self, qp: &IbQp, run: &mut Run) -> bool {
        match self.tx.hand_over(qp, &mut run.responses) {
            // The peer requests missing responses again.
            Handed::Over | Handed::Lost(_) => true,
            Handed::Back(checkpoint) => {
                self.resp.take_back_responses(checkpoint);
                false
            }
        }
    }

    /// Sends one READ response.
    #[inline]
    fn send_segment(
        &mut self,
        qp: &IbQp,
        segment: &ReadSegment,
        run: &mut Run,
    ) -> Result<(), SendError> {
        let pd = self.pd;
        self.tx.send(qp, segment, |skb| {
            append(qp, pd, segment, skb, &mut run.regions)
        })
    }
}

/// Appends the payload of a response.
#[inline]
fn append(
    qp: &IbQp,
    pd: PdId,
    segment: &ReadSegment,
    skb: &mut SkBuff,
    regions: &mut RegionCache,
) -> Result<(), MemError> {
    let region = regions.find_remote(segment.rkey.get(), pd, qp.qpn, Access::REMOTE_READ)?;
    let at = region.offset(segment.va, u64::from(segment.len))?;
    // CAST: Widening.
    region.append_to(at, segment.len as usize, skb)
}
