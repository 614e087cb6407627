// SPDX-License-Identifier: GPL-2.0

//! A work queue of the module's own, and its work items.
//!
//! Like a [`FineTimer`](crate::fine_timer::FineTimer), a work item does not own the object that
//! contains it: a pending item keeps nothing alive.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::bindings;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::{
    alloc::flags::__GFP_NOWARN,
    container_of,
    prelude::*,
    sync::rcu,
    types::Opaque, //
};

/// A work queue.
///
/// # Invariants
///
/// The pointer is null, or to a work queue that this value owns and that is destroyed an RCU grace
/// period after the pointer has become null.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::workqueue::Workqueue;
///
/// let queue = Workqueue::new(c"my_driver", 0)?;
/// queue.spawn(|| {
///     // This runs in process context.
/// })?;
/// queue.shut_down();
/// assert_eq!(queue.spawn(|| {}).err(), Some(ESHUTDOWN));
/// # Ok::<(), Error>(())
/// ```
pub struct Workqueue(AtomicPtr<bindings::workqueue_struct>);

impl Workqueue {
    /// Allocates a work queue. May sleep.
    ///
    /// It runs about `max_active` items at once, or the default of the kernel if that is 0. Each
    /// NUMA node gets a part of that, but at least 8 if `max_active` is not less.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(name: &'static CStr, max_active: u32) -> Result<Self> {
        Self::with_flags(
            name,
            bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
            max_active,
        )
    }

    /// Allocates a work queue whose items may wait for memory, so memory reclaim must not wait for
    /// it. May sleep.
    ///
    /// An item runs on the CPU that has queued it, with at most 1023 others. For an unbound queue,
    /// such a limit would hold for each NUMA node, and be lower the fewer CPUs the node has.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new_waiting(name: &'static CStr) -> Result<Self> {
        Self::with_flags(
            name,
            bindings::wq_flags_WQ_PERCPU | bindings::wq_flags_WQ_CPU_INTENSIVE,
            0,
        )
    }

    fn with_flags(name: &'static CStr, flags: u32, max_active: u32) -> Result<Self> {
        let max_active = i32::try_from(max_active).unwrap_or(i32::MAX);
        // SAFETY: `name` is a C string, and it is copied.
        let wq = unsafe { bindings::alloc_workqueue(name.as_char_ptr(), flags, max_active) };
        if wq.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: The queue was just allocated.
        Ok(Self(AtomicPtr::new(wq)))
    }

    /// Queues an item; returns `false` if it was queued already, or the queue is shut down.
    /// Callable in any context.
    pub fn queue(&self, work: &Work<impl WorkItem>) -> bool {
        let _rcu = rcu::read_lock();
        let wq = self.0.load(Ordering::Acquire);
        if wq.is_null() {
            return false;
        }
        // SAFETY: By the type invariant the queue exists until the end of the RCU section. `Work`
        // cancels itself before its memory is freed.
        unsafe { bindings::queue_work(wq, work.raw.get()) }
    }

    /// Calls `f` once, later and in process context. Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `ESHUTDOWN` if the queue is shut down. `f` is dropped in an RCU read-side
    /// critical section then, so it must not own memory of vmalloc().
    pub fn spawn(&self, f: impl FnOnce() + Send + 'static) -> Result {
        let _rcu = rcu::read_lock();
        let wq = self.0.load(Ordering::Acquire);
        if wq.is_null() {
            return Err(ESHUTDOWN);
        }
        // SAFETY: By the type invariant the queue exists until the end of the RCU section.
        let queue = unsafe { kernel::workqueue::Queue::from_raw(wq) };
        // A peer may trigger this allocation, so a failure must not fill the log.
        queue.try_spawn(GFP_ATOMIC | __GFP_NOWARN, f)?;
        Ok(())
    }

    /// Runs every queued item, and accepts no more. May sleep.
    pub fn shut_down(&self) {
        let wq = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if wq.is_null() {
            return;
        }
        rcu::synchronize_rcu();
        // SAFETY: This value owns the queue, and no other thread has the pointer any more.
        unsafe { bindings::destroy_workqueue(wq) };
    }
}

impl Drop for Workqueue {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The callback of a [`Work`].
///
/// # Examples
///
/// ```
/// use rdma::workqueue::WorkItem;
///
/// struct Flush {
///     qpn: u32,
/// }
///
/// impl WorkItem for Flush {
///     fn run(&self) {
///         // Look up queue pair `self.qpn`, and complete its requests.
///     }
/// }
/// ```
pub trait WorkItem: Send + Sync + 'static {
    /// Does the work. Process context.
    fn run(&self);
}

/// A `struct work_struct` and its callback.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::workqueue::{Work, WorkItem, Workqueue};
/// fn queue_new<W: WorkItem>(queue: &Workqueue, item: W) -> Result<Pin<KBox<Work<W>>>> {
///     let work = KBox::pin_init(Work::new(item), GFP_KERNEL)?;
///     queue.queue(&work);
///     Ok(work)
/// }
/// ```
#[pin_data(PinnedDrop)]
pub struct Work<W: WorkItem> {
    #[pin]
    raw: Opaque<bindings::work_struct>,
    item: W,
}

// SAFETY: The work queue core serialises all accesses to `raw`; the callback is `Send`.
unsafe impl<W: WorkItem> Send for Work<W> {}
// SAFETY: The work queue core serialises all accesses to `raw`; the callback is `Sync`.
unsafe impl<W: WorkItem> Sync for Work<W> {}

impl<W: WorkItem> Work<W> {
    /// Creates an item that is not queued.
    ///
    /// Dropping it cancels it and waits for a running callback, so a callback must not own it.
    pub fn new(item: W) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `raw` is valid for write and pinned.
            raw <- unsafe {
                Opaque::ffi_init(|raw| bindings::INIT_WORK(raw, Some(Self::run)))
            },
            item,
        })
    }

    /// Cancels the item, and waits for a running callback. May sleep.
    ///
    /// The item may be queued again afterwards. The caller must not be the callback, nor hold a
    /// lock that the callback takes.
    pub fn cancel(&self) {
        // SAFETY: `raw` was initialised.
        unsafe { bindings::cancel_work_sync(self.raw.get()) };
    }

    /// The C callback.
    ///
    /// # Safety
    ///
    /// Only for the work queue core, with the `raw` of a [`Work`].
    unsafe extern "C" fn run(raw: *mut bindings::work_struct) {
        let this = container_of!(Opaque::cast_from(raw), Self, raw);
        // SAFETY: `raw` is embedded in a `Work`, which `Drop` keeps alive until this returns.
        unsafe { &*this }.item.run();
    }
}

#[pinned_drop]
impl<W: WorkItem> PinnedDrop for Work<W> {
    fn drop(self: Pin<&mut Self>) {
        // After this call the callback neither runs nor will run: no reference is left to queue it
        // with.
        self.cancel();
    }
}
