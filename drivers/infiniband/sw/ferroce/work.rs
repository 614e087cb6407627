// SPDX-License-Identifier: GPL-2.0

//! The work queues of the module.

use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};
use rdma::{
    sync::Global,
    workqueue::{
        Work,
        WorkItem,
        Workqueue, //
    }, //
};

/// Queues the work item of the queue pair with a number.
#[derive(Clone, Copy)]
pub(crate) struct WakeQp(pub(crate) u32);

/// The queue for the queue pairs, CQs and SRQs of processes.
///
/// Its items never sleep, so it runs about one for each CPU: more would only compete with other
/// threads.
static WORK: Global<Workqueue> = Global::new();
/// The queue for the objects of kernel consumers. Memory reclaim may depend on these, so they must
/// not wait for items of processes.
static KERNEL_WORK: Global<Workqueue> = Global::new();
/// The queue for work items that allocate memory, and so may wait for memory reclaim.
static SETUP: Global<Workqueue> = Global::new();
/// The queue for fetches of memory on demand.
static FETCHES: Global<Workqueue> = Global::new();

/// The most items of processes that run at once: less than the kernel allows.
const MAX_ACTIVE: u32 = 1024;

/// Constructs the queues. Called once, before anything else of the driver runs.
pub(crate) fn init() -> Result {
    WORK.init(Workqueue::new(c"ferroce", nr_cpu_ids().min(MAX_ACTIVE)))?;
    KERNEL_WORK.init(Workqueue::new(c"ferroce_kernel", 0))?;
    SETUP.init(Workqueue::new_waiting(c"ferroce_setup"))?;
    FETCHES.init(Workqueue::new_waiting(c"ferroce_odp"))
}

/// Destroys the queues, and waits for their work items.
pub(crate) fn shut_down() {
    // In this order: a fetch queues the items of queue pairs.
    for queue in [&FETCHES, &SETUP, &WORK, &KERNEL_WORK] {
        if let Some(queue) = queue.get() {
            queue.shut_down();
        }
    }
}

/// Queues a work item that does not wait for memory. `is_user` is true for objects of a process.
pub(crate) fn queue(work: &Work<impl WorkItem>, is_user: bool) {
    let queue = if is_user { &WORK } else { &KERNEL_WORK };
    if let Some(queue) = queue.get() {
        queue.queue(work);
    }
}

/// Queues a work item that allocates memory, and waits for no process.
pub(crate) fn queue_setup(work: &Work<impl WorkItem>) {
    if let Some(queue) = SETUP.get() {
        queue.queue(work);
    }
}

/// Calls `f` from a work item, where it may wait for memory of a process.
///
/// # Errors
///
/// `ENOMEM`, `ESHUTDOWN`.
pub(crate) fn spawn(f: impl FnOnce() + Send + 'static) -> Result {
    FETCHES.get().ok_or(ESHUTDOWN)?.spawn(f)
}
