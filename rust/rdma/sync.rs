// SPDX-License-Identifier: GPL-2.0

//! Locks, reference counts and lookup tables that `kernel::sync` does not have.

mod context;
pub mod copy_table;
pub mod global;
pub mod multi_table;
pub mod owned;
pub mod per_cpu;
pub mod semaphore;
pub mod spinlock;
pub mod table;

pub(crate) use context::is_killed;
pub use context::{
    can_run,
    cond_resched,
    BottomHalvesOff, //
};
pub use copy_table::CopyTable;
pub use global::Global;
pub use multi_table::MultiTable;
pub use owned::{
    Owned,
    Ref, //
};
pub use per_cpu::PerCpuCounters;
pub use semaphore::Semaphore;
pub use spinlock::{
    new_spinlock_bh,
    new_spinlock_irqsave,
    SpinLockBh,
    SpinLockBhGuard,
    SpinLockIrqSave, //
};
pub use table::{
    Number,
    Table, //
};

/// The callback that ends a wait, such as that of a [`Waiter`](semaphore::Waiter).
///
/// It may be called when the object that waits is gone. It is `Copy`, so it cannot keep the object
/// alive: it has a number to look it up.
///
/// # Examples
///
/// ```
/// use rdma::sync::Wake;
///
/// #[derive(Clone, Copy)]
/// struct WakeQp(u32);
///
/// impl Wake for WakeQp {
///     fn wake(&self) {
///         // Look up queue pair `self.0`, and queue its work item.
///     }
/// }
/// ```
pub trait Wake: Copy + Send + Sync + 'static {
    /// Queues work for the object. Any context, with locks of the caller and of others held.
    fn wake(&self);
}
