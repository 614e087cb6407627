// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a queue pair, which its work item raises.

use rdma::ib::qp::QpEvent;

/// An event that the work item raises.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    AccessError,
    RequestError,
    CommEst,
    SqDrained,
    Fatal,
    LastWqeReached,
}

impl Event {
    /// Every event, with its type in the core.
    pub(super) const ALL: [(Event, QpEvent); 6] = [
        (Event::AccessError, QpEvent::AccessError),
        (Event::RequestError, QpEvent::RequestError),
        (Event::CommEst, QpEvent::CommEst),
        (Event::SqDrained, QpEvent::SqDrained),
        (Event::Fatal, QpEvent::Fatal),
        (Event::LastWqeReached, QpEvent::LastWqeReached),
    ];

    /// Returns the bit of the event.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}
