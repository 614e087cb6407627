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
