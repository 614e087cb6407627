// SPDX-License-Identifier: GPL-2.0

//! The receive half: requests of the peer in, replies and completions out.

mod admit;
mod completion;
mod early;
mod flush;
mod last_reply;
mod odp;
mod place;
mod read_response;
pub(super) mod records;

pub(crate) use self::flush::look;

use self::{
    completion::completion,
    odp::Parked,
    read_response::ReadRun,
    records::Records, //
};
use super::{
    backlog::Backlog,
    command,
    rq::Rq,
    tx::{
        Half,
        Tx,
        BUDGET, //
    },
    wait::OdpWait, //
};
use crate::{
    clock,
    counters::{
        self,
        Counter,
        Counters, //
    },
    cq::{
        self,
        Pushed, //
    },
    device::IbQp,
    mr::RegionCache,
    owner::Owner,
    packet::{
        Batch,
        Flow,
        Incoming,
        Origin, //
    },
    traces, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::{
        object::PdId,
        qp::QpEvent,
        Access, //
    },
    net::namespace::NetId,
};
use roce::{
    backoff::Backoff,
    opcode::Transport,
    pma,
    qp::{
        QpType,
        State, //
    },
    responder::{
        AsyncEvent,
        DropReason,
        Outcome,
        Place,
        Reply,
        Responder,
        Verdict, //
    },
    time::Instant,
    wire::{
        Packet,
        Syndrome, //
    },
    wr::{
        MemError,
        Status, //
    }, //
};

/// The most packets that wait for the current request, and for an earlier one.
const MAX_WAITING: usize = 512;

/// The receive half, under its lock.
pub(crate) struct RecvHalf {
    pub(crate) resp: Responder<Records>,
    pub(crate) rq: Rq,
    pub(crate) tx: Tx,
    pd: PdId,
    /// The destination of the last datagram: an address of the device, valid for this value of
    /// [`gids::generation`](crate::gids::generation).
    address: Option<(u32, NetId, [u8; 16])>,
    /// True once the last WQE reached event was raised.
    last_wqe_reached: bool,
    /// The time of the last request, by [`clock::coarse`].
    heard_at: Instant,
    /// True if the timer for `early` is armed.
    is_early_watched: bool,
    /// The next look at the ring (ERR).
    next_look: Backoff,
    /// Packets that wait while the half executes a READ or waits for memory.
    pub(super) backlog: Backlog<MAX_WAITING>,
    /// Packets that wait for earlier ones, in the order of PSNs.
    pub(super) early: Backlog<MAX_WAITING>,
    /// The wait for memory of `parked`, or of a READ response.
    pub(super) wait: OdpWait,
    /// A packet with a verdict that could not be applied yet. Later packets wait behind it.
    parked: Option<Parked>,
    /// The last reply to the peer, while it waits to be sent; see last_reply.rs.
    last_reply: Option<Reply>,
}

/// The state of one run of the half, and the work to do after the lock is dropped.
struct Run {
    notify: bool,
    again: bool,
    /// The number of steps that the run may still take before it drops the lock.
    budget: u32,
    /// The READ responses that were built and not handed over yet. They must be handed over before
    /// the lock is dropped, and before anything else is sent.
    responses: ReadRun,
    regions: RegionCache,
}

/// Takes a request of the peer, and those of `flow` that came with it. `origin` becomes that of the
/// last of them. Softirq or process context, no lock held.
///
/// # Errors
///
/// The drop counter, if the first packet is not for this queue pair.
pub(crate) fn request(
    qp: &IbQp,
    origin: &mut Origin,
    incoming: Incoming,
    flow: Flow,
    batch: &mut Batch<'_>,
) -> Result<(), Counter> {
    let mut run = Run::new();
    {
        let mut half = qp.recv.lock();
        half.admits(qp, origin)?;
        if let Some(counter) = batch.take_train() {
            half.tx.counters.count(counter);
        }
        half.tx.counters.received(origin.bytes);
        half.heard_at = clock::coarse();
        half.see_mark(qp, origin, &mut run);
        half.take(qp, incoming, &mut run);
        for _ in 1..BUDGET {
            if !qp.state().is_receiving() {
                break;
            }
            let Some(incoming) = batch.pop_like(flow, origin) else {
                break;
            };
            traces::received_too(qp, &incoming);
            half.tx.counters.received(origin.bytes);
            half.see_mark(qp, origin, &mut run);
            half.take(qp, incoming, &mut run);
        }
        half.hand_over(qp, &mut run);
    }
    finish(qp, &run);
    Ok(())
}

/// Takes a datagram for a multicast group of which the queue pair is a member. Softirq or process
/// context, no lock held.
pub(crate) fn multicast(qp: &IbQp, incoming: &Incoming) {
    let run = {
        let mut half = qp.recv.lock();
        let mut run = Run::new();
        if !qp.state().is_receiving() {
            half.tx.counters.dropped(Counter::BadState, 1);
            return;
        }
        half.take_copy(qp, incoming, &mut run);
        run
    };
    finish(qp, &run);
}

/// Continues a READ, handles the backlog, or flushes. Process or softirq context, no lock held.
pub(crate) fn run(qp: &IbQp) {
    let run = {
        let mut half = qp.recv.lock();
        let mut run = Run::new();
        match qp.state() {
            State::Err => {
                half.keep_last_ack();
                if qp.kernel.is_some() {
                    // Drop the READ responses first: after `ib_drain_qp()` the consumer may reuse
                    // their memory (last_reply.rs).
                    half.resp.reset();
                }
                half.send_last_reply(qp, &mut run);
                half.flush(qp, &mut run);
                half.raise_last_wqe_reached(qp);
                half.watch(qp);
            }
            state if state.is_receiving() => {
                half.resume(qp, &mut run);
                if !run.again {
                    half.wait.end_run();
                }
            }
            _ => {}
        }
        half.hand_over(qp, &mut run);
        run
    };
    finish(qp, &run);
}

/// Does the work that must not be done under the lock.
fn finish(qp: &IbQp, run: &Run) {
    if run.again {
        qp.defer();
    }
    if run.notify {
        cq::notify(&qp.recv_cq);
    }
}

impl Run {
    fn new() -> Self {
        Self {
            notify: false,
            again: false,
            budget: BUDGET,
            responses: ReadRun::new(),
            regions: RegionCache::new(),
        }
    }

    /// Takes a step from the budget. Returns `false` if it is used up: the half then runs again.
    #[inline]
    fn spend(&mut self) -> bool {
        match self.budget.checked_sub(1) {
            Some(rest) => self.budget = rest,
            None => {
                self.again = true;
                return false;
            }
        }
        true
    }
}

impl RecvHalf {
    // Not inlined, to keep the stack frame of its caller small.
    #[inline(never)]
    pub(crate) fn new(
        transport: Transport,
        rq: Rq,
        qpn: u32,
        pd: PdId,
        counters: Arc<Counters>,
        owner: Option<Arc<Owner>>,
    ) -> Result<KBox<Self>> {
        KBox::init(
            init!(Self {
                resp: Responder::with_records(transport, records::few()),
                rq,
                tx <- Tx::new(Half::Recv, qpn, counters),
                pd,
                address: None,
                backlog: Backlog::new(owner.clone()),
                early: Backlog::new(owner),
                last_wqe_reached: false,
                heard_at: Instant::default(),
                is_early_watched: false,
                next_look: Backoff::default(),
                wait: OdpWait::new(),
                parked: None,
                last_reply: None,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Forgets everything (RESET).
    pub(crate) fn reset(&mut self) {
        self.resp.reset();
        self.rq.discard();
        self.tx.reset();
        self.last_wqe_reached = false;
        self.heard_at = Instant::default();
        self.is_early_watched = false;
        self.next_look.succeeded();
        self.last_reply = None;
        self.stop_waiting();
    }

    /// Handles a packet, and then those that waited for it, or keeps it in the backlog.
    #[inline]
    fn take(&mut self, qp: &IbQp, incoming: Incoming, run: &mut Run) {
        self.share_train(qp, &incoming, run);
        // Kept packets that are due come first: the last run left them when its budget was used up.
        if self.resp.is_busy() || !self.backlog.is_empty() || self.resp.is_kept_due() {
            let counters = &self.tx.counters;
            self.backlog
                .push(qp, incoming, true, Counter::Backlog, counters);
        } else {
            self.take_owned(qp, incoming, run);
        }
        self.send_responses(qp, run);
        if self.resp.is_kept_due() {
            self.take_early(qp, run);
        }
    }

    /// Hands over the READ responses before a packet, unless the response to the packet may join
    /// their train: only responses to new READs share one, and only while they can be taken back.
    #[inline]
    fn share_train(&mut self, qp: &IbQp, incoming: &Incoming, run: &mut Run) {
        if let Some(checkpoint) = run.responses.checkpoint() {
            if !incoming.is_read(self.resp.epsn()) || !self.resp.may_read_since(checkpoint) {
                self.hand_over(qp, run);
            }
        }
    }

    /// Handles a packet at once.
    #[inline]
    fn take_owned(&mut self, qp: &IbQp, incoming: Incoming, run: &mut Run) {
        match self.handle(qp, &incoming, run) {
            None => incoming.consume(),
            Some(Verdict::Early(_)) => self.keep_early(qp, incoming),
            Some(verdict) => self.park(qp, Parked { incoming, verdict }, run),
        }
    }

    /// Handles a packet that other queue pairs get, too. It is copied only if it has to wait.
    #[inline]
    fn take_copy(&mut self, qp: &IbQp, incoming: &Incoming, run: &mut Run) {
        if self.resp.is_busy() || !self.backlog.is_empty() {
            match incoming.copy() {
                Some(copy) => {
                    let counters = &self.tx.counters;
                    self.backlog
                        .push(qp, copy, true, Counter::Backlog, counters);
                }
                None => self.tx.counters.dropped(Counter::NoMemory, 1),
            }
            return;
        }
        let Some(verdict) = self.handle(qp, incoming, run) else {
            return;
        };
        match incoming.copy() {
            Some(incoming) => self.park(qp, Parked { incoming, verdict }, run),
            None => self.abandon(),
        }
    }

    /// Drops a packet because memory is short, as if it were lost on the wire.
    #[cold]
    fn abandon(&mut self) {
        self.resp.abandon();
        self.tx.counters.dropped(Counter::NoMemory, 1);
    }

    /// Continues the current request, then handles the backlog.
    fn resume(&mut self, qp: &IbQp, run: &mut Run) {
        if self.parked.is_some() && !self.wait.is_pending() {
            self.unpark(qp, run);
        }
        loop {
            self.send_responses(qp, run);
            self.hand_over(qp, run);
            if self.resp.is_busy() {
                return;
            }
            if self.resp.is_kept_due() {
                self.take_early(qp, run);
                if run.again || !qp.state().is_receiving() {
                    return;
                }
                continue;
            }
            self.settle_early(qp, run);
            if !qp.state().is_receiving() || self.backlog.is_empty() || !run.spend() {
                return;
            }
            let Some(incoming) = self.backlog.pop() else {
                return;
            };
            self.take_owned(qp, incoming, run);
        }
    }

    /// Executes one request. Returns the verdict if the packet is still needed: memory has to be
    /// fetched first, or it came before an earlier one.
    #[inline]
    fn handle(&mut self, qp: &IbQp, incoming: &Incoming, run: &mut Run) -> Option<Verdict> {
        let packet = incoming.packet().ok()?;
        if !qp.ty.is_connected() {
            self.resp.set_mtu(qp.device().mtu());
        }
        let verdict = if qp.ty == QpType::Gsi && !pma::is_mad(incoming.payload(&packet)) {
            Verdict::Drop(DropReason::BadLength)
        } else {
            self.resp.on_request(&packet, &mut self.rq)
        };
        if verdict.is_expected() {
            self.tx.heard(incoming.sport());
        }
        let done = self.apply_verdict(qp, &verdict, &packet, incoming, None, run);
        (!done).then_some(verdict)
    }

    /// Applies the verdict on a packet; returns `false` if the packet is still needed: memory has
    /// to be fetched first, or it came before an earlier one. `failed` is the error of the fetch
    /// that the packet waited for.
    #[inline]
    fn apply_verdict(
        &mut self,
        qp: &IbQp,
        verdict: &Verdict,
        packet: &Packet<'_>,
        incoming: &Incoming,
        failed: Option<MemError>,
        run: &mut Run,
    ) -> bool {
        match verdict {
            Verdict::Drop(reason) => {
                let counter = counters::of_drop(*reason);
                self.tx.counters.dropped(counter, 1);
                traces::dropped(qp, packet, counter);
            }
            Verdict::Reply(reply) => {
                self.tx.counters.count(counters::of_reply(reply.syndrome));
                self.reply(qp, reply, run);
            }
            Verdict::Early(nak) => {
                if let Some(reply) = nak {
                    self.tx.counters.count(Counter::OutOfSequence);
                    self.reply(qp, reply, run);
                }
                return false;
            }
            Verdict::Fail(outcome) => self.execute(qp, outcome, Some(incoming), run),
            Verdict::Place(place) => {
                let result = match failed {
                    Some(error) => Err(error),
                    None => self.place(qp, place, packet, incoming, run),
                };
                if result == Err(MemError::NotPresent) {
                    return false;
                }
                let invalidate = result == Err(MemError::Invalidate);
                if invalidate || matches!(place, Place::Remote { .. }) {
                    self.count_refused(result);
                }
                let outcome = self.resp.finish(result);
                self.execute(qp, &outcome, Some(incoming), run);
            }
            Verdict::Read(read) => {
                if read.again {
                    self.tx.counters.count(Counter::Duplicate);
                    let (psn, next) = (packet.psn(), self.resp.epsn());
                    self.tx.lost(psn, next);
                }
                // C9-88: key and address are not checked if there is nothing to read.
                let reth = read.reth;
                let result = if reth.len == 0 {
                    Ok(())
                } else {
                    run.regions
                        .find_remote(reth.rkey.get(), self.pd, qp.qpn, Access::REMOTE_READ)
                        .and_then(|region| region.offset(reth.va, u64::from(reth.len)).map(|_| ()))
                };
                self.count_refused(result);
                if let Some(outcome) = self.resp.start_read(result) {
                    self.execute(qp, &outcome, Some(incoming), run);
                }
            }
            Verdict::Execute(command) => {
                let result = match failed {
                    Some(error) => Err(error),
                    None => {
                        let payload = incoming.payload(packet);
                        command::execute(command, payload, self.pd, qp.qpn)
                    }
                };
                if result == Err(MemError::NotPresent) {
                    return false;
                }
                self.count_refused(result);
                let outcome = self.resp.executed(result);
                self.execute(qp, &outcome, Some(incoming), run);
            }
        }
        true
    }

    /// Drops waiting packets.
    fn stop_waiting(&mut self) {
        self.wait.cancel();
        let parked = usize::from(self.parked.take().is_some());
        let waiting = self.backlog.clear().saturating_add(self.early.clear());
        self.tx
            .counters
            .dropped(Counter::BadState, waiting.saturating_add(parked));
    }

    /// Executes the outcome of a request. `incoming` is its packet; a READ in progress has none.
    fn execute(
        &mut self,
        qp: &IbQp,
        outcome: &Outcome,
        incoming: Option<&Incoming>,
        run: &mut Run,
    ) {
        let done = outcome.completion.as_ref();
        let completion = done.map(|done| completion(qp, self.rq.wr_id(), done, incoming));
        if done.is_some_and(|done| done.status == Status::Success) {
            self.tx.counters.count(Counter::Receives);
        }
        // Free the entry of the queue before the completion: the consumer may post the next request
        // as soon as it sees the completion.
        if done.is_some() {
            self.rq.complete();
        }
        let pushed = match &completion {
            Some(completion) => qp.complete(&qp.recv_cq, completion),
            None => Pushed::Quiet,
        };
        run.notify |= pushed == Pushed::Notify;
        // Reply after the completion, so that a peer that sees the reply may rely on it.
        let reply = match pushed {
            Pushed::Lost => self.resp.completion_lost(outcome.reply),
            _ => outcome.reply,
        };
        if let Some(reply) = &reply {
            // Before the reply leaves, so that the consumer wakes up meanwhile.
            if core::mem::take(&mut run.notify) {
                cq::notify(&qp.recv_cq);
            }
            match reply.syndrome {
                Syndrome::Nak(_) => self.refuse(qp, reply, run),
                _ => self.reply(qp, reply, run),
            }
        }
        match outcome.event {
            Some(AsyncEvent::AccessError) => qp.raise(QpEvent::AccessError),
            Some(AsyncEvent::RequestError) => qp.raise(QpEvent::RequestError),
            Some(AsyncEvent::CommEst) => qp.raise(QpEvent::CommEst),
            None => {}
        }
        if outcome.error {
            qp.fail();
        }
    }

    /// Sends an acknowledgment, after the READ responses before it. An acknowledgment that is not
    /// sent counts as lost on the wire.
    #[inline]
    fn reply(&mut self, qp: &IbQp, reply: &Reply, run: &mut Run) {
        self.hand_over(qp, run);
        if self.tx.send_reply(reply).is_ok() {
            traces::acknowledged(qp, reply);
        }
    }
}
