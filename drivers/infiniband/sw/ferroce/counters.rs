// SPDX-License-Identifier: GPL-2.0

//! Counters: `rdma statistic show link`, and `hw_counters` of the port.
//!
//! They are per CPU: counting is an addition to memory that no other CPU writes.
//! Documentation/infiniband/ferroce/counters.rst describes each one.

use crate::pool::{
    self,
    Pool, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    ib::counter::CounterDesc,
    sync::PerCpuCounters, //
};
use roce::{
    pma::PortCounters,
    requester::{
        ResponseKind,
        SendCompletion, //
    },
    responder::DropReason,
    wire::Syndrome,
    wr::{
        SendOp,
        Status, //
    }, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*; $($pool:ident = $used:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// The names of the counters: those of [`Counter`] in declaration order, then those of the
        /// pools.
        pub(crate) static NAMES: &[CounterDesc] =
            &[$(CounterDesc::new($name),)* $(CounterDesc::new($used),)*];

        static POOLS: &[&Pool] = &[$(&pool::$pool,)*];

        const COUNT: usize = [$($name,)*].len();
    };
}

counters! {
    // The counters of C rxe, in the same order.
    /// A packet that the network stack accepted.
    Sent = c"sent_pkts",
    /// A packet received for the device, even if it was dropped.
    Received = c"rcvd_pkts",
    /// A request that was already executed.
    Duplicate = c"duplicate_request",
    /// A NAK sent because an earlier request is missing (PSN sequence error).
    OutOfSequence = c"out_of_seq_request",
    /// An RNR NAK received.
    RnrReceived = c"rcvd_rnr_err",
    /// An RNR NAK sent.
    RnrSent = c"send_rnr_err",
    /// A NAK received for a PSN sequence error.
    SequenceNak = c"rcvd_seq_err",
    /// A response that had to wait for memory, or behind one that did.
    AckDeferred = c"ack_deferred",
    /// A request that failed because no retry was left.
    RetryExceeded = c"retry_exceeded_err",
    /// A request that failed because no RNR retry was left.
    RnrRetryExceeded = c"retry_rnr_exceeded_err",
    /// A retransmission by the requester, other than a probe.
    Retry = c"completer_retry_err",
    /// A packet that was not sent.
    SendError = c"send_err",
    /// A change of the port from active to down.
    LinkDowned = c"link_downed",
    /// A SEND that succeeded.
    Sends = c"rdma_sends",
    /// A receive request that succeeded.
    Receives = c"rdma_recvs",
    /// Bytes sent, from the IP header on.
    SentBytes = c"sent_bytes",
    /// Bytes received, from the IP header on.
    ReceivedBytes = c"rcvd_bytes",

    // Counters that C rxe does not have.
    /// A packet of [`Sent`](Self::Sent) to a multicast group.
    SentMulticast = c"sent_mcast_pkts",
    /// A packet of [`Received`](Self::Received) to a multicast group.
    ReceivedMulticast = c"rcvd_mcast_pkts",
    /// An ACK timeout.
    Timeout = c"ack_timeout",
    /// A packet that was retransmitted before the ACK timeout, because its response seemed to be
    /// lost.
    Probe = c"roce_adp_retrans",
    /// A response that proves that an earlier one is missing.
    ImpliedNak = c"implied_nak_seq_err",
    /// A response without new information.
    DuplicateResponse = c"duplicate_response",
    /// A request behind a gap that was kept until the missing ones arrived.
    OutOfOrder = c"out_of_order_request",
    /// A response behind a gap that was kept until the missing ones arrived.
    OutOfOrderResponse = c"out_of_order_response",
    /// A NAK sent that ends the connection.
    NakSent = c"send_nak_err",
    /// A NAK received that ends the connection.
    NakReceived = c"rcvd_nak_err",
    /// A request of the peer for memory that it may not access.
    RemoteAccess = c"resp_remote_access_errors",

    // Congestion, as mlx5 counts it (NP: notification point, RP: reaction point).
    /// A packet received with a congestion mark (ECN).
    Marked = c"np_ecn_marked_roce_packets",
    /// A congestion notification sent.
    CnpSent = c"np_cnp_sent",
    /// A congestion notification received.
    CnpHandled = c"rp_cnp_handled",

    // Reasons for dropping a received packet.
    /// It cannot be parsed, or its opcode is unknown (UC, UD).
    Malformed = c"rx_malformed",
    /// Its P_Key is wrong.
    BadPkey = c"rx_bad_pkey",
    /// Its ICRC is wrong.
    BadIcrc = c"rx_bad_icrc",
    /// No queue pair has its destination number.
    NoQp = c"rx_no_qp",
    /// Its group has no member.
    NoGroup = c"rx_no_group",
    /// Its queue pair receives nothing in its current state.
    BadState = c"rx_bad_state",
    /// Its addresses are not those of the connection, or its destination is not an address of the
    /// device (UD).
    BadAddress = c"rx_bad_address",
    /// Its UDP source port is not that of the peer.
    BadSourcePort = c"rx_bad_sport",
    /// Its Q_Key is wrong.
    BadQkey = c"rx_bad_qkey",
    /// Its opcode is not valid for the service type, or does not continue the current message.
    BadOpcode = c"rx_bad_opcode",
    /// Its length is wrong.
    BadLength = c"rx_bad_length",
    /// It is a WRITE, which the queue pair does not allow (UC).
    NoAccess = c"rx_no_access",
    /// Packets before it are missing.
    Gap = c"rx_psn_gap",
    /// There is no receive request for it (UC, UD).
    NoWqe = c"rx_no_wqe",
    /// It is a response to a queue pair that sends nothing, has a reserved syndrome, or is a CNP
    /// while congestion control is off.
    UnexpectedResponse = c"rx_unexpected_response",
    /// It is an invalid response.
    BadResponse = c"rx_bad_response",
    /// Too many packets wait for its queue pair, or the share of the pool for them is used up.
    Backlog = c"rx_backlog_full",
    /// There was no memory for it.
    NoMemory = c"rx_no_memory",

    // Reasons for not sending a packet.
    /// There is no route, or no address to send from.
    NoRoute = c"tx_no_route",
    /// The network stack refused it for another reason than a full queue, the queue was full for
    /// too long, or a packet of this kind does not wait (acknowledgments, CNPs, datagrams, frames).
    Rejected = c"tx_rejected",
    /// It is a datagram larger than the MTU of the port.
    Oversize = c"tx_oversize",
    /// There was no memory for it. Only requests, and the last reply of a connection, are retried.
    NoPacket = c"tx_no_memory",
    /// A queue below was full; it is retried.
    NoRoom = c"tx_queue_full",

    // Packets that cross the network stack together.
    /// A train that the network stack accepted.
    Trains = c"tx_trains",
    /// A packet of [`Sent`](Self::Sent) in a train.
    TrainPackets = c"tx_train_pkts",
    /// A half that stops sending trains for a while because one was lost.
    TrainsOff = c"tx_trains_off",
    /// A train received as one GSO packet.
    TrainsReceived = c"rx_trains",
    /// A train received as one GSO packet and split in front of the driver.
    TrainsSplit = c"rx_trains_split",

    // The use of the module's pools, which all devices share.
    ;
    PDS = c"pool_pd",
    MRS = c"pool_mr",
    MWS = c"pool_mw",
    CQS = c"pool_cq",
    SRQS = c"pool_srq",
    QPS = c"pool_qp",
    AHS = c"pool_ah",
    FETCHES = c"pool_fetch",
    BACKLOG = c"pool_backlog",
}

/// Returns the value of a port's counter, by the index of its name in [`NAMES`].
pub(crate) fn of_port(set: &Counters, index: usize) -> u64 {
    match index.checked_sub(COUNT).and_then(|pool| POOLS.get(pool)) {
        Some(pool) => pool.used().into(),
        None => set.get(index),
    }
}

impl Counter {
    /// Returns the index of the counter's name in [`NAMES`].
    #[inline]
    fn index(self) -> usize {
        // CAST: The variants are numbered from zero.
        self as usize
    }

    /// Returns the name of the counter.
    #[cold]
    pub(crate) fn name(self) -> &'static CStr {
        NAMES.get(self.index()).map_or(c"", CounterDesc::name)
    }
}

/// A set of counters: of a device, or of the queue pairs that are bound to a counter. Callable in
/// any context unless noted.
pub(crate) struct Counters {
    values: PerCpuCounters<COUNT>,
    /// The sum over all queue pairs of the device that are bound to any counter.
    sum: Option<Arc<Counters>>,
}

impl Counters {
    /// Creates a set of counters, all zero. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(sum: Option<Arc<Counters>>) -> Result<Arc<Self>> {
        let set = Self {
            values: PerCpuCounters::new()?,
            sum,
        };
        Ok(Arc::new(set, GFP_KERNEL_ACCOUNT)?)
    }

    /// Counts one more.
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    #[inline]
    fn add(&self, counter: Counter, n: u64) {
        self.values.add(counter.index(), n);
        if let Some(sum) = &self.sum {
            sum.values.add(counter.index(), n);
        }
    }

    /// Counts a received packet and its bytes, from the IP header on.
    #[inline]
    pub(crate) fn received(&self, bytes: u32) {
        self.count(Counter::Received);
        self.add(Counter::ReceivedBytes, u64::from(bytes));
    }

    /// Counts packets that the network stack accepted together, and their bytes.
    #[inline]
    pub(crate) fn sent(&self, packets: u16, bytes: usize) {
        self.add(Counter::Sent, packets.into());
        // CAST: Widening.
        self.add(Counter::SentBytes, bytes as u64);
        if packets > 1 {
            self.count(Counter::Trains);
            self.add(Counter::TrainPackets, packets.into());
        }
    }

    /// Counts packets that were dropped after they had been counted as received.
    #[cold]
    pub(crate) fn dropped(&self, reason: Counter, n: usize) {
        // CAST: Widening.
        self.add(reason, n as u64);
    }

    /// Counts packets that were not sent.
    #[cold]
    pub(crate) fn lost(&self, reason: Counter, packets: u16) {
        self.add(Counter::SendError, packets.into());
        self.add(reason, packets.into());
    }

    /// Counts the end of a send request.
    #[inline]
    pub(crate) fn completed(&self, done: &SendCompletion) {
        match done.status {
            Status::Success => {
                if matches!(done.op, SendOp::Send | SendOp::SendImm | SendOp::SendInv) {
                    self.count(Counter::Sends);
                }
            }
            Status::RetryExceeded => self.count(Counter::RetryExceeded),
            Status::RnrRetryExceeded => self.count(Counter::RnrRetryExceeded),
            _ => {}
        }
    }

    /// Returns the value of a counter, by the index of its name in [`NAMES`]; 0 for a pool.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values.sum(index)
    }

    /// Returns the counters that IBTA defines for a port, each summed over `self` and `other`.
    pub(crate) fn port(&self, other: &Self) -> PortCounters {
        let get = |counter: Counter| {
            let index = counter.index();
            self.get(index).wrapping_add(other.get(index))
        };
        let sum = |list: &[Counter]| {
            list.iter()
                .fold(0, |sum: u64, &counter| sum.wrapping_add(get(counter)))
        };

        PortCounters {
            xmit_bytes: get(Counter::SentBytes),
            rcv_bytes: get(Counter::ReceivedBytes),
            xmit_packets: get(Counter::Sent),
            rcv_packets: get(Counter::Received),
            xmit_multicast: get(Counter::SentMulticast),
            rcv_multicast: get(Counter::ReceivedMulticast),
            link_downed: get(Counter::LinkDowned),
            rcv_errors: sum(&[
                Counter::Malformed,
                Counter::BadIcrc,
                Counter::Backlog,
                Counter::NoMemory,
            ]),
            rcv_constraint_errors: get(Counter::BadPkey),
            xmit_discards: get(Counter::SendError),
        }
    }
}

/// Returns the counter of a dropped request.
pub(crate) fn of_drop(reason: DropReason) -> Counter {
    match reason {
        DropReason::PsnGap => Counter::Gap,
        DropReason::Duplicate => Counter::Duplicate,
        DropReason::NoRecvWqe => Counter::NoWqe,
        DropReason::BadQkey => Counter::BadQkey,
        DropReason::BadOpcode => Counter::BadOpcode,
        DropReason::BadLength => Counter::BadLength,
        DropReason::NotAllowed => Counter::NoAccess,
        DropReason::Failed => Counter::BadState,
        DropReason::Busy => Counter::Backlog,
    }
}

/// Returns the counter of a request that only gets a reply.
pub(crate) fn of_reply(syndrome: Syndrome) -> Counter {
    match syndrome {
        Syndrome::Ack { .. } => Counter::Duplicate,
        Syndrome::Rnr { .. } => Counter::RnrSent,
        Syndrome::Nak(_) | Syndrome::Reserved => Counter::OutOfSequence,
    }
}

/// Returns the counter of a response.
#[inline]
pub(crate) fn of_response(kind: ResponseKind) -> Option<Counter> {
    match kind {
        ResponseKind::Ack | ResponseKind::ReadResponse | ResponseKind::Early => None,
        ResponseKind::NakSequence => Some(Counter::SequenceNak),
        ResponseKind::Gap => Some(Counter::ImpliedNak),
        ResponseKind::NakFatal => Some(Counter::NakReceived),
        ResponseKind::Rnr => Some(Counter::RnrReceived),
        ResponseKind::Duplicate => Some(Counter::DuplicateResponse),
        ResponseKind::BadResponse => Some(Counter::BadResponse),
        ResponseKind::Congestion => Some(Counter::CnpHandled),
        ResponseKind::Dropped => Some(Counter::UnexpectedResponse),
    }
}
