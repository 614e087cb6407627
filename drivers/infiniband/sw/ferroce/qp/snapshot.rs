// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a queue pair, to find the cause of a hang.
//!
//! Documentation/infiniband/ferroce/observe.rst describes them. Any user may see a snapshot, so it
//! contains no keys, and no `wr_id`, which is an address for kernel consumers. Only the
//! administrator sees PSNs and addresses, which help to forge packets.

use super::{
    recv::RecvHalf,
    rq::Source,
    send::SendHalf, //
};
use crate::{
    ah,
    clock,
    device::IbQp,
    queue::Fill, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    fmt,
    prelude::*, //
};
use rdma::ib::resource::ResourceEntry;
use roce::{
    qp::QpType,
    requester::{
        SendSnapshot,
        SendState, //
    },
    responder::RecvSnapshot,
    time::{
        ack_timeout_ns,
        Instant, //
    }, //
};

/// A snapshot of the send half.
struct SendHalfSnapshot {
    requester: SendSnapshot,
    /// Requests that were posted and have not completed, including those fetched from the ring.
    ring: Fill,
    /// The reason to wait, as in observe.rst.
    waits: &'static str,
    /// The time in microseconds until the timer ends the wait, 0 if it is overdue.
    due: Option<u64>,
    /// Packets in qdiscs and devices below.
    queued: u32,
    /// Responses that wait behind one that needs memory, or is missing.
    backlog: usize,
}

/// A snapshot of the receive half.
struct RecvHalfSnapshot {
    responder: RecvSnapshot,
    source: Source,
    /// True if it waits for memory on demand.
    memory: bool,
    /// Packets in qdiscs and devices below: responses of READs only.
    queued: u32,
    /// Packets in the backlog.
    backlog: usize,
    /// Packets that wait for earlier ones.
    early: usize,
}

impl SendHalfSnapshot {
    fn of(half: &SendHalf, is_rc: bool, now: Instant) -> Self {
        let requester = half.req.snapshot();
        let active = matches!(requester.state, SendState::Running | SendState::Draining);
        let timer = requester.rnr_until.or(requester.ack_due);
        let waits = if half.request_wait.is_pending() || half.parked.is_some() {
            "memory"
        } else if half.retry.at().is_some() {
            "packet"
        } else if half.tx.is_blocked() {
            "device"
        } else if requester.rnr_until.is_some() {
            "rnr"
        } else if is_rc && active && requester.una.is_before(requester.max) {
            "ack"
        } else {
            "nothing"
        };
        Self {
            requester,
            ring: half.sq.fill(),
            waits,
            due: timer.map(|at| at.as_ns().saturating_sub(now.as_ns()) / 1000),
            queued: half.tx.in_flight(),
            backlog: half.backlog.len(),
        }
    }
}

impl RecvHalfSnapshot {
    fn of(half: &RecvHalf) -> Self {
        Self {
            responder: half.resp.snapshot(),
            source: half.rq.source(),
            memory: half.wait.is_pending(),
            queued: half.tx.in_flight(),
            backlog: half.backlog.len(),
            early: half.early.len(),
        }
    }
}

/// Fills in the driver's part of the entry of a queue pair.
///
/// The core's part contains the state, and the PSN after the last one sent. The halves are read one
/// after the other. Process context, no lock held.
pub(crate) fn fill_res(qp: &IbQp, out: &mut ResourceEntry<'_>) {
    let is_admin = qp.device().is_admin();
    out.number(c"number", qp.qpn);
    fill_attributes(qp, is_admin, out);
    let send = SendHalfSnapshot::of(&qp.send.lock(), is_rc(qp), clock::monotonic());
    let recv = RecvHalfSnapshot::of(&qp.recv.lock());
    fill_send(&send, is_rc(qp), is_admin, out);
    fill_recv(&recv, is_admin, out);
}

fn fill_attributes(qp: &IbQp, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let attrs = qp.attributes.lock();
    let path = qp.send.lock().peer(qp);
    if let Some(path) = path {
        if is_admin {
            out.text(c"sgid", fmt!("{}", Gid(path.sgid)))
                .text(c"dgid", fmt!("{}", Gid(path.dgid)));
        }
        out.number(c"path_mtu", attrs.path_mtu.bytes());
    }
    if is_rc(qp) {
        out.large(
            c"timeout_us",
            ack_timeout_ns(attrs.timeout).map_or(0, |ns| ns.get() / 1000),
        )
        .number(c"retry_cnt", attrs.retry_cnt.into())
        .number(c"rnr_retry", attrs.rnr_retry.into())
        .number(c"max_rd_atomic", attrs.max_rd_atomic.into())
        .number(c"max_dest_rd_atomic", attrs.max_dest_rd_atomic.into());
    }
}

fn fill_send(send: &SendHalfSnapshot, is_rc: bool, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let requester = &send.requester;
    out.text(c"sq_state", fmt!("{}", requester.state.name()))
        .text(c"sq_waits_for", fmt!("{}", send.waits));
    if let Some(due) = send.due {
        out.large(c"sq_due_us", due);
    }
    out.number(c"sq_posted", send.ring.posted)
        .number(c"sq_size", send.ring.capacity)
        .number(c"sq_producer", send.ring.producer)
        .number(c"sq_consumer", send.ring.consumer)
        .number(c"sq_taken", small(requester.taken))
        .number(c"sq_not_begun", small(requester.waiting));
    if let Some(oldest) = &requester.oldest {
        out.text(c"sq_oldest", fmt!("{}", oldest.op.name()))
            .number(c"sq_oldest_len", oldest.length);
        if let Some((first, last)) = oldest.psns.filter(|_| is_admin) {
            out.number(c"sq_oldest_psn", first.get())
                .number(c"sq_oldest_last", last.get());
        }
    }
    if is_admin {
        out.number(c"sq_next", requester.next.get());
    }
    if is_rc {
        fill_responses(send, is_admin, out);
    }
    out.number(c"sq_queued", send.queued);
}

/// Fills in the state of an RC send half that depends on responses.
fn fill_responses(send: &SendHalfSnapshot, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let requester = &send.requester;
    if is_admin {
        out.number(c"sq_una", requester.una.get());
    }
    out.number(c"sq_window", requester.window)
        .number(c"sq_reads", requester.reads.into())
        .number(c"sq_retries_left", requester.retries_left.into())
        .number(c"sq_rnr_left", requester.rnr_left.into())
        .number(c"sq_backlog", small(send.backlog));
}

fn fill_recv(recv: &RecvHalfSnapshot, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let responder = &recv.responder;
    out.text(c"rq_state", fmt!("{}", responder.stage.name()));
    match &recv.source {
        Source::Own(ring) => out
            .number(c"rq_posted", ring.posted)
            .number(c"rq_size", ring.capacity)
            .number(c"rq_producer", ring.producer)
            .number(c"rq_consumer", ring.consumer),
        Source::Shared(number) => out.number(c"rq_srq", *number),
    };
    if let Some(bytes) = responder.held {
        out.number(c"rq_held_len", bytes);
    }
    if is_admin {
        out.number(c"rq_expects", responder.epsn.get())
            .number(c"rq_acked", responder.acked.get());
    }
    out.number(c"rq_msn", responder.msn)
        .number(c"rq_nak_sent", responder.nak_sent.into())
        .number(c"rq_needs_memory", recv.memory.into())
        .number(c"rq_queued", recv.queued)
        .number(c"rq_backlog", small(recv.backlog))
        .number(c"rq_early", small(recv.early));
}

fn is_rc(qp: &IbQp) -> bool {
    qp.ty == QpType::Rc
}

/// Converts a count that is far below 2^32.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A GID as an IP address.
struct Gid([u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ah::v4(&self.0) {
            Some(v4) => core::fmt::Display::fmt(&Ipv4Addr::from(v4), f),
            None => core::fmt::Display::fmt(&Ipv6Addr::from(self.0), f),
        }
    }
}
