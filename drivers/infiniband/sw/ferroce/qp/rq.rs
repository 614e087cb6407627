// SPDX-License-Identifier: GPL-2.0

//! The receive queue: work requests in the ring, and a private copy of the one in use.

use super::sge;
use crate::{
    device::SrqRef,
    few::Few,
    mr::{
        OdpFault,
        RegionCache, //
    },
    queue::{
        Fill,
        Queue, //
    }, //
};
use kernel::prelude::*;
use rdma::ib::{
    object::PdId,
    wr::Sges,
    Access, //
};
use roce::{
    responder::RecvQueue,
    uapi::wqe::{
        parse_recv,
        recv_sges,
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

/// The queue that receive requests are taken from.
enum Requests {
    /// The queue of the queue pair.
    Own {
        queue: Queue,
        /// The index of the request in use, or of the next one. A request leaves the ring when it
        /// completes.
        consumer: u32,
    },
    /// A queue that other queue pairs use, too. A request leaves the ring when it is taken.
    Shared {
        srq: SrqRef,
        /// True if the copy contains a request in use.
        held: bool,
    },
}

/// The state of a receive queue in a snapshot.
pub(super) enum RqFill {
    /// The fill level of the own queue.
    Own(Fill),
    /// The number of the shared queue.
    Shared(u32),
}

/// The size of a request with one SGE. A copy of up to this size is stored in place.
const FEW: usize = RECV_WQE_LEN + SGE_LEN;

/// A receive queue.
pub(crate) struct Rq {
    requests: Requests,
    pd: PdId,
    max_sge: u32,
    /// A private copy of the request in use.
    copy: Few<u8, FEW>,
    /// The parsed copy.
    wr: RecvWr,
}

impl Rq {
    /// Takes requests from a ring.
    pub(crate) fn new(queue: Queue, pd: PdId, max_sge: u32) -> Result<Self> {
        Self::from(Requests::Own { queue, consumer: 0 }, pd, max_sge)
    }

    /// Takes requests from a shared queue, in whose protection domain their memory is.
    pub(crate) fn shared(srq: SrqRef) -> Result<Self> {
        let (pd, max_sge) = (srq.pd, srq.max_sge);
        Self::from(Requests::Shared { srq, held: false }, pd, max_sge)
    }

    fn from(requests: Requests, pd: PdId, max_sge: u32) -> Result<Self> {
        // CAST: Bounded by the device's limit.
        let len = (max_sge as usize)
            .saturating_mul(SGE_LEN)
            .saturating_add(RECV_WQE_LEN);
        Ok(Self {
            requests,
            pd,
            max_sge,
            copy: if len <= FEW {
                Few::Few([0; FEW])
            } else {
                Few::Many(KVec::from_elem(0, len, GFP_KERNEL_ACCOUNT)?)
            },
            wr: EMPTY,
        })
    }

    /// Returns the `wr_id` of the request in use.
    pub(crate) fn wr_id(&self) -> u64 {
        self.wr.wr_id
    }

    /// Returns whether requests come from a shared queue.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.requests, Requests::Shared { .. })
    }

    /// Returns the fill level of an own queue, or the number of a shared one.
    pub(super) fn fill(&self) -> RqFill {
        match &self.requests {
            Requests::Own { queue, consumer } => {
                RqFill::Own(queue.fill(queue.producer(), *consumer))
            }
            Requests::Shared { srq, .. } => RqFill::Shared(srq.number.get()),
        }
    }

    /// Ends the request in use.
    pub(crate) fn complete(&mut self) {
        self.end(|queue, consumer| queue.ring().next(consumer));
    }

    /// Ends the next request to flush and returns its `wr_id`: any posted request, or the one that
    /// was taken from a shared queue.
    pub(crate) fn flush_one(&mut self) -> Option<u64> {
        if let Requests::Shared { held, .. } = &self.requests {
            if !held {
                return None;
            }
        } else {
            let _ = self.take()?;
        }
        let wr_id = self.wr.wr_id;
        self.complete();
        Some(wr_id)
    }

    /// Discards the posted requests, or the one that was taken from a shared queue (RESET). The
    /// library never rewinds, so the consumer index moves up to the producer's.
    pub(crate) fn discard(&mut self) {
        self.end(|queue, _| queue.producer());
    }

    /// Ends the requests of an own queue before the one that `next` returns, or the one that was
    /// taken from a shared queue.
    #[inline]
    fn end(&mut self, next: impl FnOnce(&Queue, u32) -> u32) {
        match &mut self.requests {
            Requests::Own { queue, consumer } => {
                *consumer = next(queue, *consumer);
                queue.set_consumer(*consumer);
            }
            Requests::Shared { held, .. } => *held = false,
        }
        self.wr = EMPTY;
    }

    /// Copies bytes to `offset` of the buffers of the request in use.
    pub(crate) fn scatter(
        &self,
        offset: u32,
        bytes: &[u8],
        regions: &mut RegionCache,
    ) -> Result<(), MemError> {
        let sges = recv_sges(self.copy.as_ref(), self.wr.num_sge).ok_or(MemError::Fault)?;
        sge::scatter(self.pd, sges, offset, bytes, regions)
    }

    /// Returns the fault to resolve before `len` bytes can be received at `offset` of the buffers
    /// of the request in use.
    ///
    /// # Errors
    ///
    /// See [`scatter`](Self::scatter).
    #[cold]
    pub(crate) fn odp_fault(
        &self,
        offset: u32,
        len: u32,
        ahead: u64,
    ) -> Result<Option<OdpFault>, MemError> {
        let sges = recv_sges(self.copy.as_ref(), self.wr.num_sge).ok_or(MemError::Fault)?;
        sge::odp_fault(self.pd, sges, offset, len, ahead, Access::LOCAL_WRITE)
    }
}

/// No request.
const EMPTY: RecvWr = RecvWr {
    wr_id: 0,
    num_sge: 0,
    length: 0,
};

impl RecvQueue for Rq {
    /// Copies the next request out of the ring, once.
    fn take(&mut self) -> Option<Result<u32, MemError>> {
        match &mut self.requests {
            Requests::Own { queue, consumer } => {
                if queue.ring().is_empty(queue.producer(), *consumer) {
                    return None;
                }
                copy_out(queue, *consumer, self.max_sge, self.copy.as_mut());
            }
            Requests::Shared { srq, held } => {
                if !srq.take(self.copy.as_mut()) {
                    return None;
                }
                *held = true;
            }
        }
        match parse_recv(self.copy.as_ref(), self.max_sge) {
            Ok(wr) => {
                self.wr = wr;
                Some(Ok(wr.length))
            }
            Err(wr_id) => {
                self.wr = RecvWr { wr_id, ..EMPTY };
                Some(Err(MemError::Fault))
            }
        }
    }
}

/// Copies the request at `index` out of a ring, once: its header, then its SGEs, at most `max_sge`.
#[inline]
pub(crate) fn copy_out(queue: &Queue, index: u32, max_sge: u32, copy: &mut [u8]) {
    if let Ok(copy) = <&mut [u8; FEW]>::try_from(&mut *copy) {
        // Every element is at least that long.
        queue.read(index, 0, copy);
        return;
    }
    let Some((head, tail)) = copy.split_at_mut_checked(RECV_WQE_LEN) else {
        return;
    };
    queue.read(index, 0, head);
    let len = RecvWqe::ref_from_bytes(head).map_or(0, |wqe| wqe.tail_len(max_sge));
    if let Some(tail) = tail.get_mut(..len) {
        queue.read(index, RECV_WQE_LEN, tail);
    }
}

/// Posts a request of a kernel consumer, to its own queue or a shared one.
pub(crate) fn push(queue: &Queue, max_sge: u32, wr_id: u64, sges: Sges<'_>) -> Result {
    sge::check(queue, max_sge, &sges)?;
    let mut wqe = RecvWqe::new_zeroed();
    wqe.wr_id.set(wr_id);
    // CAST: Bounded by `max_sge`.
    wqe.dma.num_sge.set(sges.len() as u32);
    sge::push(queue, wqe.as_bytes(), sges)
}
