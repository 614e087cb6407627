// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: several queue pairs take receive requests from one queue.

use crate::{
    device::{
        Ferroce,
        IbSrq,
        MAX_SGE, //
    },
    pool::{
        self,
        Charge,
        KERNEL_OBJECTS,
        MAX_OBJECTS, //
    },
    qp::rq,
    queue::Queue,
    ucontext::MmapEntry,
    work, //
};
use core::iter;
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use rdma::{
    ib::{
        object::PdId,
        resource::ResourceEntry,
        srq::{
            SrqAttr,
            SrqChange,
            SrqInit, //
        },
        udata::Udata,
        wr::RecvList, //
    },
    new_spinlock_irqsave,
    sync::{
        Global,
        Number,
        SpinLockIrqSave,
        Table, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use roce::{
    qp::caps,
    uapi::{
        resp::{
            CreateSrqResp,
            ModifySrqCmd, //
        },
        ring::Ring, //
    }, //
};
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

/// The maximum number of requests of a queue: one less than a power of two, like the capacity of a
/// ring. With the maximum number of scatter entries, such a ring takes 64 MiB.
pub(crate) const MAX_SRQ_WR: u32 = (1 << 16) - 1;

/// The maximum number of requests that a resize copies before it drops the lock: at most 16 KiB.
const COPY_AT_ONCE: u32 = 16;

/// A shared receive queue.
///
/// `inner` is taken in any context: inside the lock of a receive half that takes a request, and by
/// a kernel consumer that posts. A process posts without the kernel.
#[pin_data]
pub(crate) struct Srq {
    /// The protection domain of the memory that requests name.
    pub(crate) pd: PdId,
    pub(crate) max_sge: u32,
    #[pin]
    inner: SpinLockIrqSave<Inner>,
    /// Serialises modify, because a resize uses two rings. Taken outside of `inner`.
    #[pin]
    modify: Mutex<()>,
    #[pin]
    work: Work<LimitReached>,
    /// Dropped after the work item, which finds the queue by this number.
    pub(crate) number: Number<IbSrq>,
    /// Dropped after the number, so that processes never hold more numbers than there are charges.
    _charge: Option<Charge>,
}

struct Inner {
    queue: Queue,
    /// The number of requests that were taken, which is the unmasked index of the next one.
    taken: u32,
    /// During a resize: the old ring, and the number of requests, from the next one on, that are
    /// only in this ring. A request has the same index in both rings, except for the mask.
    old: Option<(Queue, u32)>,
    /// The event is raised once fewer requests than this are left.
    limit: u32,
    /// Allows a process to map its ring; `None` for a kernel consumer.
    mmap_entry: Option<MmapEntry>,
}

impl Inner {
    /// Returns the number of posted requests.
    fn posted(&self) -> u32 {
        self.queue.ring().count(self.queue.producer(), self.taken)
    }
}

static TABLE: Global<Table<IbSrq>> = Global::new();

/// Constructs the table. Called once, before any device exists.
pub(crate) fn init() -> Result {
    let numbers = 1..=MAX_OBJECTS + KERNEL_OBJECTS;
    TABLE.init(Table::new(numbers))
}

impl Srq {
    pub(crate) fn new(
        init: &mut SrqInit<'_, Ferroce>,
        udata: Option<&mut Udata<'_, Ferroce>>,
    ) -> Result<impl PinInit<Self, Error>> {
        let max_sge = init.attr.max_sge.max(1);
        let ring = lay_out(init.attr.max_wr, max_sge)?;
        let charge = Charge::new(&pool::SRQS, init.pd.owner.as_ref())?;
        let queue = Queue::new(ring)?;
        let number = TABLE.get().ok_or(ENODEV)?.reserve()?;
        let srq_num = number.get();
        let mut mmap_entry = None;
        if let Some(udata) = udata {
            let ucontext = udata.ucontext().ok_or(EINVAL)?;
            let mut resp = CreateSrqResp::default();
            if udata.in_len() != 0 || udata.out_len() < resp.as_bytes().len() {
                return Err(EINVAL);
            }
            let entry = ucontext.insert_mmap_entry(queue.memory())?;
            resp.mi = entry.info();
            resp.srq_num = srq_num;
            udata.respond(resp.as_bytes())?;
            mmap_entry = Some(entry);
        }
        init.attr = SrqAttr {
            max_wr: ring.capacity(),
            max_sge,
            limit: 0,
        };
        let pd = init.pd.id();
        let inner = Inner {
            queue,
            taken: 0,
            old: None,
            limit: 0,
            mmap_entry,
        };
        Ok(try_pin_init!(Self {
            number,
            _charge: charge,
            pd,
            max_sge,
            inner <- new_spinlock_irqsave!(inner, "ferroce::Srq::inner"),
            modify <- new_mutex!((), "ferroce::Srq::modify"),
            work <- Work::new(LimitReached(srq_num)),
        }? Error))
    }

    /// Adds the fill level.
    pub(crate) fn fill_res(&self, out: &mut ResourceEntry<'_>) {
        let inner = self.inner.lock();
        let queue = &inner.queue;
        let mask = queue.ring().index_mask();
        let fill = queue.fill(queue.producer(), inner.taken & mask);
        let (limit, resizing) = (inner.limit, inner.old.is_some());
        drop(inner);
        out.number(c"number", self.number.get())
            .number(c"posted", fill.posted)
            .number(c"size", fill.capacity)
            .number(c"producer", fill.producer)
            .number(c"consumer", fill.consumer)
            .number(c"max_sge", self.max_sge)
            .number(c"limit", limit)
            .number(c"resizing", resizing.into());
    }

    /// Takes a request: copies it out of the ring, once, and frees its element. Returns `false` if
    /// none is posted.
    pub(crate) fn take(&self, copy: &mut [u8]) -> bool {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let posted = inner.posted();
        if posted == 0 {
            return false;
        }
        let queue = match &mut inner.old {
            Some((old, left)) if *left > 0 => {
                *left = left.wrapping_sub(1);
                old
            }
            _ => &inner.queue,
        };
        rq::copy_out(queue, inner.taken, self.max_sge, copy);
        inner.taken = inner.taken.wrapping_add(1);
        let index = inner.taken & inner.queue.ring().index_mask();
        inner.queue.set_consumer(index);
        self.check_limit(inner, posted.wrapping_sub(1));
        true
    }

    /// Raises the limit event, once, if fewer requests than the limit are left.
    fn check_limit(&self, inner: &mut Inner, left: u32) {
        if left < inner.limit {
            inner.limit = 0;
            work::queue(&self.work, inner.mmap_entry.is_some());
        }
    }

    /// Posts requests of a kernel consumer.
    pub(crate) fn post(&self, list: &mut RecvList<'_>) -> Result {
        let inner = self.inner.lock();
        if inner.mmap_entry.is_some() {
            // Processes post through the ring.
            return Err(EINVAL);
        }
        iter::from_fn(|| list.next_wr())
            .try_for_each(|(wr_id, sges)| rq::push(&inner.queue, self.max_sge, wr_id, sges))
    }

    /// Returns the attributes.
    pub(crate) fn query(&self) -> SrqAttr {
        let inner = self.inner.lock();
        SrqAttr {
            max_wr: inner.queue.ring().capacity(),
            max_sge: self.max_sge,
            limit: inner.limit,
        }
    }

    /// Changes attributes, all or none.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is out of range, or too small for the posted requests or the limit.
    pub(crate) fn modify(
        &self,
        change: &SrqChange,
        udata: Option<&mut Udata<'_, Ferroce>>,
    ) -> Result {
        let _modify = self.modify.lock();
        let (capacity, limit) = {
            let inner = self.inner.lock();
            (inner.queue.ring().capacity(), inner.limit)
        };
        let limit = change.limit.unwrap_or(limit);
        match change.max_wr {
            Some(max_wr) => {
                let ring = lay_out(max_wr, self.max_sge)?;
                if limit > ring.capacity() {
                    return Err(EINVAL);
                }
                let (queue, mmap_entry) = new_ring(ring, udata)?;
                self.replace(queue, mmap_entry)?;
                self.empty_old();
            }
            None if limit > capacity => return Err(EINVAL),
            None => {}
        }
        if change.limit.is_some() {
            let mut inner = self.inner.lock();
            inner.limit = limit;
            let left = inner.posted();
            self.check_limit(&mut inner, left);
        }
        Ok(())
    }

    /// Installs another ring. Posted requests remain in the old one for now.
    fn replace(&self, new: Queue, mmap_entry: Option<MmapEntry>) -> Result {
        let mut inner = self.inner.lock();
        let posted = inner.posted();
        if posted > new.ring().capacity() {
            drop(inner);
            // Memory must not be freed under the lock, with interrupts off.
            drop((new, mmap_entry));
            return Err(EINVAL);
        }
        let mask = new.ring().index_mask();
        let end = inner.taken.wrapping_add(posted);
        new.set_consumer(inner.taken & mask);
        new.set_producer(end & mask);
        let old = core::mem::replace(&mut inner.queue, new);
        inner.old = Some((old, posted));
        let before = core::mem::replace(&mut inner.mmap_entry, mmap_entry);
        drop(inner);
        drop(before);
        Ok(())
    }

    /// Moves the posted requests from the old ring to the new one, and drops the old one. It begins
    /// with the last request, because queue pairs may take the first ones meanwhile.
    fn empty_old(&self) {
        loop {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            match &mut inner.old {
                Some((old, left)) if *left > 0 => {
                    for _ in 0..COPY_AT_ONCE.min(*left) {
                        *left = left.wrapping_sub(1);
                        inner
                            .queue
                            .copy_element(old, inner.taken.wrapping_add(*left));
                    }
                }
                old => {
                    let old = old.take();
                    drop(guard);
                    drop(old);
                    return;
                }
            }
        }
    }
}

/// Lays out a ring.
fn lay_out(max_wr: u32, max_sge: u32) -> Result<Ring> {
    if max_wr == 0 {
        return Err(EINVAL);
    }
    caps::recv_ring(max_wr, max_sge, MAX_SRQ_WR, MAX_SGE).ok_or(EINVAL)
}

/// Creates a ring, and responds to a process with the offset to map it at.
fn new_ring(
    ring: Ring,
    udata: Option<&mut Udata<'_, Ferroce>>,
) -> Result<(Queue, Option<MmapEntry>)> {
    let queue = Queue::new(ring)?;
    let Some(udata) = udata else {
        return Ok((queue, None));
    };
    let ucontext = udata.ucontext().ok_or(EINVAL)?;
    let mut cmd = ModifySrqCmd::new_zeroed();
    udata.read(cmd.as_mut_bytes())?;
    let mmap_entry = ucontext.insert_mmap_entry(queue.memory())?;
    let info = mmap_entry.info();
    // The verb has no response. If it fails later, the library ignores this. CAST: Addresses are 64
    // bits wide.
    let addr = UserPtr::from_addr(cmd.mmap_info_addr as usize);
    UserSlice::new(addr, info.as_bytes().len())
        .writer()
        .write_slice(info.as_bytes())?;
    Ok((queue, Some(mmap_entry)))
}

/// The work item: raises the limit event.
struct LimitReached(u32);

impl WorkItem for LimitReached {
    fn run(&self) {
        // Queued only when the limit was reached.
        if let Some(srq) = TABLE.get().and_then(|table| table.get(self.0)) {
            srq.notify_limit();
        }
    }
}
