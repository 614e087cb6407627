// SPDX-License-Identifier: GPL-2.0

//! The receive queue: work requests in the ring, and a private copy of the one in use.

use super::sq::scatter;
use crate::queue::Queue;
use kernel::prelude::*;
use rdma::ib::{
    object::PdId,
    wr::Sges, //
};
use roce::{
    responder::RecvQueue,
    uapi::wqe::{
        parse_recv,
        recv_sge,
        RawSge,
        RecvWqe,
        RecvWr,
        RECV_WQE_LEN,
        SGE_LEN, //
    },
    wr::MemError, //
};
use zerocopy::{
    FromBytes,
    FromZeros,
    IntoBytes, //
};

/// A receive queue.
pub(crate) struct Rq {
    queue: Queue,
    pd: PdId,
    max_sge: u32,
    /// The request in use, or the next one.
    consumer: u32,
    /// A private copy of the request in use.
    copy: KVec<u8>,
    /// What the copy says.
    wr: RecvWr,
}

impl Rq {
    pub(crate) fn new(queue: Queue, pd: PdId, max_sge: u32) -> Result<Self> {
        // CAST: Bounded by the device's limit.
        let len = (max_sge as usize)
            .saturating_mul(SGE_LEN)
            .saturating_add(RECV_WQE_LEN);
        Ok(Self {
            queue,
            pd,
            max_sge,
            consumer: 0,
            copy: KVec::from_elem(0, len, GFP_KERNEL_ACCOUNT)?,
            wr: EMPTY,
        })
    }

    /// Returns the cookie of the request in use.
    pub(crate) fn wr_id(&self) -> u64 {
        self.wr.wr_id
    }

    /// Ends the request in use.
    pub(crate) fn complete(&mut self) {
        self.consumer = self.queue.ring().next(self.consumer);
        self.queue.set_consumer(self.consumer);
        self.wr = EMPTY;
    }

    /// Returns whether something is posted.
    pub(crate) fn has_posted(&self) -> bool {
        !self
            .queue
            .ring()
            .is_empty(self.queue.producer(), self.consumer)
    }

    /// Returns the cookie of the next request and ends it.
    pub(crate) fn flush_one(&mut self) -> Option<u64> {
        let _ = self.take()?;
        let wr_id = self.wr.wr_id;
        self.complete();
        Some(wr_id)
    }

    /// Throws away what was posted (RESET). The library never rewinds, so the consumer index moves
    /// up to the producer's.
    pub(crate) fn discard(&mut self) {
        self.consumer = self.queue.producer();
        self.queue.set_consumer(self.consumer);
        self.wr = EMPTY;
    }

    /// Copies bytes to `offset` of the buffers of the request in use.
    pub(crate) fn scatter(&self, offset: u32, bytes: &[u8]) -> Result<(), MemError> {
        scatter(
            self.pd,
            self.wr.num_sge,
            |i| recv_sge(&self.copy, i).map(|sge| (sge.addr, sge.length, sge.lkey.get())),
            offset,
            bytes,
        )
    }
}

/// No request.
const EMPTY: RecvWr = RecvWr {
    wr_id: 0,
    num_sge: 0,
    length: 0,
};

impl RecvQueue for Rq {
    /// Copies the next request out of the ring, once. It stays there until it completes.
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        if !self.has_posted() {
            return None;
        }
        if let Some((head, tail)) = self.copy.split_at_mut_checked(RECV_WQE_LEN) {
            self.queue.read(self.consumer, 0, head);
            let len = RecvWqe::ref_from_bytes(head).map_or(0, |wqe| wqe.tail_len(self.max_sge));
            if let Some(tail) = tail.get_mut(..len) {
                self.queue.read(self.consumer, RECV_WQE_LEN, tail);
            }
        }
        match parse_recv(&self.copy, self.max_sge) {
            Ok(wr) => {
                self.wr = wr;
                Some(Ok(wr.length))
            }
            Err(e) => {
                self.wr = RecvWr {
                    wr_id: e.wr_id,
                    ..EMPTY
                };
                Some(Err(MemError::Fault))
            }
        }
    }
}

/// The producer's side of the receive queue of a kernel consumer.
pub(crate) struct KernelRq {
    producer: u32,
}

impl KernelRq {
    pub(crate) fn new() -> Self {
        Self { producer: 0 }
    }

    /// Writes a request into the ring.
    pub(crate) fn push(
        &mut self,
        queue: &Queue,
        max_sge: u32,
        wr_id: u64,
        sges: Sges<'_>,
    ) -> Result {
        if queue.ring().is_full(self.producer, queue.consumer()) {
            return Err(ENOMEM);
        }
        // CAST: Bounded by the device's limit.
        if sges.len() > max_sge as usize {
            return Err(EINVAL);
        }
        let mut wqe = RecvWqe::new_zeroed();
        wqe.wr_id.set(wr_id);
        // CAST: Bounded by `max_sge`.
        wqe.dma.num_sge.set(sges.len() as u32);
        if !queue.write_at(self.producer, 0, wqe.as_bytes()) {
            return Err(EINVAL);
        }
        let mut offset = RECV_WQE_LEN;
        for i in 0..sges.len() {
            let (addr, length, lkey) = sges.get(i).ok_or(EINVAL)?;
            let mut sge = RawSge::new_zeroed();
            sge.addr.set(addr);
            sge.length.set(length);
            sge.lkey.set(lkey);
            if !queue.write_at(self.producer, offset, sge.as_bytes()) {
                return Err(EINVAL);
            }
            offset = offset.saturating_add(SGE_LEN);
        }
        self.producer = queue.ring().next(self.producer);
        queue.set_producer(self.producer);
        Ok(())
    }
}
