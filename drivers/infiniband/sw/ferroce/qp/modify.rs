// SPDX-License-Identifier: GPL-2.0

//! Modify and query.
//!
//! `roce::qp::modify` decides whether a modification is valid; this module applies it to both
//! halves.

use super::{
    path::TxPath,
    recv::{
        self,
        records,
        RecvHalf, //
    },
    send::{
        self,
        SendHalf, //
    },
    Qp, //
};
use crate::{
    ah,
    cq,
    device::{
        IbQp,
        MAX_RD_ATOMIC, //
    },
    errno::errno,
    gids::Link,
    module_parameters,
    port::active_mtu, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        enums::QpAttrMask,
        gid::{
            udp_sport,
            GidAttr,
            GidTable,
            Path, //
        },
        qp::{
            QpAttr,
            QpCap, //
        }, //
    },
    sync::{
        Owned,
        SpinLockBhGuard, //
    }, //
};
use roce::{
    ids::Qpn,
    opcode::Transport,
    qp::{
        modify,
        AttrMask,
        Attrs,
        Limits,
        State, //
    },
    requester::SendParams,
    responder::RecvParams,
    time::ack_timeout_ns, //
};

/// Changes attributes, all or none.
pub(crate) fn modify(
    qp: &Owned<IbQp>,
    attr: &QpAttr<'_>,
    mask: AttrMask,
    path: Option<(Path, GidAttr)>,
) -> Result {
    let mut attributes = qp.attributes.lock();
    if qp.state() == State::Rts {
        // Process the requests that were posted before, and perhaps left to the work item.
        send::catch_up(qp, u32::MAX);
    }
    let mtu = active_mtu(qp.device());
    let paths = match path {
        Some((path, gid)) if mask.contains(AttrMask::AV) => {
            let peer = if mask.contains(AttrMask::DEST_QPN) {
                attr.get(QpAttrMask::DEST_QPN)
            } else {
                attributes.dest_qpn.get()
            };
            Some(paths(qp, path, &gid, peer)?)
        }
        None if mask.contains(AttrMask::AV) => return Err(EINVAL),
        _ => None,
    };
    // Allocate before the halves are locked, even if the modification turns out to be invalid.
    let records = if mask.contains(AttrMask::MAX_DEST_RD_ATOMIC) {
        let outstanding = attr.get(QpAttrMask::MAX_DEST_RD_ATOMIC);
        let have = qp.recv.lock().resp.records();
        // CAST: More than fit are invalid.
        records::beyond(have, outstanding.min(u32::from(MAX_RD_ATOMIC)) as u8)?
    } else {
        None
    };

    let (notify, next);
    {
        // The data path changes the state under one of these locks.
        let (mut send, mut recv) = lock_halves(qp);
        let from = qp.state();
        let limits = Limits {
            mtu,
            max_rd_atomic: MAX_RD_ATOMIC,
            max_dest_rd_atomic: MAX_RD_ATOMIC,
            draining: from == State::Sqd && !send.req.is_drained(),
        };
        let value = |attribute: AttrMask| attr.get(QpAttrMask::from_raw(attribute.bits()));
        let (to, attrs) = modify::modify(qp.ty, from, &attributes, mask, value, &limits)
            .map_err(|e| errno(e.errno_kind()))?;

        // Nothing fails from here on.
        if to == State::Reset {
            // Before the half forgets the peer.
            recv.send_last_reply_now(qp);
        }
        if let Some([sends, receives]) = paths {
            send.tx.set_path(sends);
            recv.tx.set_path(receives);
        }
        if let Some(records) = records {
            recv.save_in(records);
        }
        // Datagrams use the current MTU of the port.
        let mtu = if qp.ty.is_connected() {
            attrs.path_mtu.bytes()
        } else {
            mtu.bytes()
        };
        set_params(qp, &mut send, &mut recv, &attrs, mtu);
        notify = enter(qp, &mut send, &mut recv, (from, to), &attrs, mask);
        *attributes = attrs;
        next = to;
    }
    if next == State::Reset {
        // `attributes` is locked, so the queue pair stays in RESET meanwhile.
        qp.remove_completions();
    }
    // Flush, continue, or raise the SQ drained event.
    if notify {
        cq::notify(&qp.send_cq);
    }
    qp.allow_flush();
    send::run(qp);
    recv::run(qp);
    Ok(())
}

/// Both halves, locked.
type Halves<'a> = (
    SpinLockBhGuard<'a, KBox<SendHalf>>,
    SpinLockBhGuard<'a, KBox<RecvHalf>>,
);

/// Takes the locks of both halves.
///
/// In SQE, the requests that were posted before the modify are completed first, a few under each
/// hold of the lock. The flush budget is as large as the ring, so it suffices for all of them.
/// Doing this once is enough: only a modify ends SQE, and requests posted during this one may be
/// flushed or not. [`SendHalf::retire`] completes those that were fetched meanwhile.
// Not inlined, to keep the stack frame of modify small.
#[inline(never)]
fn lock_halves(qp: &Owned<IbQp>) -> Halves<'_> {
    let mut flushed = false;
    loop {
        let send = qp.send.lock();
        let recv = qp.recv.lock();
        if flushed || qp.state() != State::Sqe {
            return (send, recv);
        }
        drop((recv, send));
        qp.allow_flush();
        send::catch_up(qp, u32::MAX);
        flushed = true;
    }
}

/// Returns the path to the peer for each half.
// Not inlined, to keep the stack frame of its caller small.
#[inline(never)]
fn paths(qp: &IbQp, path: Path, gid: &GidAttr, peer: u32) -> Result<[TxPath; 2]> {
    ah::check(&path)?;
    let sport = udp_sport(path.flow_label, qp.qpn, peer);
    let has_ecn = has_ecn(qp);
    let link = Link::of_gid(gid)?;
    let gids = GidTable::of(qp.device())?;
    let new = |gids| TxPath::new(qp.device(), path, link, gids, sport, has_ecn);
    Ok([new(gids.clone()), new(gids)])
}

/// Returns whether a queue pair takes part in congestion notification.
fn has_ecn(qp: &Qp) -> bool {
    qp.ty.transport() == Transport::Rc && *module_parameters::ecn.value_ref()
}

/// Hands the attributes to both halves.
fn set_params(qp: &Qp, send: &mut SendHalf, recv: &mut RecvHalf, attrs: &Attrs, mtu: u32) {
    send.req.set_params(&SendParams {
        mtu,
        dest_qpn: attrs.dest_qpn,
        src_qpn: Qpn::new(if qp.ty == roce::qp::QpType::Gsi {
            Qpn::GSI.get()
        } else {
            qp.qpn
        }),
        ack_timeout: ack_timeout_ns(attrs.timeout),
        retry_cnt: attrs.retry_cnt,
        rnr_retry: attrs.rnr_retry,
        max_rd_atomic: attrs.max_rd_atomic,
        has_ecn: has_ecn(qp),
    });
    send.sq.set_qkey(attrs.qkey);
    recv.resp.set_params(&RecvParams {
        mtu,
        dest_qpn: attrs.dest_qpn,
        min_rnr_timer: attrs.min_rnr_timer,
        qkey: attrs.qkey,
        access: attrs.access,
        max_dest_rd_atomic: attrs.max_dest_rd_atomic,
    });
}

/// Moves both halves from one state to another. Returns whether to notify the consumer of the send
/// queue's completions.
fn enter(
    qp: &IbQp,
    send: &mut SendHalf,
    recv: &mut RecvHalf,
    (from, to): (State, State),
    attrs: &Attrs,
    mask: AttrMask,
) -> bool {
    let mut notify = false;
    if !mask.contains(AttrMask::STATE) {
        return notify;
    }
    match to {
        State::Reset => {
            send.reset();
            recv.reset();
        }
        State::Rtr => {
            if mask.contains(AttrMask::RQ_PSN) {
                recv.resp.set_epsn(attrs.rq_psn);
            }
            recv.resp.set_rtr(true);
        }
        State::Rts => {
            if from == State::Rtr {
                recv.resp.set_rtr(false);
                send.req.set_psn(attrs.sq_psn);
            } else {
                if from == State::Sqe {
                    // Requests that were fetched and not flushed yet must not be sent.
                    notify = send.retire(qp);
                    if qp.state() == State::Err {
                        // The CQ had no room for the completions.
                        return notify;
                    }
                }
                send.req.resume();
            }
        }
        State::Sqd => {
            send.req.drain();
            if from != State::Sqd {
                send.sq.notify_drained = attrs.sqd_notify;
            }
        }
        // Modify runs the halves next, which flush in ERR and SQE.
        State::Init | State::Sqe | State::Err => {}
    }
    qp.set_state(to);
    notify
}

/// Returns the attributes, and the current PSNs.
///
/// `mask` selects attributes. All are filled in, because programs rely on more than they select,
/// with one exception: the netlink interface of the core selects none, and shows PSNs, the peer's
/// queue pair number and the Q_Key to any user. There, these are 0 for a reader without
/// `CAP_NET_ADMIN`.
pub(crate) fn query(
    qp: &Owned<IbQp>,
    mask: AttrMask,
    out: &mut QpAttr<'_>,
    cap: &mut QpCap,
    signal_all: &mut bool,
) -> Option<Path> {
    let attrs = qp.attributes.lock();
    let (sq_psn, is_drained, path) = {
        let send = qp.send.lock();
        (send.req.next_psn(), send.req.is_drained(), send.peer(qp))
    };
    let rq_psn = qp.recv.lock().resp.epsn();
    // After the halves, which complete a request with an error and change the state under one hold
    // of their locks: a consumer that has seen the completion must see the state.
    let state = qp.state();
    // The halves know their PSNs only after the transition that starts them.
    let connected = qp.ty.transport() != Transport::Ud;
    let mut set = |attribute: AttrMask, value| {
        out.set(QpAttrMask::from_raw(attribute.bits()), value);
    };
    attrs.for_each(&mut set);
    set(AttrMask::STATE, state.as_ib());
    set(AttrMask::CUR_STATE, state.as_ib());
    if state.is_receiving() && connected {
        set(AttrMask::RQ_PSN, rq_psn.get());
    }
    if state.takes_sends() {
        set(AttrMask::SQ_PSN, sq_psn.get());
    }
    if mask == AttrMask::NONE && !qp.device().is_admin() {
        for attribute in [
            AttrMask::RQ_PSN,
            AttrMask::SQ_PSN,
            AttrMask::DEST_QPN,
            AttrMask::QKEY,
        ] {
            set(attribute, 0);
        }
    }
    out.set_sq_draining(state == State::Sqd && !is_drained);
    *cap = qp.cap;
    *signal_all = qp.signal_all;
    path
}
