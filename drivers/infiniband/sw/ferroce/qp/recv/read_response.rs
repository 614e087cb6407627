// SPDX-License-Identifier: GPL-2.0

//! READ responses.

use super::{
    After,
    RecvHalf, //
};
use crate::{
    clock,
    counters::Counter,
    device::IbQp,
    mr,
    qp::{
        path::SendError,
        tx::TxRun,
        Event, //
    },
    traces, //
};
use rdma::ib::Access;
use roce::{
    responder::{
        AsyncEvent,
        ReadSegment, //
    },
    wr::MemError, //
};

impl RecvHalf {
    /// Sends responses of the READ in progress, within the budget.
    pub(super) fn send_responses(&mut self, qp: &IbQp, after: &mut After) {
        if self.wait.is_pending() {
            return;
        }
        let mut run = TxRun::default();
        while let Some(segment) = self.resp.poll_response() {
            if !self.tx.may_send(qp, &mut run, clock::now) || !after.spend() {
                return;
            }
            match self.send_segment(qp, &segment) {
                // The peer requests missing responses again.
                Ok(()) => {
                    traces::answered(qp, &segment);
                    self.resp.response_sent();
                }
                Err(SendError::NoRoom) => return,
                Err(SendError::Lost | SendError::NoMemory) => {
                    self.resp.response_sent();
                }
                Err(SendError::Memory(error)) => {
                    let result = match error {
                        MemError::Absent => self.await_segment(qp, &segment),
                        error => Err(error),
                    };
                    let Err(error) = result else {
                        return;
                    };
                    let outcome = self.resp.response_failed(error);
                    if let Some(reply) = &outcome.reply {
                        self.counters.count(Counter::NakSent);
                        self.reply(qp, reply);
                    }
                    if outcome.event == Some(AsyncEvent::AccessError) {
                        qp.raise(Event::AccessError);
                    }
                    if outcome.error {
                        qp.fail();
                    }
                    return;
                }
            }
        }
        // Packets that were received meanwhile.
        after.again |= !self.backlog.is_empty();
    }

    /// Sends one READ response.
    #[inline]
    fn send_segment(&mut self, qp: &IbQp, segment: &ReadSegment) -> Result<(), SendError> {
        let pd = self.pd;
        self.tx.send(
            qp,
            |pkey, buf| segment.write_headers(pkey, buf),
            segment.len,
            |skb| {
                let region = mr::find_remote(segment.rkey.get(), pd, qp.qpn, Access::REMOTE_READ)?;
                let at = region.offset(segment.va, u64::from(segment.len))?;
                // CAST: Widening.
                region.memory().append_to(at, segment.len as usize, skb)
            },
            clock::now,
            &self.counters,
        )
    }
}
