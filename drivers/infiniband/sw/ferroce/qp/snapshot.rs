// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a queue pair, to find the cause of a hang.
//!
//! Documentation/infiniband/ferroce/observe.rst describes them. Any user may see a snapshot, so it
//! contains no keys, and no `wr_id`, which is an address for kernel consumers. Only the
//! administrator sees PSNs and addresses, which help to forge packets.

use super::{
    rq::RqFill,
    send::SendHalf, //
};
use crate::{
    ah,
    clock,
    device::IbQp, //
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
    time::ack_timeout_ns, //
};

/// Fills in the driver's part of the entry of a queue pair.
///
/// The core's part contains the state, and the PSN after the last one sent. The halves are read one
/// after the other, and formatted without their locks: any user may do this in a loop. Process
/// context, no lock held.
pub(crate) fn fill_res(qp: &IbQp, out: &mut ResourceEntry<'_>) {
    let is_admin = qp.device().is_admin();
    out.number(c"number", qp.qpn);
    fill_attributes(qp, is_admin, out);
    fill_send(qp, is_admin, out);
    fill_recv(qp, is_admin, out);
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

fn fill_send(qp: &IbQp, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let is_rc = is_rc(qp);
    let send = qp.send.lock();
    let requester = send.req.snapshot();
    let ring = send.sq.fill();
    let waits_for = waits_for(&send, &requester, is_rc);
    let (backlog, queued) = (send.backlog.len(), send.tx.in_flight());
    drop(send);

    out.string(c"sq_state", requester.state.name())
        .string(c"sq_waits_for", waits_for);
    if let Some(at) = requester.rnr_until.or(requester.ack_due) {
        // 0 if it is overdue.
        let due = at.as_ns().saturating_sub(clock::monotonic().as_ns());
        out.large(c"sq_due_us", due / 1000);
    }
    out.number(c"sq_posted", ring.posted)
        .number(c"sq_size", ring.capacity)
        .number(c"sq_producer", ring.producer)
        .number(c"sq_consumer", ring.consumer)
        .number(c"sq_taken", small(requester.taken))
        .number(c"sq_not_begun", small(requester.waiting));
    if let Some(oldest) = &requester.oldest {
        out.string(c"sq_oldest", oldest.op.name())
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
        if is_admin {
            out.number(c"sq_una", requester.una.get());
        }
        out.number(c"sq_window", requester.window)
            .number(c"sq_reads", requester.reads.into())
            .number(c"sq_retries_left", requester.retries_left.into())
            .number(c"sq_rnr_left", requester.rnr_left.into())
            .number(c"sq_backlog", small(backlog));
    }
    out.number(c"sq_queued", queued);
}

/// Returns the reason why the send half waits, as in observe.rst.
fn waits_for(send: &SendHalf, requester: &SendSnapshot, is_rc: bool) -> &'static CStr {
    let active = matches!(requester.state, SendState::Running | SendState::Draining);
    if send.request_wait.is_pending() || send.parked.is_some() {
        c"memory"
    } else if send.retry.at().is_some() {
        c"packet"
    } else if send.tx.is_blocked() {
        c"device"
    } else if requester.rnr_until.is_some() {
        c"rnr"
    } else if is_rc && active && requester.una.is_before(requester.max) {
        c"ack"
    } else {
        c"nothing"
    }
}

fn fill_recv(qp: &IbQp, is_admin: bool, out: &mut ResourceEntry<'_>) {
    let recv = qp.recv.lock();
    let responder = recv.resp.snapshot();
    let requests = recv.rq.fill();
    let needs_memory = recv.wait.is_pending();
    let queued = recv.tx.in_flight();
    let (backlog, early) = (recv.backlog.len(), recv.early.len());
    drop(recv);

    out.string(c"rq_state", responder.stage.name());
    match requests {
        RqFill::Own(ring) => out
            .number(c"rq_posted", ring.posted)
            .number(c"rq_size", ring.capacity)
            .number(c"rq_producer", ring.producer)
            .number(c"rq_consumer", ring.consumer),
        RqFill::Shared(srq) => out.number(c"rq_srq", srq),
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
        .number(c"rq_needs_memory", needs_memory.into())
        .number(c"rq_queued", queued)
        .number(c"rq_backlog", small(backlog))
        .number(c"rq_early", small(early));
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
