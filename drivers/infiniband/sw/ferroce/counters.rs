// SPDX-License-Identifier: GPL-2.0

//! Counters: `rdma statistic show link`, and `hw_counters` of the port.
//!
//! They are kept for each CPU, so that to count is an addition to memory that no other CPU writes.
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
    ib::stats::CounterDesc,
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
        /// Something to count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// The names: those of [`Counter`] in its order, then those of the pools.
        pub(crate) static NAMES: &[CounterDesc] =
            &[$(CounterDesc::new($name),)* $(CounterDesc::new($used),)*];

        static POOLS: &[&Pool] = &[$(&pool::$pool,)*];

        const COUNT: usize = [$($name,)*].len();
    };
}

counters! {
    // Those of C rxe, in its order.
    /// A packet that the network stack took.
    Sent = c"sent_pkts",
    /// A packet received for the device, even if it was dropped.
    Received = c"rcvd_pkts",
    /// A request that had been executed before.
    Duplicate = c"duplicate_request",
    /// A NAK sent for a missing request.
    OutOfSequence = c"out_of_seq_request",
    /// An RNR NAK received.
    RnrReceived = c"rcvd_rnr_err",
    /// An RNR NAK that was sent.
    RnrSent = c"send_rnr_err",
    /// A NAK for a sequence error received.
    SequenceNak = c"rcvd_seq_err",
    /// A response that had to wait for memory, or behind one that did.
    AckDeferred = c"ack_deferred",
    /// A request that ended because no retry was left.
    RetryExceeded = c"retry_exceeded_err",
    /// A request that ended because no RNR retry was left.
    RnrRetryExceeded = c"retry_rnr_exceeded_err",
    /// A requester that went back to send again.
    Retry = c"completer_retry_err",
    /// A packet that was not sent.
    SendError = c"send_err",
    /// A port that was active and is down.
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
    /// A packet of [`Sent`](Self::Sent) that went to a group.
    SentMulticast = c"sent_mcast_pkts",
    /// A packet of [`Received`](Self::Received) to a multicast group.
    ReceivedMulticast = c"rcvd_mcast_pkts",
    /// A response that was overdue.
    Timeout = c"ack_timeout",
    /// A packet that was sent again because its response seemed to be lost.
    Probe = c"roce_adp_retrans",
    /// A response that proves that one before it is missing.
    ImpliedNak = c"implied_nak_seq_err",
    /// A response without new information.
    DuplicateResponse = c"duplicate_response",
    /// A request after a gap that was kept until the missing ones arrive.
    OutOfOrder = c"out_of_order_request",
    /// A response after a gap that was kept until the missing ones arrive.
    OutOfOrderResponse = c"out_of_order_response",
    /// A NAK that was sent and ends the connection.
    NakSent = c"send_nak_err",
    /// A NAK received that ends the connection.
    NakReceived = c"rcvd_nak_err",
    /// A request of a peer that names memory which it may not access.
    RemoteAccess = c"resp_remote_access_errors",

    // Congestion, as mlx5 counts it (NP: notification point, RP: reaction point).
    /// A packet received that a congested network has marked.
    Marked = c"np_ecn_marked_roce_packets",
    /// A congestion notification sent.
    CnpSent = c"np_cnp_sent",
    /// A congestion notification received.
    CnpHandled = c"rp_cnp_handled",

    // Reasons for dropping a received packet.
    /// It cannot be parsed, or its opcode is not known.
    Malformed = c"rx_malformed",
    /// Its P_Key is wrong.
    BadPkey = c"rx_bad_pkey",
    /// Its ICRC is wrong.
    BadIcrc = c"rx_bad_icrc",
    /// There is no queue pair with its number.
    NoQp = c"rx_no_qp",
    /// Its group has no member.
    NoGroup = c"rx_no_group",
    /// Its queue pair receives nothing in the state that it is in.
    BadState = c"rx_bad_state",
    /// It is from or to an address that is not that of the connection, or of the device.
    BadAddress = c"rx_bad_address",
    /// It is from another UDP port than that of the peer.
    BadSourcePort = c"rx_bad_sport",
    /// The Q_Key of the datagram is wrong.
    BadQkey = c"rx_bad_qkey",
    /// Its opcode is not one of the service type, or does not continue the message.
    BadOpcode = c"rx_bad_opcode",
    /// Its length is wrong.
    BadLength = c"rx_bad_length",
    /// It is a WRITE, which the queue pair does not allow (UC).
    NoAccess = c"rx_no_access",
    /// Packets before it are missing.
    Gap = c"rx_psn_gap",
    /// There is no receive request for it (UC, UD).
    NoWqe = c"rx_no_wqe",
    /// No request waits for this response.
    UnexpectedResponse = c"rx_unexpected_response",
    /// The response makes no sense.
    BadResponse = c"rx_bad_response",
    /// Its queue pair had too many waiting.
    Backlog = c"rx_backlog_full",
    /// There was no memory.
    NoMemory = c"rx_no_memory",

    // Why a packet was not sent.
    /// There is no route, or no address to send from.
    NoRoute = c"tx_no_route",
    /// The network stack refused it: not because a queue was full, or that lasted too long, or it
    /// is a packet that does not wait.
    Rejected = c"tx_rejected",
    /// It is a datagram above the MTU of the port.
    Oversize = c"tx_oversize",
    /// There was no memory; it is tried again.
    NoPacket = c"tx_no_memory",
    /// A queue below was full; it is tried again.
    NoRoom = c"tx_queue_full",

    // Packets that cross the network stack together.
    /// A train that the network stack took.
    Trains = c"tx_trains",
    /// A packet of [`Sent`](Self::Sent) in a train.
    TrainPackets = c"tx_train_pkts",
    /// A half that sends its packets one by one for a while because a train was lost.
    TrainsOff = c"tx_trains_off",
    /// A train received whole.
    TrainsReceived = c"rx_trains",

    // The use of the pools of the module, which all devices share.
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

/// Returns a value of a port, by the index of its name.
pub(crate) fn of_port(set: &Counters, index: usize) -> u64 {
    match index.checked_sub(COUNT).and_then(|pool| POOLS.get(pool)) {
        Some(pool) => pool.used().into(),
        None => set.get(index),
    }
}

impl Counter {
    /// Returns the index of the name in [`NAMES`].
    #[inline]
    fn index(self) -> usize {
        // CAST: The variants are numbered from zero.
        self as usize
    }

    /// Returns the name.
    #[cold]
    pub(crate) fn name(self) -> &'static CStr {
        NAMES.get(self.index()).map_or(c"", CounterDesc::name)
    }
}

/// A set of counters: of a device, or of queue pairs that are bound to one of their own. Any
/// context.
pub(crate) struct Counters {
    values: PerCpuCounters<COUNT>,
    /// The sum over all queue pairs of the device that are bound to any counter.
    sum: Option<Arc<Counters>>,
}

impl Counters {
    /// Makes a set, all zero. May sleep.
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

    /// Counts packets that the network stack took at once, and their bytes.
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

    /// Returns a value, by the index of its name; 0 for a pool.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values.sum(index)
    }

    /// Returns the counters of the port as IBTA has them, of both sets together.
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

/// Returns what to count for a request that was dropped.
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

/// Returns what to count for a request that only gets a reply.
pub(crate) fn of_reply(syndrome: Syndrome) -> Counter {
    match syndrome {
        Syndrome::Ack { .. } => Counter::Duplicate,
        Syndrome::Rnr { .. } => Counter::RnrSent,
        Syndrome::Nak(_) | Syndrome::Reserved => Counter::OutOfSequence,
    }
}

/// Returns what to count for a response.
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
