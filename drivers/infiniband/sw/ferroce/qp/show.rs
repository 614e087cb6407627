// SPDX-License-Identifier: GPL-2.0

//! All queue pairs, in debugfs: what [`snapshot`](super::snapshot) has, in sentences.

use super::{
    find,
    modify::Attributes,
    rq::Source,
    snapshot::{
        QpSnapshot,
        RecvHalfSnapshot,
        SendHalfSnapshot, //
    }, //
};
use crate::{
    ah,
    device::IbQp,
    queue::Fill, //
};
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print, //
};
use rdma::debugfs::Records;
use roce::time::ack_timeout_ns;

/// The queue pairs of all devices, by number.
pub(crate) struct QueuePairs;

#[vtable]
impl Records for QueuePairs {
    fn after(number: u32) -> Option<u32> {
        super::after(number)
    }

    fn show(number: u32, out: &SeqFile) {
        let Some(qp) = find(number) else {
            return;
        };
        seq_print!(
            out,
            "qp {} device {} type {} state {}\n",
            number,
            qp.device().name(),
            qp.ty.name(),
            qp.state().name()
        );
        show_attributes(&qp, &qp.attributes.lock(), out);
        let snapshot = QpSnapshot::of(&qp);
        show_send(&snapshot.send, out);
        show_recv(&snapshot.recv, out);
        seq_print!(out, "\n");
    }
}

fn show_attributes(qp: &IbQp, attributes: &Attributes, out: &SeqFile) {
    let attrs = attributes.attrs();
    if let Some(path) = attributes.path() {
        seq_print!(
            out,
            "  peer: qp {} at {}, from {}, mtu {}\n",
            attrs.dest_qpn.get(),
            Gid(path.dgid),
            Gid(path.sgid),
            attrs.path_mtu.bytes()
        );
    }
    if qp.ty == roce::qp::QpType::Rc {
        seq_print!(
            out,
            "  timeout {} us, retries {}, when not ready {}; READs {}, of the peer {}\n",
            ack_timeout_ns(attrs.timeout).unwrap_or(0) / 1000,
            attrs.retry_cnt,
            attrs.rnr_retry,
            attrs.max_rd_atomic,
            attrs.max_dest_rd_atomic
        );
    }
}

fn show_send(send: &SendHalfSnapshot, out: &SeqFile) {
    let requester = &send.requester;
    seq_print!(
        out,
        "  send: {}, waits for {}",
        requester.state.name(),
        send.waits.name()
    );
    if let Some(due) = send.due {
        seq_print!(out, ", due in {} us", due);
    }
    seq_print!(
        out,
        "\n    requests: {}, {} taken, {} of these not begun\n",
        Posted(&send.ring),
        requester.taken,
        requester.waiting
    );
    if let Some(oldest) = &requester.oldest {
        seq_print!(
            out,
            "    oldest: {} of {} bytes, ",
            oldest.op.name(),
            oldest.length
        );
        match oldest.psns {
            Some((first, last)) => seq_print!(out, "PSN {} to {}\n", first.get(), last.get()),
            None => seq_print!(out, "not begun\n"),
        }
    }
    seq_print!(
        out,
        "    PSN: oldest unacknowledged {}, next {}, first never sent {}; window {}\n",
        requester.una.get(),
        requester.next.get(),
        requester.max.get(),
        requester.window
    );
    seq_print!(
        out,
        "    READs under way {}; retries left {}, when not ready {}\n",
        requester.reads,
        requester.retries_left,
        requester.rnr_left
    );
    seq_print!(
        out,
        "    packets below {}, responses waiting {}\n",
        send.queued,
        send.backlog
    );
}

fn show_recv(recv: &RecvHalfSnapshot, out: &SeqFile) {
    let responder = &recv.responder;
    seq_print!(
        out,
        "  receive: {}{}{}\n",
        responder.stage.name(),
        if recv.memory {
            ", waits for memory"
        } else {
            ""
        },
        if responder.nak_sent {
            ", has sent a NAK"
        } else {
            ""
        }
    );
    match &recv.source {
        Source::Own(ring) => seq_print!(out, "    requests: {}", Posted(ring)),
        Source::Shared(number) => seq_print!(out, "    requests: of srq {}", *number),
    }
    match responder.held {
        Some(bytes) => seq_print!(out, ", one of {} bytes in use\n", bytes),
        None => seq_print!(out, "\n"),
    }
    seq_print!(
        out,
        "    PSN: expected {}, last executed {}; messages {}\n",
        responder.epsn.get(),
        responder.acked.get(),
        responder.msn
    );
    seq_print!(
        out,
        "    packets below {}, packets waiting {}\n",
        recv.queued,
        recv.backlog
    );
}

/// How a ring is filled.
struct Posted<'a>(&'a Fill);

impl fmt::Display for Posted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.0;
        f.write_fmt(fmt!(
            "{} posted of {} (producer {}, consumer {})",
            ring.posted,
            ring.capacity,
            ring.producer,
            ring.consumer
        ))
    }
}

/// A GID as an IP address.
struct Gid([u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some([a, b, c, d]) = ah::v4(&self.0) {
            return f.write_fmt(fmt!("{}.{}.{}.{}", a, b, c, d));
        }
        for (i, word) in self.0.chunks_exact(2).enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            let word = word
                .first_chunk()
                .map_or(0, |word| u16::from_be_bytes(*word));
            f.write_fmt(fmt!("{}{:x}", colon, word))?;
        }
        Ok(())
    }
}
