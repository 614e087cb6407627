// SPDX-License-Identifier: GPL-2.0

//! The transmit side of a half: the path to its peer, and the limits on the packets it sends.
//!
//! Both halves send: the send half requests, the receive half acknowledgments and READ responses.
//! Each has a transmit side of its own, under its lock, with a timer in the queue pair.
//!
//! ```text
//!   may_send()? --yes--> send() --Ok--> in flight until the stack frees the packet
//!     | no                 | NoRoom
//!     v                    v
//!   static rate, too many in flight, or a full queue below: the timer, or the last packet freed,
//!   runs the half again
//! ```

use super::{
    frame,
    path::{
        SendError,
        TxPath, //
    },
    wake,
    Pacer, //
};
use crate::{
    counters::{
        Counter,
        Counters, //
    },
    device::IbQp, //
};
use kernel::prelude::*;
use rdma::{
    fine_timer::FineTimer,
    net::{
        netdevice::NetDevice,
        route::CachedRoute,
        skbuff::SkBuff,
        tx_in_flight::TxInFlight, //
    }, //
};
use roce::{
    ids::Pkey,
    pace::Pace,
    time::Instant,
    tx_backoff::{
        Refused,
        TxBackoff, //
    },
    wire::MAX_HEADER_LEN,
    wr::MemError, //
};

/// The time without a packet after which another CPU may send in any case, in nanoseconds.
///
/// A packet may stay in the network stack for ever, so its return must not be waited for.
const HANDOVER: u64 = 100_000_000;

/// The half that a transmit side belongs to.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Send,
    Recv,
}

/// The transmit side of a half, under its lock.
pub(crate) struct Tx {
    half: Half,
    /// The path to the peer; of a datagram queue pair, that of the last datagram.
    path: Option<TxPath>,
    /// The route of `path`.
    route: CachedRoute,
    in_flight: TxInFlight,
    /// The gaps that the static rate of the path demands. Acknowledgments do not wait.
    pace: Pace,
    /// The limit of packets in flight, and the wait for room in a queue below.
    backoff: TxBackoff,
}

/// One run of a half that sends.
#[derive(Default)]
pub(super) struct TxRun {
    /// The most packets in flight, from the first packet on: a half without one is no sender.
    limit: Option<u32>,
}

impl Tx {
    /// Makes the transmit side of a half of queue pair `qpn`. May sleep.
    pub(super) fn new(half: Half, qpn: u32) -> impl Init<Self, Error> {
        init!(Self {
            half,
            path: None,
            route: CachedRoute::new(GFP_KERNEL_ACCOUNT)?,
            in_flight: TxInFlight::new(HANDOVER, wake, qpn)?,
            pace: Pace::new(),
            backoff: TxBackoff::default(),
        }? Error)
    }

    /// Forgets everything but the packets in flight (RESET).
    pub(super) fn reset(&mut self) {
        self.path = None;
        self.route.clear();
        self.pace = Pace::new();
        self.backoff.reset();
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

    /// Returns the number of packets in qdiscs and devices below.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.in_flight()
    }

    /// Returns whether the half waits for packets to leave, or for room in a queue below.
    pub(super) fn is_blocked(&self) -> bool {
        self.in_flight.is_paused() || self.backoff.is_waiting()
    }

    /// Returns whether a static rate applies: then each packet needs the time.
    #[inline]
    pub(super) fn is_paced(&self) -> bool {
        self.pace.is_on()
    }

    /// Returns whether the half may send a packet now. If not, it is run again when it may.
    ///
    /// Bottom halves are off. `clock` is read only if there is something to wait for.
    #[inline]
    pub(super) fn may_send(
        &mut self,
        qp: &IbQp,
        run: &mut TxRun,
        clock: impl Fn() -> Instant,
    ) -> bool {
        if self.backoff.waits(&clock) {
            return false;
        }
        if self.pace.is_on() {
            if let Some(at) = self.pace.wait(clock()) {
                self.timer(qp).arm(at.as_ns());
                return false;
            }
        }
        let backoff = &mut self.backoff;
        let limit = *run
            .limit
            .get_or_insert_with(|| qp.device().senders.limit(backoff));
        // The stack calls `wake` when three quarters of the packets have left.
        if self.in_flight.admits(limit, limit / 4) {
            return true;
        }
        self.timer(qp).arm(clock().after(HANDOVER).as_ns());
        false
    }

    /// Builds a packet and hands it to the IP layer. Bottom halves are off.
    ///
    /// `headers` writes the BTH and what follows it, `gather` appends `len` bytes of payload.
    ///
    /// # Errors
    ///
    /// See [`SendError`]. After [`SendError::NoRoom`] the half is run again.
    #[inline]
    pub(super) fn send(
        &mut self,
        qp: &IbQp,
        headers: impl FnOnce(Pkey, &mut [u8]) -> Option<usize>,
        len: u32,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
        clock: impl Fn() -> Instant,
        counters: &Counters,
    ) -> Result<(), SendError> {
        let mut buf = [0; MAX_HEADER_LEN];
        let headers = headers(Pkey::DEFAULT, &mut buf)
            .and_then(|len| buf.get(..len))
            .ok_or_else(|| SendError::lost(counters, Counter::Rejected))?;
        let path = self
            .path
            .as_mut()
            .ok_or_else(|| SendError::lost(counters, Counter::NoRoute))?;
        let account = Some(&self.in_flight);
        match path.send(&mut self.route, headers, len, gather, account, counters) {
            Ok(()) => {}
            Err(SendError::NoRoom) => return Err(self.wait_for_room(qp, clock(), counters)),
            Err(error) => return Err(error),
        }
        self.backoff.taken();
        let gap = path.gap(headers.len(), len);
        if gap.is_some() || self.pace.is_on() {
            self.pace.sent(clock(), gap);
        }
        Ok(())
    }

    /// Sends a frame as it is; see [`frame::send`].
    pub(super) fn send_frame(
        &mut self,
        netdev: &NetDevice,
        len: u32,
        gather: impl FnOnce(&mut SkBuff) -> Result<(), MemError>,
        counters: &Counters,
    ) -> Result<(), SendError> {
        match frame::send(netdev, len, gather, &self.in_flight, counters) {
            Ok(()) => self.backoff.taken(),
            Err(SendError::NoRoom) => return Err(SendError::lost(counters, Counter::Rejected)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sends an acknowledgment, which neither waits nor is limited. One that is not sent is as good
    /// as lost on the wire, and counted.
    #[inline]
    pub(super) fn send_reply(
        &mut self,
        headers: impl FnOnce(Pkey, &mut [u8]) -> Option<usize>,
        counters: &Counters,
    ) -> Result<(), SendError> {
        let mut buf = [0; MAX_HEADER_LEN];
        let headers = headers(Pkey::DEFAULT, &mut buf).and_then(|len| buf.get(..len));
        let (Some(path), Some(headers)) = (&mut self.path, headers) else {
            return Err(SendError::Lost);
        };
        path.send(&mut self.route, headers, 0, |_| Ok(()), None, counters)
            .inspect_err(|error| {
                if *error == SendError::NoRoom {
                    counters.lost(Counter::Rejected);
                }
            })
    }

    /// Pauses after a packet that a queue below had no room for, or counts it as lost.
    #[cold]
    fn wait_for_room(&mut self, qp: &IbQp, now: Instant, counters: &Counters) -> SendError {
        if !qp.ty.is_connected() {
            // Datagrams to one address must not wait for room on the way to another.
            return SendError::lost(counters, Counter::Rejected);
        }
        match self.backoff.refused(now, self.in_flight.in_flight()) {
            Refused::Again { at, first } => {
                if first {
                    counters.count(Counter::NoRoom);
                }
                self.timer(qp).arm(at.as_ns());
                SendError::NoRoom
            }
            Refused::Lost => SendError::lost(counters, Counter::Rejected),
        }
    }

    /// Returns the timer: there is one for every reason to wait, since only one holds at a time.
    #[inline]
    fn timer<'a>(&self, qp: &'a IbQp) -> &'a FineTimer<Pacer> {
        match self.half {
            Half::Send => &qp.send_pacer,
            Half::Recv => &qp.recv_pacer,
        }
    }
}
