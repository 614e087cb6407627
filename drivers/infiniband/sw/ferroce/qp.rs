// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! A queue pair has two halves, each with a lock of its own: [`send`] is the requester and its send
//! queue, [`recv`] the responder and its receive queue. The data path takes one of them; modify and
//! destroy take both, send first. If one half detects something that concerns the other, it sets a
//! new state and queues the work item, which runs both.
//!
//! Documentation/infiniband/ferroce/locking.rst describes the locks.

mod backlog;
mod command;
mod flush_budget;
mod frame;
mod layout;
pub(crate) mod modify;
pub(crate) mod path;
mod post;
pub(crate) mod recv;
pub(crate) mod rq;
mod sched;
pub(crate) mod send;
mod sge;
pub(crate) mod snapshot;
mod sq;
mod tx;
mod wait;

use crate::{
    counters::Counters,
    cq::{
        Completion,
        FlushRoom,
        Pushed, //
    },
    device::{
        CqRef,
        Ferroce,
        IbQp,
        QpRef, //
    },
    errno::errno,
    gids::GsiQp,
    mr::window,
    owner::Owner,
    pool::{
        self,
        KERNEL_OBJECTS,
        MAX_OBJECTS, //
    },
    queue::Queue,
    ucontext::MmapEntry,
    work::{
        self,
        WakeQp, //
    }, //
};
pub(crate) use post::{
    post_recv,
    post_send, //
};

use flush_budget::FlushBudget;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        barrier::smp_mb,
        Arc,
        Mutex, //
    }, //
};
use post::KernelQueues;
use rdma::{
    fine_timer::{
        FineTimer,
        TimerCallback, //
    },
    ib::{
        enums::QpCreateFlags,
        qp::{
            QpCap,
            QpEvent,
            QpHandle,
            QpInit, //
        },
        udata::Udata, //
    },
    new_spinlock_bh,
    sync::{
        Global,
        Number,
        Owned,
        SpinLockBh,
        Table,
        Wake, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use recv::RecvHalf;
use roce::{
    ids::{
        Qkey,
        Qpn, //
    },
    qp::{
        Attrs,
        QpType,
        State, //
    },
    uapi::{
        resp::CreateQpResp,
        wqe::SendLimits, //
    }, //
};
use rq::Rq;
use sched::Sched;
use send::SendHalf;
use sq::{
    Sq,
    MAX_IN_FLIGHT, //
};
use zerocopy::IntoBytes;

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// The number, for the data path.
    pub(crate) qpn: u32,
    pub(crate) ty: QpType,
    pub(crate) handle: QpHandle,
    cap: QpCap,
    signal_all: bool,
    send_cq: CqRef,
    recv_cq: CqRef,
    /// For a kernel consumer.
    _flush_room: Option<FlushRoom>,
    /// The [`State`]. Written by modify and destroy, and by the data path on failure.
    state: Atomic<u32>,
    sched: Sched,
    /// The events that the work item must raise, by [`QpEvent::bit`].
    events: Atomic<u32>,
    send_flush_budget: FlushBudget,
    recv_flush_budget: FlushBudget,
    /// Serialises modify. Taken outside of the locks of the halves.
    #[pin]
    attributes: Mutex<Attrs>,
    #[pin]
    send: SpinLockBh<KBox<SendHalf>>,
    #[pin]
    recv: SpinLockBh<KBox<RecvHalf>>,
    /// The producer's side of the rings of a kernel consumer.
    kernel: Option<Pin<KBox<KernelQueues>>>,
    /// The entries by which a process maps its rings, once each.
    _mmap_entries: [Option<MmapEntry>; 2],
    /// The registration of a management queue pair.
    _gsi: Option<GsiQp>,
    /// The process; `None` for a kernel consumer.
    pub(crate) owner: Option<Arc<Owner>>,
    /// The retransmission timer: [`send::expired`].
    #[pin]
    timer: FineTimer<OnExpiry>,
    /// Finds receive requests posted in ERR, and drops packets kept for too long: [`recv::look`].
    #[pin]
    watch_timer: FineTimer<OnExpiry>,
    /// Runs the send half again: after a gap of the static rate, when a queue below may have room,
    /// or when the packets of another CPU may have left.
    #[pin]
    send_pacer: FineTimer<OnExpiry>,
    /// Runs the receive half again, for the same reasons.
    #[pin]
    recv_pacer: FineTimer<OnExpiry>,
    /// Bounds the wait for more doorbells: the work item then sends the requests.
    #[pin]
    batch_timer: FineTimer<OnExpiry>,
    #[pin]
    work: Work<RunHalves>,
    /// Dropped after the timers and the work item, which find the queue pair by this number.
    number: Number<IbQp>,
    /// Dropped after the number, so that processes never hold more numbers than there are charges.
    _share: Option<pool::Charge>,
}

/// The first number. Lower ones are special: 0 and 1 are the management queue pairs, and the others
/// are kept free.
const FIRST_QPN: u32 = 16;

/// The last number: one for each queue pair, including management queue pairs.
const LAST_QPN: u32 = FIRST_QPN + MAX_OBJECTS + KERNEL_OBJECTS - 1;

static TABLE: Global<Table<IbQp>> = Global::new();

/// Constructs the table. Called once, before any device exists.
///
/// Numbers are unique in the module, not per device: packets, timers and work items name a queue
/// pair by its number alone.
pub(crate) fn init() -> Result {
    TABLE.init(Table::new(FIRST_QPN..=LAST_QPN))
}

/// Finds a queue pair by number.
#[inline]
pub(crate) fn find(number: u32) -> Option<QpRef> {
    TABLE.get()?.get(number)
}

impl Qp {
    pub(crate) fn new(
        init: &mut QpInit<'_, Ferroce>,
        udata: Option<&mut Udata<'_, Ferroce>>,
    ) -> Result<impl PinInit<Self, Error>> {
        let ty = QpType::try_from(init.qp_type.raw()).map_err(errno)?;
        if init.create_flags != QpCreateFlags::NONE {
            return Err(EOPNOTSUPP);
        }
        if ty == QpType::Gsi && (udata.is_some() || init.port_num != 1 || init.srq.is_some()) {
            return Err(EINVAL);
        }
        let raw = ty == QpType::RawPacket;
        if raw && udata.is_none() {
            // Kernel consumers have no use for them.
            return Err(EOPNOTSUPP);
        }
        let frames = raw.then(|| frame::netdev(init.pd.device())).transpose()?;
        let owner = init.pd.owner.clone();
        let share = pool::Charge::new(&pool::QPS, owner.as_ref())?;
        // As many as requested; up to twice as many are granted. Further requests wait in the ring.
        // CAST: Bounded by `MAX_IN_FLIGHT`.
        let slots = init.cap.max_send_wr.clamp(1, MAX_IN_FLIGHT) as usize;
        let queues = layout::lay_out(&mut init.cap, init.srq.is_some(), udata.is_none())?;
        let send_queue = Queue::new(queues.send)?;
        let recv_queue = queues.recv.map(Queue::new).transpose()?;
        let cap = init.cap;
        let limits = SendLimits {
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            qkey: Qkey::new(0),
            kernel: udata.is_none(),
            raw,
        };
        let pd = init.pd.id();
        let device = init.pd.device();
        let handle = init.handle;
        let signal_all = init.signal_all;
        let transport = ty.transport();

        let mut mmap_entries = [None, None];
        let kernel = match udata {
            Some(udata) => {
                mmap_entries = insert_mmap_entries(udata, &send_queue, recv_queue.as_ref())?;
                None
            }
            None => Some(KernelQueues::new(&send_queue, recv_queue.as_ref())?),
        };
        let number = TABLE.get().ok_or(ENODEV)?.reserve()?;
        let qpn = number.get();
        let gsi = match ty {
            QpType::Gsi => Some(GsiQp::new(device.number, qpn)?),
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => None,
        };
        let send = SendHalf::new(
            transport,
            Sq::new(send_queue, transport, pd, limits, signal_all, slots)?,
            slots,
            qpn,
            frames,
            device.counters.clone(),
            owner.clone(),
        )?;
        let rq = match (recv_queue, &init.srq) {
            (None, Some(srq)) => Rq::shared(srq.clone())?,
            (Some(queue), _) => Rq::new(queue, pd, cap.max_recv_sge)?,
            (None, None) => return Err(EINVAL),
        };
        let recv = RecvHalf::new(
            transport,
            rq,
            qpn,
            pd,
            device.counters.clone(),
            owner.clone(),
        )?;
        let (send_cq, recv_cq) = (init.send_cq.clone(), init.recv_cq.clone());
        let room = || FlushRoom::new(send_cq.clone(), cap.max_send_wr);
        let flush_room = kernel.is_some().then(room).transpose()?;
        Ok(try_pin_init!(Self {
            number,
            qpn,
            ty,
            handle,
            cap,
            signal_all,
            send_cq,
            recv_cq,
            _flush_room: flush_room,
            state: Atomic::new(State::Reset.as_ib()),
            sched: Sched::new(),
            events: Atomic::new(0),
            send_flush_budget: FlushBudget::new(),
            recv_flush_budget: FlushBudget::new(),
            attributes <- new_mutex!(Attrs::RESET, "ferroce::Qp::attributes"),
            send <- new_spinlock_bh!(send, "ferroce::Qp::send"),
            recv <- new_spinlock_bh!(recv, "ferroce::Qp::recv"),
            kernel,
            _mmap_entries: mmap_entries,
            _gsi: gsi,
            owner,
            _share: share,
            timer <- FineTimer::new(OnExpiry(*qpn, send::expired)),
            watch_timer <- FineTimer::new(OnExpiry(*qpn, recv::look)),
            send_pacer <- FineTimer::new(OnExpiry(*qpn, |qp| {
                send::run(qp);
            })),
            recv_pacer <- FineTimer::new(OnExpiry(*qpn, recv::run)),
            batch_timer <- FineTimer::new(OnExpiry(*qpn, |qp| {
                if qp.sched.on_timer() {
                    qp.defer();
                }
            })),
            work <- Work::new(RunHalves(*qpn)),
        }? Error))
    }

    /// Returns the state.
    #[inline]
    pub(crate) fn state(&self) -> State {
        State::from_ib(self.state.load(Acquire)).unwrap_or(State::Err)
    }

    /// Sets the state.
    fn set_state(&self, state: State) {
        self.state.store(state.as_ib(), Release);
        // Pairs with the barrier in `post_recv`.
        smp_mb(Full);
    }

    /// Records an event, which the work item raises.
    pub(crate) fn raise(&self, event: QpEvent) {
        let mut events = self.events.load(Relaxed);
        while let Err(current) = self.events.cmpxchg(events, events | event.bit(), Release) {
            events = current;
        }
        self.defer();
    }

    /// Queues the work item to run the send half. Until it has run, posters leave the half to it,
    /// because two CPUs that send in turn would wait for each other's packets, see
    /// `rdma::net::tx_in_flight`.
    pub(crate) fn defer_send(&self) {
        self.sched.set_deferred(true);
        self.defer();
    }

    /// Queues the work item, which runs both halves.
    pub(crate) fn defer(&self) {
        work::queue(&self.work, self.kernel.is_none());
    }

    /// Moves the queue pair from a working state to ERR. The work item flushes both halves.
    ///
    /// Called under the lock of the half that failed, so that a modify, which takes both locks, is
    /// either before or after it. Returns whether this call changed the state.
    pub(crate) fn fail(&self) -> bool {
        let failed = self.leave(
            |state| state.is_receiving() || state.is_sending(),
            State::Err,
        );
        if failed {
            // Only once: a flush may get here, too, if the CQ is full.
            self.allow_flush();
        }
        self.defer();
        failed
    }

    /// Moves the queue pair to the state after an error of the send queue: SQE for datagrams, raw
    /// packets and UC (C10-38), ERR for RC.
    pub(crate) fn fail_send(&self) {
        match self.ty {
            QpType::Rc => {
                self.fail();
            }
            _ if self.leave(State::is_sending, State::Sqe) => {
                self.allow_flush();
                // In SQD, requests behind the one that failed are still in the ring.
                self.defer();
            }
            _ => {}
        }
    }

    /// Adds a completion and returns the result. The caller notifies the consumer.
    ///
    /// Called under the lock of the half that completes. A queue pair whose completion is lost
    /// fails, because the consumer would wait for the completion forever.
    pub(crate) fn complete(&self, cq: &CqRef, completion: &Completion) -> Pushed {
        let pushed = cq.push(completion);
        if pushed == Pushed::Lost && self.fail() {
            self.raise(QpEvent::Fatal);
        }
        pushed
    }

    /// Removes the completions that a kernel consumer has not polled yet; see
    /// [`Cq::remove`](crate::cq::Cq::remove). The queue pair is in RESET, and stays there until
    /// this returns. May sleep.
    fn remove_completions(&self) {
        self.send_cq.remove(self.handle);
        if !core::ptr::eq(&*self.send_cq, &*self.recv_cq) {
            self.recv_cq.remove(self.handle);
        }
    }

    /// Moves the queue pair to a state, if it is in one that `from` accepts; returns whether it
    /// did.
    fn leave(&self, from: impl Fn(State) -> bool, to: State) -> bool {
        let mut current = self.state.load(Relaxed);
        while State::from_ib(current).is_some_and(&from) {
            match self.state.cmpxchg(current, to.as_ib(), Full) {
                Ok(_) => return true,
                Err(other) => current = other,
            }
        }
        false
    }

    /// Grants each half a flush budget of the size of its ring.
    fn allow_flush(&self) {
        // The number of slots of a ring is a power of two. With a shared receive queue, there is at
        // most the request in use.
        let slots = |wr: u32| {
            wr.saturating_add(1)
                .checked_next_power_of_two()
                .unwrap_or(wr)
        };
        self.send_flush_budget.grant(slots(self.cap.max_send_wr));
        self.recv_flush_budget.grant(slots(self.cap.max_recv_wr));
    }

    /// Sets the counters of the queue pair. The caller keeps another reference to them until the
    /// next call.
    pub(crate) fn count_in(&self, counters: &Arc<Counters>) {
        self.send.lock().tx.counters = counters.clone();
        self.recv.lock().tx.counters = counters.clone();
    }
}

/// Inserts the entries with which the process maps the rings.
fn insert_mmap_entries(
    udata: &mut Udata<'_, Ferroce>,
    send: &Queue,
    recv: Option<&Queue>,
) -> Result<[Option<MmapEntry>; 2]> {
    let ucontext = udata.ucontext().ok_or(EINVAL)?;
    let mut resp = CreateQpResp::default();
    if udata.in_len() != 0 || udata.out_len() < resp.as_bytes().len() {
        return Err(EINVAL);
    }
    let rq = recv
        .map(|recv| ucontext.insert_mmap_entry(recv.memory()))
        .transpose()?;
    let sq = ucontext.insert_mmap_entry(send.memory())?;
    resp.rq_mi = rq.as_ref().map(MmapEntry::info).unwrap_or_default();
    resp.sq_mi = sq.info();
    udata.respond(resp.as_bytes())?;
    Ok([rq, Some(sq)])
}

/// Makes a queue pair visible to the data path and returns the number that the consumer sees.
pub(crate) fn publish(qp: &Owned<IbQp>) -> u32 {
    qp.number.publish(qp);
    if qp.ty == QpType::Gsi {
        return Qpn::GSI.get();
    }
    qp.qpn
}

/// Removes a queue pair from the data path. Afterwards nothing completes, and no completion in the
/// queue of a kernel consumer refers to the queue pair.
pub(crate) fn destroy(qp: &Owned<IbQp>) {
    /// Maximum number of runs, because process exit or device removal may be waiting.
    const LAST_RUNS: u32 = 32;

    // Process requests that were posted before, and perhaps left to the work item.
    send::catch_up(qp, LAST_RUNS);
    qp.number.hide();
    let mut send = qp.send.lock();
    let mut recv = qp.recv.lock();
    recv.send_last_reply_now(qp);
    qp.set_state(State::Reset);
    send.reset();
    recv.reset();
    drop((recv, send));
    qp.remove_completions();
    window::release(qp.qpn);
}

/// The callback of a timer: the number of the queue pair, and the function to call with it.
struct OnExpiry(u32, fn(&IbQp));

impl TimerCallback for OnExpiry {
    fn expired(&self) {
        if let Some(qp) = find(self.0) {
            (self.1)(&qp);
        }
    }
}

/// Called by [`TxInFlight`](rdma::net::TxInFlight) when enough packets have left, and by a
/// semaphore when a permit to fetch memory is available.
impl Wake for WakeQp {
    fn wake(&self) {
        if let Some(qp) = find(self.0) {
            qp.defer();
        }
    }
}

/// The work item: runs both halves, then raises events.
struct RunHalves(u32);

impl WorkItem for RunHalves {
    fn run(&self) {
        let Some(qp) = find(self.0) else {
            return;
        };
        if !send::run(&qp) {
            // Even if the item is queued again by now: otherwise a process that posts and polls in
            // turn may stay deferred forever, which makes small READs slow.
            qp.sched.set_deferred(false);
        }
        recv::run(&qp);
        let events = qp.events.xchg(0, Acquire);
        for event in QpEvent::ALL {
            if events & event.bit() != 0 {
                qp.notify_event(event);
            }
        }
    }
}
