// SPDX-License-Identifier: GPL-2.0

//! Answering READs.

use super::{
    After,
    RecvHalf, //
};
use crate::{
    clock::now,
    counters::Counter,
    device::IbQp,
    mr,
    qp::{
        in_flight,
        path::{
            wait_for_room,
            SendError, //
        },
        Event, //
    },
    traces, //
};
use rdma::ib::Access;
use roce::{
    ids::Pkey,
    responder::{
        AsyncEvent,
        ReadSegment, //
    },
    wire::MAX_HEADER_LEN,
    wr::MemError, //
};

impl RecvHalf {
    /// Sends responses of the READ in progress, within the budget.
    pub(super) fn send_responses(&mut self, qp: &IbQp, after: &mut After) {
        if self.wait.is_pending() || self.tx_backoff.waits(now) {
            return;
        }
        // Known with the first packet: a half that has none to send does not count.
        let mut limit = None;
        while let Some(segment) = self.resp.poll_response() {
            if self.pace.is_on() {
                if let Some(at) = self.pace.wait(now()) {
                    qp.recv_pacer.arm(at.as_ns());
                    return;
                }
            }
            let limit =
                *limit.get_or_insert_with(|| qp.device().senders.limit(&mut self.tx_backoff));
            // After that, because there is one timer for both.
            if !in_flight::admits(&self.account, limit) {
                // The account calls back once the packets have left, if they do.
                qp.recv_pacer.arm(now().after(in_flight::HANDOVER).as_ns());
                return;
            }
            if !after.spend() {
                return;
            }
            match self.send_segment(qp, &segment) {
                // The peer asks again for what it misses.
                Ok(()) => {
                    self.tx_backoff.taken();
                    traces::answered(qp, &segment);
                    self.resp.response_sent();
                }
                Err(SendError::NoRoom)
                    if wait_for_room(
                        qp,
                        &mut self.tx_backoff,
                        now(),
                        &self.account,
                        &qp.recv_pacer,
                        &self.counters,
                    ) =>
                {
                    return;
                }
                Err(SendError::NoRoom | SendError::Lost | SendError::NoMemory) => {
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
        // Packets that came in the meantime.
        after.again |= !self.backlog.is_empty();
    }

    /// Sends one READ response.
    #[inline]
    fn send_segment(&mut self, qp: &IbQp, segment: &ReadSegment) -> Result<(), SendError> {
        let counters = &*self.counters;
        let rejected = || SendError::lost(counters, Counter::Rejected);
        let lost = || SendError::lost(counters, Counter::NoRoute);
        let mut headers = [0; MAX_HEADER_LEN];
        let len = segment
            .write_headers(Pkey::DEFAULT, &mut headers)
            .ok_or_else(rejected)?;
        let headers = headers.get(..len).ok_or_else(rejected)?;
        let pd = self.pd;
        let path = self.path.as_mut().ok_or_else(lost)?;
        path.send(
            &mut self.route,
            headers,
            segment.len,
            |skb| {
                let region = mr::find_remote(segment.rkey.get(), pd, qp.qpn, Access::REMOTE_READ)?;
                let at = region.offset(segment.va, u64::from(segment.len))?;
                // CAST: Widening.
                region.memory().append_to(at, segment.len as usize, skb)
            },
            Some(&self.account),
            counters,
        )?;
        let gap = path.gap(len, segment.len);
        if gap.is_some() || self.pace.is_on() {
            self.pace.sent(now(), gap);
        }
        Ok(())
    }
}
