// SPDX-License-Identifier: GPL-2.0

//! Posting: doorbells of processes, and requests of kernel consumers.

use super::{
    recv,
    rq,
    sched::{
        Next,
        BATCH_NS, //
    },
    send,
    sq, //
};
use crate::{
    clock,
    device::{
        Ferroce,
        IbQp, //
    },
    queue::Queue, //
};
use core::iter;
use kernel::{
    prelude::*,
    sync::{
        atomic::Full,
        barrier::smp_mb, //
    }, //
};
use rdma::{
    ib::wr::{
        RecvList,
        SendList, //
    },
    new_spinlock_irqsave,
    sync::{
        can_run,
        Owned,
        SpinLockIrqSave, //
    }, //
};
use roce::qp::State;

/// The producer's side of the rings of a kernel consumer. Processes have it in user space.
#[pin_data]
pub(super) struct KernelQueues {
    #[pin]
    sq: SpinLockIrqSave<Queue>,
    /// `None` if receive requests come from a shared queue.
    #[pin]
    rq: SpinLockIrqSave<Option<Queue>>,
}

impl KernelQueues {
    /// Creates the producer's side of two rings. May sleep.
    pub(super) fn new(send: &Queue, recv: Option<&Queue>) -> Result<Pin<KBox<Self>>> {
        let send = send.share();
        let recv = recv.map(Queue::share);
        KBox::pin_init(
            pin_init!(Self {
                sq <- new_spinlock_irqsave!(send, "ferroce::Qp::kernel_sq"),
                rq <- new_spinlock_irqsave!(recv, "ferroce::Qp::kernel_rq"),
            }),
            GFP_KERNEL,
        )
    }
}

/// Posts send requests of a kernel consumer, or rings the doorbell of a process.
pub(crate) fn post_send(qp: &Owned<IbQp>, list: &mut SendList<'_, Ferroce>) -> Result {
    if !qp.state().takes_sends() {
        if qp.kernel.is_some() {
            return Err(EINVAL);
        }
        let mut half = qp.send.lock();
        // Check again under the lock, because another thread may have changed the state. Then
        // requests in the ring may be in flight, and must not be discarded.
        if !qp.state().takes_sends() {
            // Discard the request, as if it had not been posted: the library cannot take it back.
            half.sq.discard();
            return Err(EINVAL);
        }
    }
    if let Some(kernel) = &qp.kernel {
        let result = {
            let queue = kernel.sq.lock();
            iter::from_fn(|| list.next_wr())
                .try_for_each(|wr| sq::push(&queue, qp.cap.max_send_sge, &wr))
        };
        // The requests before a refused one are posted.
        qp.allow_flush();
        if can_run() {
            serve(qp, false);
        } else {
            qp.defer_send();
        }
        return result;
    }
    if !list.is_empty() {
        // Processes post through the ring.
        return Err(EINVAL);
    }
    if matches!(qp.state(), State::Err | State::Sqe) {
        qp.allow_flush();
        recv::run(qp);
    }
    if qp.ty.is_connected() {
        serve(qp, qp.send_cq.ring_doorbell(&qp.recv_cq));
    } else {
        // Programs destroy the address handle of a datagram as soon as it is posted, so look it up
        // now. (A request that finds no slot, or is posted in SQD, is looked up later.)
        send::catch_up(qp, u32::MAX);
    }
    Ok(())
}

/// Sends the posted requests, or leaves them to another context.
fn serve(qp: &IbQp, keeps_posting: bool) {
    match qp.sched.on_post(keeps_posting) {
        Next::Run => {
            send::run(qp);
        }
        Next::Queue => qp.defer(),
        Next::Later => qp
            .batch_timer
            .arm(clock::monotonic().as_ns().saturating_add(BATCH_NS)),
        Next::Nothing => {}
    }
}

/// Posts receive requests of a kernel consumer.
pub(crate) fn post_recv(qp: &Owned<IbQp>, list: &mut RecvList<'_>) -> Result {
    let kernel = qp.kernel.as_ref().ok_or(EINVAL)?;
    if !qp.state().takes_receives() {
        return Err(EINVAL);
    }
    let result = {
        let queue = kernel.rq.lock();
        let queue = queue.as_ref().ok_or(EINVAL)?;
        iter::from_fn(|| list.next_wr())
            .try_for_each(|(wr_id, sges)| rq::push(queue, qp.cap.max_recv_sge, wr_id, sges))
    };
    // The requests before a refused one are posted. The barrier pairs with that of `set_state`, and
    // with the exchange in `leave`: either this sees ERR, or the flush that follows the change to
    // ERR sees the requests.
    smp_mb(Full);
    if qp.state() == State::Err {
        qp.allow_flush();
        qp.defer();
    }
    result
}
