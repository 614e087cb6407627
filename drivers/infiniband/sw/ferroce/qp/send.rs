// SPDX-License-Identifier: GPL-2.0

//! The send half: from the send queue to the wire, and responses back.

mod early;
mod flush;
mod lost;
mod odp;
mod response;

pub(crate) use flush::catch_up;
pub(crate) use response::respond;

use super::{
    backlog::Backlog,
    path::{
        datagram_path,
        SendError, //
    },
    sq::Sq,
    tx::{
        Half,
        Handed,
        Tx,
        TxRun,
        BUDGET, //
    },
    wait::OdpWait, //
};
use crate::{
    clock,
    counters::{
        Counter,
        Counters, //
    },
    cq::{
        self,
        Completion,
        Pushed, //
    },
    device::IbQp,
    mr::RegionCache,
    owner::Owner,
    packet::Incoming,
    traces,
    work::WakeQp, //
};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use rdma::{
    ib::{
        gid::Path,
        qp::QpEvent, //
    },
    net::netdevice::NetDevice, //
};
use roce::{
    backoff::Backoff,
    ids::Qpn,
    opcode::Transport,
    qp::{
        QpType,
        State, //
    },
    requester::{
        Checkpoint,
        Requester,
        SendCompletion,
        SendState,
        Slot,
        Transmit, //
    },
    time::Instant,
    uapi::{
        cqe::Cqe,
        wqe::SendWqe, //
    },
    wr::{
        MemError,
        Status, //
    }, //
};
use zerocopy::FromZeros;

/// The transmit state of a run, with the position and the traced fields of the first packet of a
/// train.
type SendRun = TxRun<(Checkpoint, traces::Packet)>;

/// The maximum number of responses that wait. All of them may be handled under one hold of the
/// lock.
const MAX_WAITING: usize = 128;

/// The send half, under its lock.
pub(crate) struct SendHalf {
    pub(crate) req: Requester<KVec<Slot>>,
    pub(crate) sq: Sq,
    /// A private copy of the header of the request that is being fetched.
    wqe: SendWqe,
    pub(crate) tx: Tx,
    /// The net device of raw packets.
    frames: Option<ARef<NetDevice>>,
    /// The time for which the timer is armed.
    armed: Option<Instant>,
    /// The back-off after a packet could not be allocated, or a fetch could not be started.
    pub(super) retry: Backoff,
    /// The wait for the memory of the next packet.
    pub(super) request_wait: OdpWait,
    /// The wait for the memory of `parked`.
    response_wait: OdpWait,
    /// A response whose data could not be placed yet. The requester has not seen it.
    pub(super) parked: Option<Incoming>,
    /// Responses behind `parked`, or behind a missing one.
    pub(super) backlog: Backlog<MAX_WAITING>,
}

/// The work to do after the lock is dropped.
#[derive(Default)]
struct After {
    notify: bool,
    again: bool,
}

/// Sends and completes as much as the budget allows. Returns whether work is left, for which the
/// work item is queued. Softirq or process context, no lock held.
pub(crate) fn run(qp: &IbQp) -> bool {
    let after = {
        let mut half = qp.send.lock();
        half.drive(qp, clock::monotonic(), BUDGET)
    };
    finish(qp, &after);
    after.again
}

/// Handles the timer: a response is overdue, or an RNR wait or a back-off is over.
///
/// If everything is sent again, the work item sends it: the timers of many queue pairs may expire
/// together, and the kernel runs all of them in one softirq, which delays everything else on the
/// CPU.
pub(crate) fn expired(qp: &IbQp) {
    let mut budget = BUDGET;
    let after = {
        let mut half = qp.send.lock();
        let now = clock::monotonic();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at.is_due(now));
        half.armed = None;
        let timeout = half.timeout();
        if is_due(timeout) {
            if half.on_timeout(qp, now) {
                budget = 0;
            }
        } else if !is_due(half.retry.at()) {
            // The response came in time, or the timeout was moved to a later time.
            half.arm_timer(qp, timeout);
            return;
        }
        half.drive(qp, now, budget)
    };
    finish(qp, &after);
}

/// Does the work that must not be done under the lock.
fn finish(qp: &IbQp, after: &After) {
    if after.again {
        qp.defer_send();
    }
    if after.notify {
        cq::notify(&qp.send_cq);
    }
}

impl SendHalf {
    // Not inlined, to keep the stack frame of its caller small.
    #[inline(never)]
    pub(crate) fn new(
        transport: Transport,
        sq: Sq,
        slots: usize,
        qpn: u32,
        frames: Option<ARef<NetDevice>>,
        counters: Arc<Counters>,
        owner: Option<Arc<Owner>>,
    ) -> Result<KBox<Self>> {
        let slots = KVec::from_elem(Slot::default(), slots, GFP_KERNEL_ACCOUNT)?;
        KBox::init(
            init!(Self {
                req: Requester::new(transport, slots),
                sq,
                wqe: SendWqe::new_zeroed(),
                tx <- Tx::new(Half::Send, qpn, counters),
                frames,
                armed: None,
                retry: Backoff::default(),
                request_wait: OdpWait::with_permits(WakeQp(qpn))?,
                response_wait: OdpWait::with_permits(WakeQp(qpn))?,
                parked: None,
                backlog: Backlog::new(owner),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Forgets everything (RESET).
    pub(crate) fn reset(&mut self) {
        self.req.reset();
        self.sq.discard();
        self.tx.reset();
        self.sq.notify_drained = false;
        self.retry.succeeded();
        self.stop_waiting();
    }

    /// Returns the address vector of the peer of a connection.
    pub(crate) fn peer(&self, qp: &IbQp) -> Option<Path> {
        // The path of datagrams is that of the last one.
        self.tx.address().copied().filter(|_| qp.ty.is_connected())
    }

    /// Completes requests and sends packets. Once `budget` is used up, the work item goes on.
    ///
    /// `time` is the time that the caller has read, because reading the clock is expensive.
    fn drive(&mut self, qp: &IbQp, mut time: Instant, mut budget: u32) -> After {
        let mut after = After::default();

        qp.sched.begin();

        match qp.state() {
            State::Err if self.req.state() != SendState::Error => {
                self.stop_waiting();
                self.req.flush();
            }
            State::Reset | State::Init | State::Rtr => return after,
            _ => {}
        }
        if !qp.ty.is_connected() {
            self.req.set_mtu(qp.device().mtu());
        }
        // The attempt that failed before is repeated below.
        self.retry.expire(time);
        if self.parked.is_some() && !self.response_wait.is_pending() {
            self.unpark(qp);
            time = clock::monotonic();
        }
        if self.req.take_loss() {
            self.lost_oldest();
        }
        // Complete first, which frees slots for requests that may be sent, so one round is usually
        // enough. This has a budget of its own, or it could leave none for sending.
        self.complete(qp, &mut { BUDGET }, &mut after);
        loop {
            let more = self.pull(qp);
            self.transmit(qp, &mut time, &mut budget);
            let worked = self.execute(qp, &mut budget) | self.complete(qp, &mut budget, &mut after);
            if budget == 0 {
                after.again = true;
                break;
            }
            if !more && !worked {
                break;
            }
        }
        if self.req.take_error() {
            self.stop_waiting();
            qp.fail_send();
        }
        if !after.again {
            // If work is left, the next run uses the permit or the result of the fetch.
            self.request_wait.end_run();
        }
        self.response_wait.end_run();
        if self.sq.notify_drained && self.req.is_drained() {
            self.sq.notify_drained = false;
            qp.raise(QpEvent::SqDrained);
        }
        let is_blocked = self.req.is_held() && !self.request_wait.is_pending();
        if is_blocked || (self.parked.is_some() && !self.response_wait.is_pending()) {
            self.retry.failed(time);
        }
        self.arm_timer(qp, self.timeout());
        after
    }

    /// Returns the time at which a response is overdue, or an RNR wait is over.
    #[inline]
    fn timeout(&self) -> Option<Instant> {
        match self.parked {
            None => self.req.next_timeout(),
            // The parked packet may be the response that the timer waits for.
            Some(_) => None,
        }
    }

    /// Arms the timer for `timeout` and for the end of the back-off.
    ///
    /// Nearly every run moves the timeout to a later time. The timer is not moved with it: it
    /// expires at the earlier one, and is armed again.
    #[inline]
    fn arm_timer(&mut self, qp: &IbQp, timeout: Option<Instant>) {
        let due = match (timeout, self.retry.at()) {
            (Some(timeout), Some(retry)) => timeout.min(retry),
            (Some(at), None) | (None, Some(at)) => at,
            (None, None) => return,
        };
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            qp.timer.arm(due.as_ns());
        }
    }

    /// Fetches up to [`BUDGET`] requests. Returns whether there may be more to fetch.
    // Not inlined, to keep the stack frame of its caller small.
    #[inline(never)]
    fn pull(&mut self, qp: &IbQp) -> bool {
        for _ in 0..BUDGET {
            let state = qp.state();
            if state == State::Sqd {
                // No request begins in SQD, not even one that fails.
                return false;
            }
            let flushes = matches!(state, State::Err | State::Sqe);
            if flushes && !qp.send_flush_budget.take() {
                return false;
            }
            if !self.sq.pull(&mut self.req, &mut self.wqe) {
                if flushes {
                    qp.send_flush_budget.give_back();
                }
                return false;
            }
        }
        true
    }

    /// Sends all packets that may be sent now, within the budget. `time` becomes that of the last
    /// one.
    // Not inlined, to keep the stack frame of its caller small.
    #[inline(never)]
    fn transmit(&mut self, qp: &IbQp, time: &mut Instant, budget: &mut u32) {
        if !self.request_wait.is_pending() {
            self.req.release();
        } else if !self.req.is_held() {
            // The packet that waits was acknowledged after all.
            self.request_wait.cancel();
            self.req.release();
        } else if qp.ty != QpType::Rc {
            return;
        }
        let mut run = TxRun::new();
        let mut regions = RegionCache::new();
        self.build_all(qp, &mut run, &mut regions, time, budget);
        self.hand_over(qp, &mut run);
    }

    /// Sends packets. The caller hands over the last train.
    #[inline]
    fn build_all(
        &mut self,
        qp: &IbQp,
        run: &mut SendRun,
        regions: &mut RegionCache,
        time: &mut Instant,
        budget: &mut u32,
    ) {
        let mut is_first = true;
        while *budget > 0 {
            let Some(transmit) = self.req.poll_transmit() else {
                return;
            };
            // All packets of a train have the same time.
            if !is_first && run.pending() == 0 {
                *time = clock::monotonic();
            }
            let now = *time;
            if !self.tx.may_send(qp, run) {
                return;
            }
            let result = if self.tx.takes_trains(qp) && !transmit.is_probe() {
                self.add_to_train(qp, run, regions, &transmit)
            } else if self.hand_over(qp, run) {
                self.send(qp, regions, &transmit)
            } else {
                return;
            };
            match result {
                Ok(()) => {
                    traces::sent(qp, &transmit);
                    self.req.transmitted(now, &transmit);
                }
                Err(SendError::NoRoom) => return,
                Err(SendError::Lost) => {
                    traces::not_sent(qp, &traces::of_request(qp, &transmit));
                    self.req.transmitted(now, &transmit);
                }
                Err(SendError::Memory(error)) => {
                    // Send the packets before it first.
                    if !self.hand_over(qp, run) {
                        return;
                    }
                    if error != MemError::NotPresent {
                        self.req.local_error(transmit.slot, local_status(error));
                    } else if self.request_wait.is_pending() {
                        // A later packet waits for its memory, and the half fetches that of one
                        // packet at a time.
                        return;
                    } else if !self.await_request(qp, &transmit) {
                        self.req.hold(transmit.psn);
                        if qp.ty != QpType::Rc || transmit.is_probe() {
                            return;
                        }
                        // Packets before it may have to be sent again.
                        continue;
                    }
                }
                Err(SendError::NoMemory) => {
                    self.retry.failed(now);
                    return;
                }
            }
            self.retry.succeeded();
            is_first = false;
            *budget = budget.saturating_sub(1);
        }
    }

    /// Builds a packet and adds it to the train, or begins one with it.
    #[inline]
    fn add_to_train(
        &mut self,
        qp: &IbQp,
        run: &mut SendRun,
        regions: &mut RegionCache,
        transmit: &Transmit,
    ) -> Result<(), SendError> {
        let sq = &self.sq;
        let skb = self.tx.build(transmit, |skb| {
            sq.gather(transmit.slot, transmit.offset, transmit.len, skb, regions)
        })?;
        if let Err(skb) = run.join(skb) {
            if !self.hand_over(qp, run) {
                return Err(SendError::NoRoom);
            }
            let first = (self.req.checkpoint(), traces::of_request(qp, transmit));
            run.begin(skb, first);
        }
        Ok(())
    }

    /// Hands the train over; returns `false` if its packets were taken back because a queue below
    /// was full.
    fn hand_over(&mut self, qp: &IbQp, run: &mut SendRun) -> bool {
        match self.tx.hand_over(qp, run) {
            Handed::Over => {}
            // Trace the first packet for the whole train.
            Handed::Lost((_, first)) => traces::not_sent(qp, &first),
            Handed::Back((checkpoint, _)) => {
                self.req.take_back(&checkpoint);
                self.req.on_refusal();
                return false;
            }
        }
        true
    }

    /// Builds and sends one packet.
    #[inline]
    fn send(
        &mut self,
        qp: &IbQp,
        regions: &mut RegionCache,
        transmit: &Transmit,
    ) -> Result<(), SendError> {
        let sq = &self.sq;
        let gather =
            |skb: &mut _| sq.gather(transmit.slot, transmit.offset, transmit.len, skb, regions);

        if qp.ty.transport() == Transport::Ud {
            if let Some(netdev) = &self.frames {
                return self.tx.send_frame(qp, netdev, transmit.len, gather);
            }
            let no_route = || SendError::lost(&self.tx.counters, Counter::NoRoute, 1);
            let av = sq.av(transmit.slot).ok_or_else(no_route)?;
            if transmit.oversize {
                self.tx.counters.lost(Counter::Oversize, 1);
                return Err(SendError::Memory(MemError::Length));
            }
            if !self.tx.is_to(av) {
                let path = datagram_path(qp, av).map_err(|_| no_route())?;
                self.tx.set_path(path);
            }
        }
        let result = self.tx.send(qp, transmit, gather);
        match result {
            Err(SendError::NoRoom) => self.req.on_refusal(),
            // The address may be that of another net device by now.
            Err(SendError::Lost) if !qp.ty.is_connected() => self.tx.forget_lost_path(),
            _ => {}
        }
        result
    }

    /// Executes local operations that are due; returns whether there were any.
    fn execute(&mut self, qp: &IbQp, budget: &mut u32) -> bool {
        let mut executed = false;
        while *budget > 0 {
            let Some(local) = self.req.poll_local() else {
                break;
            };
            let result = self.sq.execute(&local, qp);
            self.req.local_done(result);
            executed = true;
            *budget = budget.saturating_sub(1);
        }
        executed
    }

    /// Completes finished requests; returns whether there were any.
    fn complete(&mut self, qp: &IbQp, budget: &mut u32, after: &mut After) -> bool {
        let mut completed = false;
        while *budget > 0 {
            let Some(done) = self.req.poll_completion() else {
                break;
            };
            self.sq.complete();
            self.tx.counters.completed(&done);
            if done.signalled {
                let pushed = qp.complete(&qp.send_cq, &completion(qp, &done));
                after.notify |= pushed == Pushed::Notify;
            }
            completed = true;
            *budget = budget.saturating_sub(1);
        }
        completed
    }
}

/// Returns the completion of a send request.
fn completion(qp: &IbQp, done: &SendCompletion) -> Completion {
    Completion {
        cqe: Cqe {
            wr_id: done.wr_id,
            status: done.status,
            opcode: done.op.into(),
            byte_len: match done.status {
                Status::Success => done.byte_len,
                _ => 0,
            },
            imm: None,
            invalidated: None,
            qpn: Qpn::new(qp.qpn),
            src_qpn: Qpn::new(0),
            grh: false,
            sl: 0,
        },
        qp: qp.handle,
        solicited: false,
        vlan: None,
    }
}

/// Returns the completion status of a request whose memory could not be accessed.
fn local_status(error: MemError) -> Status {
    match error {
        MemError::Protection => Status::LocProt,
        MemError::Length => Status::LocLen,
        MemError::Misaligned | MemError::Fault | MemError::NotPresent | MemError::Invalidate => {
            Status::LocQpOp
        }
    }
}
