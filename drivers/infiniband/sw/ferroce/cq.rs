// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use crate::{
    device::{
        CqRef,
        Ferroce,
        IbCq, //
    },
    doorbell::Doorbell,
    pool::{
        self,
        Charge,
        KERNEL_OBJECTS,
        MAX_OBJECTS, //
    },
    queue::{
        Fill,
        Queue, //
    },
    ucontext::MmapEntry,
    work, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Mutex, //
    }, //
};
use rdma::{
    ib::{
        cq::{
            Wc,
            WcArray, //
        },
        enums::{
            NetworkType,
            WcFlags,
            WcOpcode,
            WcStatus, //
        },
        qp::QpHandle,
        resource::ResourceEntry,
        udata::Udata, //
    },
    new_spinlock_irqsave,
    sync::{
        cond_resched,
        BottomHalvesOff,
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
    fifo::Fifo,
    qp::caps::completion_ring,
    uapi::{
        cqe::{
            Cqe,
            CQE_LEN,
            WC_SL_IPV6, //
        },
        resp::MmapInfo, //
    },
    wr::Status, //
};
use zerocopy::IntoBytes;

/// The maximum number of entries that a consumer may request: one less than a power of two, like
/// the capacity of a ring. Such a ring takes 16 MiB.
pub(crate) const MAX_CQE: u32 = (1 << 18) - 1;

/// The maximum number of completions that [`Cq::remove`] examines before it drops the lock, which
/// disables interrupts.
const REMOVED_AT_ONCE: usize = 64;

/// A completion, with the fields that decide on the notification of the consumer.
pub(crate) struct Completion {
    pub(crate) cqe: Cqe,
    pub(crate) qp: QpHandle,
    pub(crate) solicited: bool,
    /// The VLAN of a received datagram.
    pub(crate) vlan: Option<u16>,
}

/// The result of adding a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It was added.
    Quiet,
    /// It was added, and the consumer must be notified: call [`notify`].
    Notify,
    /// It was lost: the queue is full.
    Lost,
}

/// The completions that cause a call of the handler.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

/// The storage of completions.
enum Store {
    /// A ring that the process polls.
    User {
        queue: Queue,
        producer: u32,
        mmap_entry: MmapEntry,
    },
    /// Completions for `ib_poll_cq()`.
    Kernel(Fifo<KVVec<Option<Wc>>>),
}

struct Inner {
    store: Store,
    armed: Armed,
    /// True once a completion was lost. Reported only once.
    overrun: bool,
    overrun_pending: bool,
}

/// A completion queue.
///
/// `inner` is taken in any context, inside the lock of a half of a queue pair. The completion
/// handler is called without it; that of a kernel consumer is called by the work item, so its calls
/// never overlap.
#[pin_data]
pub(crate) struct Cq {
    #[pin]
    inner: SpinLockIrqSave<Inner>,
    is_user: bool,
    /// The polls of a process, and the doorbells of the queue pairs whose send requests complete
    /// here.
    doorbell: Doorbell,
    /// Serialises resizes of the queue of a process, and growth of and removals from the queue of a
    /// kernel consumer. Taken outside of `inner`.
    ///
    /// The value is the number of completions that the queue of a kernel consumer must hold.
    #[pin]
    change: Mutex<usize>,
    /// Not zero if the work item must call the handler of a kernel consumer.
    wanted: Atomic<u32>,
    #[pin]
    work: Work<Notify>,
    /// Dropped after the work item, which finds the queue by this number.
    pub(crate) number: Number<IbCq>,
    /// Dropped after the number, so that processes never hold more numbers than there are charges.
    _charge: Option<Charge>,
}

static TABLE: Global<Table<IbCq>> = Global::new();

/// Constructs the table. Called once, before any device exists.
pub(crate) fn init() -> Result {
    let numbers = 1..=MAX_OBJECTS + KERNEL_OBJECTS;
    TABLE.init(Table::new(numbers))
}

impl Cq {
    pub(crate) fn new(
        cqe: &mut u32,
        udata: Option<&mut Udata<'_, Ferroce>>,
    ) -> Result<impl PinInit<Self, Error>> {
        if *cqe == 0 || *cqe > MAX_CQE {
            return Err(EINVAL);
        }
        let ucontext = udata.as_ref().and_then(|udata| udata.ucontext());
        let charge = Charge::new(&pool::CQS, ucontext.map(|ucontext| &ucontext.owner))?;
        let store = match udata {
            Some(udata) => {
                let (queue, mmap_entry) = new_ring(*cqe, udata)?;
                *cqe = queue.ring().capacity();
                Store::User {
                    queue,
                    producer: 0,
                    mmap_entry,
                }
            }
            // CAST: Bounded by `MAX_CQE`.
            None => Store::Kernel(Fifo::new(KVVec::from_elem(
                None,
                *cqe as usize,
                GFP_KERNEL,
            )?)),
        };
        let is_user = matches!(store, Store::User { .. });
        // CAST: Bounded by `MAX_CQE`.
        let wanted = *cqe as usize;
        let number = TABLE.get().ok_or(ENODEV)?.reserve()?;
        let work = Notify(number.get());
        Ok(try_pin_init!(Self {
            number,
            _charge: charge,
            inner <- new_spinlock_irqsave!(
                Inner {
                    store,
                    armed: Armed::No,
                    overrun: false,
                    overrun_pending: false,
                },
                "ferroce::Cq::inner"
            ),
            is_user,
            doorbell: Doorbell::new(),
            change <- new_mutex!(wanted, "ferroce::Cq::change"),
            wanted: Atomic::new(0),
            work <- Work::new(work),
        }? Error))
    }

    /// Stops the work item, so that it does not call the handler any more. It is not queued again:
    /// no queue pair completes requests here. May sleep.
    pub(crate) fn stop(&self) {
        self.number.hide();
        self.work.cancel();
    }

    /// Resizes the queue of a process, and returns the new size.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is out of range, or too small for the completions that were not polled
    /// yet.
    pub(crate) fn resize(&self, cqe: u32, udata: &mut Udata<'_, Ferroce>) -> Result<u32> {
        let _change = self.change.lock();
        let (mut queue, mut mmap_entry) = new_ring(cqe, udata)?;
        let new = queue.share();
        let (first, count) = self.replace(&mut queue, &mut mmap_entry, cqe)?;
        // The lock is not needed: the process has not mapped the new ring yet, and new completions
        // go to other elements. A process that writes to the old ring, or maps the new one early,
        // harms only itself.
        for i in 0..count {
            new.copy_element(&queue, first.wrapping_add(i));
        }
        Ok(new.ring().capacity())
    }

    /// Replaces the ring. Returns the unmasked index of the first completion in the old ring that
    /// was not polled yet, and the number of such completions. A completion has the same index in
    /// both rings, except for the mask.
    fn replace(&self, new: &mut Queue, mmap_entry: &mut MmapEntry, cqe: u32) -> Result<(u32, u32)> {
        let mut inner = self.inner.lock();
        let Store::User {
            queue,
            producer,
            mmap_entry: current,
        } = &mut inner.store
        else {
            return Err(EINVAL);
        };
        // Read the index of the process only once: it may change at any time.
        let count = queue.ring().count(*producer, queue.consumer());
        if count > cqe {
            return Err(EINVAL);
        }
        let first = producer.wrapping_sub(count);
        let mask = new.ring().index_mask();
        *producer &= mask;
        new.set_consumer(first & mask);
        new.set_producer(*producer);
        core::mem::swap(queue, new);
        core::mem::swap(current, mmap_entry);
        Ok((first, count))
    }

    /// Makes the queue of a kernel consumer hold `count` completions more. May sleep.
    ///
    /// Memory is allocated without the lock, because reclaim may wait for the removal of a queue
    /// pair, which takes the lock.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn grow(&self, count: usize) -> Result {
        let wanted = {
            let mut wanted = self.change.lock();
            *wanted = wanted.saturating_add(count);
            *wanted
        };
        if self.capacity() >= wanted {
            return Ok(());
        }
        let slots =
            KVVec::from_elem(None, wanted, GFP_KERNEL).inspect_err(|_| self.shrink(count))?;
        let change = self.change.lock();
        let mut inner = self.inner.lock();
        let old = match &mut inner.store {
            Store::User { .. } => slots,
            Store::Kernel(wcs) => wcs.move_to(slots),
        };
        drop(inner);
        drop(change);
        drop(old);
        Ok(())
    }

    /// Returns the number of completions that the queue of a kernel consumer can hold.
    fn capacity(&self) -> usize {
        match &self.inner.lock().store {
            Store::User { .. } => 0,
            Store::Kernel(wcs) => wcs.capacity(),
        }
    }

    /// Reverses [`Cq::grow`]. The memory stays.
    fn shrink(&self, count: usize) {
        let mut wanted = self.change.lock();
        *wanted = wanted.saturating_sub(count);
    }

    /// Adds a completion. If it is lost, a CQ error is raised; the caller must fail the queue pair.
    #[must_use]
    pub(crate) fn push(&self, completion: &Completion) -> Pushed {
        let mut inner = self.inner.lock();
        let pushed = match &mut inner.store {
            Store::User {
                queue, producer, ..
            } => {
                let consumer = queue.consumer();
                self.doorbell.complete(consumer);
                let full = queue.ring().is_full(*producer, consumer);
                if !full {
                    let mut bytes = [0; CQE_LEN];
                    completion.cqe.write(&mut bytes);
                    queue.write_at(*producer, 0, &bytes);
                    *producer = queue.ring().next(*producer);
                    queue.set_producer(*producer);
                }
                !full
            }
            Store::Kernel(wcs) => wcs.push(completion.wc()),
        };
        if !pushed {
            if !inner.overrun {
                inner.overrun = true;
                inner.overrun_pending = true;
                work::queue(&self.work, self.is_user);
            }
            return Pushed::Lost;
        }
        // A completion with an error counts as solicited.
        let solicited = completion.solicited || completion.cqe.status != Status::Success;
        let notify = match inner.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Any => true,
        };
        if notify {
            inner.armed = Armed::No;
            Pushed::Notify
        } else {
            Pushed::Quiet
        }
    }

    /// Accounts for a doorbell of a process, for a queue pair whose send requests complete here and
    /// whose receive requests complete to `recv_cq`. Returns whether the process keeps posting.
    pub(crate) fn ring_doorbell(&self, recv_cq: &Self) -> bool {
        // Check both in any case. If they are the same queue, the second check returns `false`.
        let received = recv_cq.doorbell.is_polled();
        self.doorbell.ring(self.doorbell.is_polled() || received)
    }

    pub(crate) fn poll(&self, out: &mut WcArray<'_>) {
        let mut inner = self.inner.lock();
        let Store::Kernel(wcs) = &mut inner.store else {
            return;
        };
        while !out.is_full() {
            let Some(wc) = wcs.pop() else {
                return;
            };
            out.push(&wc);
        }
    }

    /// Removes the completions of a queue pair from the queue of a kernel consumer, which may
    /// dereference `ib_wc.qp` when it polls. The queue pair must not add completions meanwhile. May
    /// sleep.
    ///
    /// Nothing is removed from the queue of a process: its completions only contain the number of
    /// the queue pair, and the ring belongs to the library.
    pub(crate) fn remove(&self, qp: QpHandle) {
        if self.is_user {
            return;
        }
        let _change = self.change.lock();
        let mut is_first = true;
        loop {
            let mut inner = self.inner.lock();
            let Store::Kernel(wcs) = &mut inner.store else {
                return;
            };
            if is_first {
                wcs.begin_removal();
                is_first = false;
            }
            if !wcs.remove(REMOVED_AT_ONCE, |wc| wc.qp == qp) {
                return;
            }
            drop(inner);
            cond_resched();
        }
    }

    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut inner = self.inner.lock();
        if !solicited_only {
            inner.armed = Armed::Any;
        } else if inner.armed == Armed::No {
            inner.armed = Armed::Solicited;
        }
        match &inner.store {
            Store::User {
                queue, producer, ..
            } => !queue.ring().is_empty(*producer, queue.consumer()),
            Store::Kernel(wcs) => !wcs.is_empty(),
        }
    }

    /// Adds the fill level and the state of the notification.
    pub(crate) fn fill_res(&self, out: &mut ResourceEntry<'_>) {
        let inner = self.inner.lock();
        let fill = match &inner.store {
            Store::User {
                queue, producer, ..
            } => queue.fill(*producer, queue.consumer()),
            // CAST: There is no memory for 2^32 completions.
            Store::Kernel(wcs) => Fill {
                posted: wcs.len() as u32,
                capacity: wcs.capacity() as u32,
                producer: wcs.tail() as u32,
                consumer: wcs.head() as u32,
            },
        };
        let armed = match inner.armed {
            Armed::No => c"no",
            Armed::Solicited => c"solicited",
            Armed::Any => c"any",
        };
        let overrun = inner.overrun;
        drop(inner);
        out.number(c"number", self.number.get())
            .number(c"waiting", fill.posted)
            .number(c"size", fill.capacity)
            .number(c"producer", fill.producer)
            .number(c"consumer", fill.consumer)
            .string(c"armed", armed)
            .number(c"overrun", overrun.into());
    }
}

/// Room for the completions of all send requests of a queue pair, in the completion queue of a
/// kernel consumer.
///
/// Consumers size their queue for the requests that they signal, but a flush completes all of them.
/// If their completions were lost, consumers would wait for them forever.
pub(crate) struct FlushRoom {
    cq: CqRef,
    count: usize,
}

impl FlushRoom {
    /// Makes room for `count` completions. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(cq: CqRef, count: u32) -> Result<Self> {
        // CAST: Widening.
        let count = count as usize;
        cq.grow(count)?;
        Ok(Self { cq, count })
    }
}

impl Drop for FlushRoom {
    fn drop(&mut self) {
        self.cq.shrink(self.count);
    }
}

impl Completion {
    /// Returns the completion in the form for kernel consumers.
    fn wc(&self) -> Wc {
        Wc {
            wr_id: self.cqe.wr_id,
            status: WcStatus::from_raw(self.cqe.status.as_ib()),
            opcode: WcOpcode::from_raw(self.cqe.opcode.as_ib()),
            byte_len: self.cqe.byte_len,
            ex: self.cqe.ex(),
            flags: WcFlags::from_raw(self.cqe.flags()),
            src_qp: self.cqe.src_qpn.get(),
            qp: self.qp,
            network_hdr_type: if self.cqe.sl == WC_SL_IPV6 {
                NetworkType::IPV6
            } else {
                NetworkType::IPV4
            },
            vlan: self.vlan,
        }
    }
}

/// Creates a ring, and responds to the process with the offset to map it at.
fn new_ring(cqe: u32, udata: &mut Udata<'_, Ferroce>) -> Result<(Queue, MmapEntry)> {
    let ucontext = udata.ucontext().ok_or(EINVAL)?;
    if cqe == 0 || udata.out_len() < size_of::<MmapInfo>() {
        return Err(EINVAL);
    }
    let ring = completion_ring(cqe, MAX_CQE).ok_or(EINVAL)?;
    let queue = Queue::new(ring)?;
    let mmap_entry = ucontext.insert_mmap_entry(queue.memory())?;
    udata.respond(mmap_entry.info().as_bytes())?;
    Ok((queue, mmap_entry))
}

/// Calls the completion handler, or queues the work item to do so. Any context; the caller may hold
/// the lock of a half.
pub(crate) fn notify(cq: &CqRef) {
    if cq.is_user {
        // `ib_uverbs_comp_handler()`, which takes only locks that no verb is called under.
        cq.notify();
    } else {
        // The completion may have been added by a verb of the consumer, which must not be called
        // back from its own call.
        cq.wanted.store(1, Release);
        work::queue(&cq.work, false);
    }
}

/// The work item: calls the handler of a kernel consumer, and raises a CQ error after an overrun.
struct Notify(u32);

impl WorkItem for Notify {
    fn run(&self) {
        let Some(cq) = TABLE.get().and_then(|table| table.get(self.0)) else {
            return;
        };
        let overrun = core::mem::take(&mut cq.inner.lock().overrun_pending);
        if overrun {
            cq.notify_error();
        }
        if cq.wanted.xchg(0, Acquire) != 0 {
            // A work item never runs concurrently with itself, and so neither does the handler.
            // A handler may raise a softirq (`IB_POLL_SOFTIRQ`), which runs when bottom halves are
            // on again; otherwise it would wait for ksoftirqd.
            let _bh = BottomHalvesOff::new();
            cq.notify();
        }
    }
}
