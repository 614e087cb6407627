// SPDX-License-Identifier: GPL-2.0

//! The transmit side of a half: the path to its peer, and the limits on the packets it sends.
//!
//! Both halves send: the send half requests, the receive half acknowledgments and READ responses.
//! Each has a transmit side of its own, under the lock of the half, with a timer in the queue pair.
//!
//! ```text
//!   may_send()? --yes--> send() --Ok--> in flight until the stack frees the packet
//!     | no                 | NoRoom
//!     v                    v
//!   static rate, too many in flight, or a full queue below: the timer, or the stack when enough
//!   packets have left, runs the half again
//! ```
//!
//! Requests of RC and READ responses leave in trains: `may_send()` and `build()` for each packet,
//! then `hand_over()` for all of them. Packets are reported as sent when they are built, and are
//! taken back if a queue below has no room.

use super::{
    frame,
    path::{
        SendError,
        TxPath, //
    },
    OnExpiry, //
};
use crate::{
    ah::Av,
    clock,
    counters::{
        Counter,
        Counters, //
    },
    device::IbQp,
    gids::Link,
    traces,
    work::WakeQp, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    fine_timer::FineTimer,
    ib::gid::Path,
    net::{
        netdevice::NetDevice,
        route::CachedRoute,
        skbuff::{
            SkBuff,
            Train, //
        },
        tx_in_flight::TxInFlight, //
    }, //
};
use roce::{
    congestion::Cnp,
    ids::Qpn,
    opcode::Transport,
    pace::Pace,
    psn::Psn,
    trains::Trains,
    tx_backoff::{
        Refused,
        TxBackoff, //
    },
    wire::TxPacket,
    wr::MemError, //
};

/// The time since the last packet after which another CPU may send even if packets are in flight,
/// and the send half may send one more although the limit is reached, in nanoseconds.
///
/// A packet may stay in the network stack forever, so a half must not wait for its return without
/// a limit.
const TAKEOVER: u64 = 100_000_000;

/// The number of packets in flight up to which the send half sends one more after each
/// [`TAKEOVER`], whatever the limit is.
///
/// For each retry, a requester sends up to 32 packets before one requests an acknowledgment, and
/// one for each [`TAKEOVER`] of its timeout, but not more than its window, which halves.
const MOST_HELD: u32 = TxBackoff::MOST + 1024;

/// The maximum number of packets that a half sends or takes, of local operations that it executes,
/// and of requests that it completes, before it drops its lock.
///
/// One of the longest trains, or four of 15 packets, the most of the largest MTU that fit into one.
/// A short train at the end of a run costs as much as a long one. NAPI allows about as many packets
/// for each poll (64).
// CAST: Widening.
pub(super) const BUDGET: u32 = Train::MOST as u32;

/// The half that a transmit side belongs to.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Send,
    Recv,
}

/// The transmit side of a half, under its lock.
pub(crate) struct Tx {
    half: Half,
    /// The path to the peer; for a datagram queue pair, the path of the last datagram.
    path: Option<TxPath>,
    /// The route of `path`.
    route: CachedRoute,
    in_flight: TxInFlight<WakeQp>,
    /// The gaps for the static rate of the path. Acknowledgments do not wait.
    pace: Pace,
    /// The limit of packets in flight, and the wait for room in a queue below.
    backoff: TxBackoff,
    /// Disables trains after losses.
    trains: Trains,
    /// The counters of the half, see [`Qp::count_in`](super::Qp::count_in).
    pub(super) counters: Arc<Counters>,
}

/// The transmit state of one run of a half. `M` is the position of the first packet of a train, to
/// continue there if the train is taken back.
pub(super) struct TxRun<M> {
    /// The number of packets that may be sent before the next look at those in flight.
    room: u32,
    /// Packets that were built and not handed over yet.
    train: Option<(Train, M)>,
}

/// The result of handing over a train.
#[must_use]
pub(super) enum Handed<M> {
    /// The stack has accepted the train, or there was none.
    Over,
    /// The train counts as lost on the wire. Counted.
    Lost(M),
    /// A queue below had no room: the packets must be sent again. The half will be run again to
    /// retry.
    Back(M),
}

impl<M> Handed<M> {
    /// Returns the name of the result, for a train that existed.
    fn name(&self) -> &'static CStr {
        match self {
            Handed::Over => c"sent",
            Handed::Lost(_) => c"lost",
            Handed::Back(_) => c"refused",
        }
    }
}

impl<M> TxRun<M> {
    pub(super) fn new() -> Self {
        Self {
            room: 0,
            train: None,
        }
    }

    /// Returns the number of packets that were built and not handed over yet.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        self.train
            .as_ref()
            .map_or(0, |(train, _)| train.packets().into())
    }

    /// Returns the position of the first packet of the train, if there is one.
    #[inline]
    pub(super) fn checkpoint(&self) -> Option<&M> {
        self.train.as_ref().map(|(_, checkpoint)| checkpoint)
    }

    /// Adds a packet to the train. Returns the packet if a new train has to begin with it.
    #[inline]
    pub(super) fn join(&mut self, skb: SkBuff) -> Result<(), SkBuff> {
        match &mut self.train {
            Some((train, _)) => train.push(skb),
            None => Err(skb),
        }
    }

    /// Begins a train. The previous one was handed over.
    #[inline]
    pub(super) fn begin(&mut self, skb: SkBuff, checkpoint: M) {
        self.train = Some((Train::new(skb), checkpoint));
    }
}

impl Tx {
    /// Creates the transmit side of a half of queue pair `qpn`. May sleep.
    pub(super) fn new(half: Half, qpn: u32, counters: Arc<Counters>) -> impl Init<Self, Error> {
        let most = match half {
            Half::Send => MOST_HELD,
            // The peer has to request a response again.
            Half::Recv => 0,
        };
        init!(Self {
            half,
            path: None,
            route: CachedRoute::new(GFP_KERNEL_ACCOUNT)?,
            in_flight: TxInFlight::new(TAKEOVER, most, WakeQp(qpn))?,
            pace: Pace::default(),
            backoff: TxBackoff::default(),
            trains: Trains::default(),
            counters,
        }? Error)
    }

    /// Forgets everything but the packets in flight and the counters (RESET).
    pub(super) fn reset(&mut self) {
        self.path = None;
        self.route.clear();
        self.pace = Pace::default();
        self.backoff.reset();
        self.trains = Trains::default();
    }

    /// Forgets the path of datagrams if there is no route for it.
    #[cold]
    pub(super) fn forget_lost_path(&mut self) {
        if self.route.is_empty() {
            self.path = None;
        }
    }

    /// Sets the path to the peer.
    pub(super) fn set_path(&mut self, path: TxPath) {
        self.path = Some(path);
    }

    /// Returns the path to the peer.
    #[inline]
    pub(super) fn path(&mut self) -> Option<&mut TxPath> {
        self.path.as_mut()
    }

    /// Returns whether datagrams of an address vector take the current path.
    #[inline]
    pub(super) fn is_to(&self, av: &Av) -> bool {
        self.path.as_ref().is_some_and(|path| path.is_of(av))
    }

    /// Returns the address vector of the path to the peer.
    #[inline]
    pub(super) fn address(&self) -> Option<&Path> {
        self.path.as_ref().map(TxPath::path)
    }

    /// Learns the UDP source port of the peer from a packet that was expected.
    #[inline]
    pub(super) fn heard(&mut self, sport: u16) {
        if let Some(path) = &mut self.path {
            path.heard(sport);
        }
    }

    /// Returns the number of packets in qdiscs and devices below.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.in_flight()
    }

    /// Returns whether the half waits for packets to leave, or for room in a queue below.
    pub(super) fn is_blocked(&self) -> bool {
        self.in_flight.is_paused() || self.backoff.is_waiting()
    }

    /// Returns whether the half may send a packet now. If not, the half will be run again when it
    /// may.
    ///
    /// Bottom halves are off. The clock is read only if there is something to wait for.
    #[inline]
    pub(super) fn may_send<M>(&mut self, qp: &IbQp, run: &mut TxRun<M>) -> bool {
        if self.backoff.waits(clock::monotonic) {
            return false;
        }
        if self.pace.is_on() {
            if let Some(at) = self.pace.wait(clock::monotonic()) {
                self.timer(qp).arm(at.as_ns());
                return false;
            }
        }
        if run.room == 0 {
            // This counts the half as a sender. A half with nothing to send does not get here.
            let in_trains = self.takes_trains(qp);
            let limit = qp.device().send_limit(&mut self.backoff, in_trains);
            // The stack calls the waker when three quarters of the packets have left.
            run.room = self.in_flight.room(run.pending(), limit, limit / 4);
        }
        let Some(rest) = run.room.checked_sub(1) else {
            self.await_takeover(qp);
            return false;
        };
        run.room = rest;
        true
    }

    /// Builds a packet and hands it to the IP layer. Bottom halves are off.
    ///
    /// The arguments are those of [`TxPath::build`].
    ///
    /// # Errors
    ///
    /// See [`SendError`]. After [`SendError::NoRoom`], the half will be run again.
    #[inline]
    pub(super) fn send(
        &mut self,
        qp: &IbQp,
        packet: &impl TxPacket,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
    ) -> Result<(), SendError> {
        let skb = self.build(packet, gather)?;
        let gap = self.path.as_ref().and_then(|path| path.gap(skb.len()));
        let now = (gap.is_some() || self.pace.is_on()).then(clock::monotonic);
        self.pass(qp, Train::new(skb))?;
        if let Some(now) = now {
            self.pace.sent(now, gap);
        }
        Ok(())
    }

    /// Returns whether packets may leave in trains now. Only RC sends trains: UC cannot take
    /// packets back.
    #[inline]
    pub(super) fn takes_trains(&self, qp: &IbQp) -> bool {
        qp.ty.transport() == Transport::Rc
            && self.trains.is_on()
            && !self.pace.is_on()
            && !self.path.as_ref().is_some_and(TxPath::has_rate)
    }

    /// Builds a packet for a train. Bottom halves are off.
    ///
    /// The arguments are those of [`Tx::send`].
    ///
    /// # Errors
    ///
    /// See [`SendError`]; never [`SendError::NoRoom`].
    #[inline]
    pub(super) fn build(
        &mut self,
        packet: &impl TxPacket,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
    ) -> Result<SkBuff, SendError> {
        self.path
            .as_mut()
            .ok_or_else(|| SendError::lost(&self.counters, Counter::NoRoute, 1))?
            .build(packet, gather, &self.counters)
    }

    /// Hands the train of a run to the IP layer. Bottom halves are off.
    #[inline]
    pub(super) fn hand_over<M>(&mut self, qp: &IbQp, run: &mut TxRun<M>) -> Handed<M> {
        let Some((train, checkpoint)) = run.train.take() else {
            return Handed::Over;
        };
        let kept = traces::keep_train(&train);
        let handed = match self.pass(qp, train) {
            Ok(()) => Handed::Over,
            Err(SendError::NoRoom) => Handed::Back(checkpoint),
            Err(_) => Handed::Lost(checkpoint),
        };
        let receive = matches!(self.half, Half::Recv);
        traces::handed_over(qp, receive, kept, || handed.name());
        handed
    }

    /// Hands packets to the IP layer, either all or none. Bottom halves are off.
    ///
    /// # Errors
    ///
    /// See [`Tx::send`].
    fn pass(&mut self, qp: &IbQp, train: Train) -> Result<(), SendError> {
        let packets = train.packets();
        let path = self
            .path
            .as_mut()
            .ok_or_else(|| SendError::lost(&self.counters, Counter::NoRoute, packets))?;
        let account = Some(&self.in_flight);
        match path.transmit(&mut self.route, train, account, &self.counters) {
            Ok(()) => {
                self.backoff.taken(packets.into());
                self.trains.sent(packets);
                Ok(())
            }
            Err(error @ SendError::NoRoom) => {
                if packets > 1 {
                    self.trains.refused(packets);
                }
                Err(self.pause(qp, error, packets))
            }
            Err(error) => Err(error),
        }
    }

    /// Reports that the packet with PSN `psn` was lost, and maybe others, perhaps because they were
    /// in a train. `next` is the PSN to be sent next, for the first time or again.
    #[cold]
    pub(super) fn lost(&mut self, psn: Psn, next: Psn) {
        if self.trains.lost(psn, next) {
            self.counters.count(Counter::TrainsOff);
        }
    }

    /// Sends a frame as it is; see [`frame::send`].
    ///
    /// It is lost if the net device was moved to another namespace, and the RDMA device is still
    /// being removed: the process may lack CAP_NET_RAW there.
    pub(super) fn send_frame(
        &mut self,
        qp: &IbQp,
        netdev: &NetDevice,
        len: u32,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
    ) -> Result<(), SendError> {
        if Link::of(netdev) != qp.device().link {
            return Err(SendError::lost(&self.counters, Counter::NoRoute, 1));
        }
        frame::send(netdev, len, gather, &self.in_flight, &self.counters)?;
        self.backoff.taken(1);
        Ok(())
    }

    /// Sends an acknowledgment or a CNP, which never waits and is not limited. A packet that is not
    /// sent counts as lost on the wire. It is counted, unless the half has no path.
    #[inline]
    pub(super) fn send_reply(&mut self, packet: &impl TxPacket) -> Result<(), SendError> {
        self.pass_reply(packet).inspect_err(|error| {
            if *error == SendError::NoRoom {
                self.counters.lost(Counter::Rejected, 1);
            }
        })
    }

    /// Sends the last reply of a queue pair. Unlike other replies, it waits for memory, for room in
    /// a queue below, and until the packets of another CPU have left.
    ///
    /// # Errors
    ///
    /// See [`SendError`]. After [`SendError::NoRoom`], the half will be run again.
    #[cold]
    pub(super) fn send_last(&mut self, qp: &IbQp, packet: &impl TxPacket) -> Result<(), SendError> {
        if self.backoff.waits(clock::monotonic) {
            return Err(SendError::NoRoom);
        }
        // Without a limit, there is room unless packets of another CPU are in flight.
        if self.in_flight.room(0, u32::MAX, 0) == 0 {
            self.await_takeover(qp);
            return Err(SendError::NoRoom);
        }
        match self.pass_reply(packet) {
            Ok(()) => self.backoff.taken(1),
            Err(error @ (SendError::NoRoom | SendError::NoMemory)) => {
                return Err(self.pause(qp, error, 1));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Hands an acknowledgment or a CNP to the IP layer.
    #[inline]
    fn pass_reply(&mut self, packet: &impl TxPacket) -> Result<(), SendError> {
        let path = self.path.as_mut().ok_or(SendError::Lost)?;
        let skb = path.build(packet, |_| Ok(()), &self.counters)?;
        path.transmit(&mut self.route, Train::new(skb), None, &self.counters)
    }

    /// Counts a packet of the peer with a congestion mark, and sends CNPs to its queue pair
    /// `dest_qpn` at a limited rate. Does nothing if the half does not react to marks.
    #[cold]
    pub(super) fn marked(&mut self, dest_qpn: Qpn) {
        let Some(path) = self.path.as_mut().filter(|path| path.has_ecn()) else {
            return;
        };
        self.counters.count(Counter::Marked);
        if !path.is_cnp_due() {
            return;
        }
        let cnp = Cnp { dest_qpn };
        if self.send_reply(&cnp).is_ok() {
            self.counters.count(Counter::CnpSent);
        }
    }

    /// Pauses the half after `error`, a lack of room or of memory for packets. Counts them as lost
    /// if they cannot wait, or have waited too often.
    #[cold]
    fn pause(&mut self, qp: &IbQp, error: SendError, packets: u16) -> SendError {
        if !qp.ty.is_connected() {
            // Datagrams to one address must not wait for room on the way to another.
            return SendError::lost(&self.counters, Counter::Rejected, packets);
        }
        let queued = self.in_flight.in_flight();
        match self.backoff.refused(clock::monotonic(), queued) {
            Refused::Again { at, first } => {
                self.timer(qp).arm(at.as_ns());
                // A lack of memory was counted already.
                if first && error == SendError::NoRoom {
                    self.counters.count(Counter::NoRoom);
                }
                SendError::NoRoom
            }
            Refused::Lost => SendError::lost(&self.counters, Counter::Rejected, packets),
        }
    }

    /// Has the half run again after [`TAKEOVER`].
    fn await_takeover(&self, qp: &IbQp) {
        let at = clock::monotonic().after(TAKEOVER);
        self.timer(qp).arm(at.as_ns());
    }

    /// Returns the timer of the half. All reasons to wait share it, since only one applies at a
    /// time.
    #[inline]
    fn timer<'a>(&self, qp: &'a IbQp) -> &'a FineTimer<OnExpiry> {
        match self.half {
            Half::Send => &qp.send_pacer,
            Half::Recv => &qp.recv_pacer,
        }
    }
}
