// SPDX-License-Identifier: GPL-2.0

//! Counters of what goes wrong on the wire: `rdma statistic show link`.
//!
//! Packets that do what they should are not counted: that would be an atomic on a line shared by
//! all queue pairs, for each of them.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use rdma::ib::stats::CounterDesc;
use roce::{
    requester::ResponseKind,
    responder::DropReason, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Something to count.
        #[derive(Clone, Copy)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// The names, in the order of [`Counter`].
        pub(crate) static NAMES: &[CounterDesc] = &[$(CounterDesc::new($name),)*];

        const COUNT: usize = [$($name,)*].len();

        impl Counters {
            pub(crate) const fn new() -> Self {
                Self([$({
                    let _ = Counter::$variant;
                    Atomic::new(0)
                },)*])
            }
        }
    };
}

counters! {
    /// A packet that cannot be parsed, or whose opcode is not known.
    Malformed = c"rx_malformed",
    /// A packet with a wrong ICRC.
    BadIcrc = c"rx_bad_icrc",
    /// A packet with a wrong P_Key.
    BadPkey = c"rx_bad_pkey",
    /// A packet for no queue pair, or from or to an address that is not that of its connection.
    NoQp = c"rx_no_qp",
    /// A datagram with a wrong Q_Key.
    BadQkey = c"rx_bad_qkey",
    /// A packet that its queue pair dropped for its opcode, its length or its state.
    Refused = c"rx_refused",
    /// A packet that came while a queue pair had too many waiting.
    Backlog = c"rx_backlog_full",
    /// A datagram or UC message without a receive request.
    NoWqe = c"rx_no_wqe",
    /// A request that had been executed before.
    Duplicate = c"duplicate_request",
    /// A request after a gap.
    OutOfSequence = c"out_of_seq_request",
    /// An RNR NAK that was sent.
    RnrSent = c"send_rnr_err",
    /// An RNR NAK that came.
    RnrReceived = c"rcvd_rnr_err",
    /// A NAK for a sequence error that came.
    SequenceNak = c"rcvd_seq_err",
    /// A timeout of a response.
    Timeout = c"ack_timeout",
}

impl Counter {
    /// Returns the name.
    #[cold]
    pub(crate) fn name(self) -> &'static CStr {
        // CAST: The variants are numbered from zero.
        NAMES.get(self as usize).map_or(c"", CounterDesc::name)
    }
}

/// The counters of a device.
pub(crate) struct Counters([Atomic<u64>; COUNT]);

impl Counters {
    /// Counts one more. Any context.
    #[cold]
    pub(crate) fn count(&self, counter: Counter) {
        // CAST: The variants are numbered from zero.
        if let Some(value) = self.0.get(counter as usize) {
            value.add(1, Relaxed);
        }
    }

    /// Returns a value.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, |value| value.load(Relaxed))
    }
}

/// Returns what to count for a request that was dropped.
pub(crate) fn of_drop(reason: DropReason) -> Counter {
    match reason {
        DropReason::PsnGap => Counter::OutOfSequence,
        DropReason::Duplicate => Counter::Duplicate,
        DropReason::NoRecvWqe => Counter::NoWqe,
        DropReason::BadQkey => Counter::BadQkey,
        DropReason::BadOpcode
        | DropReason::BadLength
        | DropReason::NotAllowed
        | DropReason::Failed
        | DropReason::Busy => Counter::Refused,
    }
}

/// Returns what to count for a response.
pub(crate) fn of_response(kind: ResponseKind) -> Option<Counter> {
    match kind {
        ResponseKind::NakSequence | ResponseKind::Gap => Some(Counter::SequenceNak),
        ResponseKind::Rnr => Some(Counter::RnrReceived),
        ResponseKind::BadResponse | ResponseKind::Dropped => Some(Counter::Refused),
        ResponseKind::Ack
        | ResponseKind::ReadResponse
        | ResponseKind::NakFatal
        | ResponseKind::Duplicate => None,
    }
}
