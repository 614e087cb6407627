// SPDX-License-Identifier: GPL-2.0

//! The send queue: work requests in the ring, and private copies of the parts that requests in
//! flight need.

use super::{
    sge,
    Qp, //
};
use crate::{
    ah::{
        self,
        Av, //
    },
    device::Ferroce,
    mr::{
        self,
        window,
        OdpFault,
        RegionCache, //
    },
    queue::{
        Fill,
        Queue, //
    }, //
};
use core::ops::Range;
use kernel::prelude::*;
use rdma::{
    ib::{
        enums::SendFlags,
        object::PdId,
        wr::{
            Args,
            SendWr as KernelSendWr, //
        },
        Access, //
    },
    net::skbuff::SkBuff, //
};
use roce::{
    opcode::Transport,
    requester::{
        Local,
        PostError,
        Requester,
        Slot, //
    },
    uapi::wqe::{
        ah_num,
        parse_send,
        send_op,
        sges,
        AtomicArgs,
        BindArgs,
        Payload,
        RdmaArgs,
        SendLimits,
        SendWqe,
        UdArgs,
        SEND_WQE_LEN, //
    },
    wr::{
        MemError,
        SendOp,
        SendWr,
        Status, //
    }, //
};
use zerocopy::{
    FromBytes,
    FromZeros,
    IntoBytes,
    KnownLayout, //
};

/// The most requests in flight: each has a private copy, which bounds the memory of a queue pair.
pub(crate) const MAX_IN_FLIGHT: u32 = 256;

/// A send queue.
pub(crate) struct Sq {
    queue: Queue,
    transport: Transport,
    pd: PdId,
    limits: SendLimits,
    signal_all: bool,
    /// True if an event is to be raised once the queue has drained (SQD).
    pub(super) notify_drained: bool,
    /// The index of the next request to fetch.
    fetch: u32,
    /// The consumer index that the process sees, which advances when requests complete.
    consumer: u32,
    /// The size of the private copy of a tail, in bytes.
    stride: usize,
    /// Private copies of tails (inline data or SGEs), one for each slot of the requester. Nothing
    /// else of a request is needed once it is parsed.
    tails: KVVec<u8>,
    /// The kind of payload in each tail.
    payloads: KVec<Payload>,
    /// The address vectors of datagrams.
    avs: KVec<Option<Av>>,
}

impl Sq {
    pub(crate) fn new(
        queue: Queue,
        transport: Transport,
        pd: PdId,
        limits: SendLimits,
        signal_all: bool,
        slots: usize,
    ) -> Result<Self> {
        let tail = limits.max_tail_len();
        let stride = tail.checked_next_multiple_of(8).ok_or(EINVAL)?;
        let bytes = stride.checked_mul(slots).ok_or(EINVAL)?;
        let avs = if transport == Transport::Ud { slots } else { 0 };
        Ok(Self {
            queue,
            transport,
            pd,
            limits,
            signal_all,
            notify_drained: false,
            fetch: 0,
            consumer: 0,
            stride,
            tails: KVVec::from_elem(0, bytes, GFP_KERNEL_ACCOUNT)?,
            payloads: KVec::from_elem(Payload::Inline { len: 0 }, slots, GFP_KERNEL_ACCOUNT)?,
            avs: KVec::from_elem(None, avs, GFP_KERNEL_ACCOUNT)?,
        })
    }

    /// Sets the Q_Key of the queue pair, which replaces a controlled Q_Key of a request.
    pub(crate) fn set_qkey(&mut self, qkey: roce::ids::Qkey) {
        self.limits.qkey = qkey;
    }

    /// Returns the fill level of the ring.
    pub(crate) fn fill(&self) -> Fill {
        self.queue.fill(self.queue.producer(), self.consumer)
    }

    /// Fetches one request into the requester. Returns `false` if there is none, or no slot is
    /// free.
    ///
    /// `wqe` is the room for a private copy of its header.
    pub(crate) fn pull(&mut self, req: &mut Requester<KVec<Slot>>, wqe: &mut SendWqe) -> bool {
        let Some(slot) = req.next_slot() else {
            return false;
        };
        if self
            .queue
            .ring()
            .is_empty(self.queue.producer(), self.fetch)
        {
            return false;
        }
        let range = self.range(slot);
        let tail = self.tails.get_mut(range).unwrap_or(&mut []);
        read(&self.queue, self.fetch, &self.limits, wqe, tail);
        let parsed = parse_send(wqe, tail, self.transport, &self.limits);
        self.fetch = self.queue.ring().next(self.fetch);

        let (mut wr, payload, mut error) = match parsed {
            Ok((wr, payload)) => (wr, payload, None),
            // An empty send takes the place of the request in the order of completions. Its slot
            // fails at once, so it is never transmitted.
            Err(status) => {
                let wr = SendWr {
                    wr_id: wqe.wr_id.get(),
                    ..SendWr::default()
                };
                (wr, Payload::Inline { len: 0 }, Some(status))
            }
        };
        wr.signalled |= self.signal_all;
        if self.transport == Transport::Ud && !self.limits.raw && error.is_none() {
            let av = self.find_av(wqe);
            if av.is_none() {
                error = Some(Status::LocQpOp);
            }
            if let Some(kept) = self.avs.get_mut(usize::from(slot)) {
                *kept = av;
            }
        }
        if let Some(kept) = self.payloads.get_mut(usize::from(slot)) {
            *kept = payload;
        }
        if let Err(e) = req.post(wr) {
            // Post a request that the requester accepts instead, so that it fails in order.
            error = Some(match e {
                PostError::TooLong => Status::LocLen,
                PostError::BadOpcode | PostError::Full => Status::LocQpOp,
            });
            wr.op = SendOp::Send;
            wr.length = 0;
            if req.post(wr).is_err() {
                return false;
            }
        }
        if let Some(status) = error {
            req.local_error(slot, status);
        }
        true
    }

    /// Counts one request as completed, oldest first.
    pub(crate) fn complete(&mut self) {
        self.consumer = self.queue.ring().next(self.consumer);
        self.queue.set_consumer(self.consumer);
    }

    /// Discards the posted requests (RESET, and a refused doorbell). The library never rewinds, so
    /// the consumer index moves up to the producer's.
    pub(crate) fn discard(&mut self) {
        let producer = self.queue.producer();
        self.fetch = producer;
        self.consumer = producer;
        self.queue.set_consumer(self.consumer);
    }

    /// Returns the address vector of the datagram of a slot.
    pub(crate) fn av(&self, slot: u16) -> Option<&Av> {
        self.avs.get(usize::from(slot))?.as_ref()
    }

    /// Appends `len` bytes at `offset` of the message of a slot to a packet.
    #[inline]
    pub(crate) fn gather(
        &self,
        slot: u16,
        offset: u32,
        len: u32,
        skb: &mut SkBuff,
        regions: &mut RegionCache,
    ) -> Result<(), MemError> {
        let (payload, tail) = self.slot(slot).ok_or(MemError::Fault)?;
        match payload {
            Payload::Inline { len: total } => {
                let data = tail.get(..usize::from(total)).ok_or(MemError::Fault)?;
                // CAST: Widening.
                let (from, len) = (offset as usize, len as usize);
                let data = data
                    .get(from..from.saturating_add(len))
                    .ok_or(MemError::Length)?;
                skb.append(data).map_err(|_| MemError::Fault)
            }
            Payload::Sges { count } => {
                let sges = sges(tail, count.into()).ok_or(MemError::Fault)?;
                sge::gather(self.pd, sges, offset, len, skb, regions)
            }
        }
    }

    /// Executes a local operation.
    ///
    /// # Errors
    ///
    /// The status that the request completes with.
    pub(crate) fn execute(&self, local: &Local, qp: &Qp) -> Result<(), Status> {
        let result = match local.op {
            SendOp::LocalInv => mr::invalidate(local.key.get(), self.pd, qp.qpn, false),
            SendOp::BindMw => window::bind(local, self.pd, qp.qpn),
            SendOp::RegMr => mr::register(local, self.pd),
            _ => return Err(Status::LocQpOp),
        };
        // IBTA defines a memory management operation error, for which the kernel only has
        // IB_WC_MW_BIND_ERR. C rxe reports IB_WC_LOC_QP_OP_ERR.
        result.map_err(|_| Status::MwBind)
    }

    /// Copies bytes to `offset` of the buffers of a slot, of a READ or an atomic operation.
    #[inline]
    pub(crate) fn scatter(
        &self,
        slot: u16,
        offset: u32,
        bytes: &[u8],
        regions: &mut RegionCache,
    ) -> Result<(), MemError> {
        let (Payload::Sges { count }, tail) = self.slot(slot).ok_or(MemError::Fault)? else {
            return Err(MemError::Length);
        };
        let sges = sges(tail, count.into()).ok_or(MemError::Fault)?;
        sge::scatter(self.pd, sges, offset, bytes, regions)
    }

    /// Returns the fault to resolve before `len` bytes at `offset` of the message of a slot can be
    /// sent or, depending on `access`, received.
    ///
    /// # Errors
    ///
    /// See [`gather`](Self::gather) and [`scatter`](Self::scatter).
    #[cold]
    pub(crate) fn odp_fault(
        &self,
        slot: u16,
        offset: u32,
        len: u32,
        ahead: u64,
        access: Access,
    ) -> Result<Option<OdpFault>, MemError> {
        let (Payload::Sges { count }, tail) = self.slot(slot).ok_or(MemError::Fault)? else {
            return Ok(None);
        };
        let sges = sges(tail, count.into()).ok_or(MemError::Fault)?;
        sge::odp_fault(self.pd, sges, offset, len, ahead, access)
    }

    /// Returns the range of the private copy of a slot in `tails`.
    #[inline]
    fn range(&self, slot: u16) -> Range<usize> {
        let from = usize::from(slot).saturating_mul(self.stride);
        from..from.saturating_add(self.stride)
    }

    /// Looks up the address handle that a request names.
    fn find_av(&self, wqe: &SendWqe) -> Option<Av> {
        let number = ah_num(wqe)?;
        let av = ah::find(number.get())?;
        (av.pd == self.pd).then_some(av)
    }

    /// Returns the payload of a slot, and its tail.
    #[inline]
    fn slot(&self, slot: u16) -> Option<(Payload, &[u8])> {
        let tail = self.tails.get(self.range(slot)).unwrap_or(&[]);
        Some((*self.payloads.get(usize::from(slot))?, tail))
    }
}

/// Copies the request at `index` out of the ring, once.
#[inline]
fn read(queue: &Queue, index: u32, limits: &SendLimits, wqe: &mut SendWqe, tail: &mut [u8]) {
    // If a read fails, the old contents remain, and are validated again.
    queue.read(index, 0, wqe.front_mut());
    queue.read(index, SendWqe::DMA, wqe.dma.as_mut_bytes());
    let len = wqe.tail_len(limits).saturating_add(7) & !7;
    if let Some(tail) = tail.get_mut(..len) {
        queue.read(index, SEND_WQE_LEN, tail);
    }
}

/// Posts a request of a kernel consumer.
pub(super) fn push(queue: &Queue, max_sge: u32, wr: &KernelSendWr<'_, Ferroce>) -> Result {
    let sges = wr.sges();
    sge::check(queue, max_sge, &sges)?;
    // Queue pairs of kernel consumers have no room for inline data, which must be copied before
    // this returns.
    if wr.flags().contains(SendFlags::INLINE) || send_op(wr.opcode().raw(), true).is_none() {
        return Err(EINVAL);
    }
    let mut wqe = SendWqe::new_zeroed();
    wqe.wr_id.set(wr.wr_id());
    wqe.opcode.set(wr.opcode().raw());
    wqe.send_flags.set(wr.flags().raw());
    wqe.ex = wr.ex();
    // CAST: Bounded by `max_sge`.
    wqe.dma.num_sge.set(sges.len() as u32);
    match wr.args() {
        Args::Datagram { ah, qpn, qkey } => {
            let args: &mut UdArgs = args(&mut wqe)?;
            args.remote_qpn.set(qpn);
            args.remote_qkey.set(qkey);
            args.ah_num.set(ah.number());
        }
        Args::Rdma { addr, rkey } => {
            let args: &mut RdmaArgs = args(&mut wqe)?;
            args.remote_addr.set(addr);
            args.rkey.set(rkey);
        }
        Args::Atomic {
            addr,
            compare_add,
            swap,
            rkey,
        } => {
            let args: &mut AtomicArgs = args(&mut wqe)?;
            args.remote_addr.set(addr);
            args.compare_add.set(compare_add);
            args.swap.set(swap);
            args.rkey.set(rkey);
        }
        Args::Register {
            iova,
            mr_key,
            key,
            access,
        } => {
            // The key names the region, and the consumer may only choose its tag.
            if !mr::is_same_region(mr_key, key) {
                return Err(EINVAL);
            }
            let args: &mut BindArgs = args(&mut wqe)?;
            args.addr.set(iova);
            args.rkey.set(key);
            args.access.set(access.raw());
        }
        Args::None => {}
    }
    sge::push(queue, wqe.as_bytes(), sges)
}

/// Returns the arguments of an operation, at the front of their union.
fn args<T: FromBytes + IntoBytes + KnownLayout>(wqe: &mut SendWqe) -> Result<&mut T> {
    let (args, _) = T::mut_from_prefix(&mut wqe.args).map_err(|_| EINVAL)?;
    Ok(args)
}
