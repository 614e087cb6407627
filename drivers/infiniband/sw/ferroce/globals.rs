// SPDX-License-Identifier: GPL-2.0

//! Tables that the data path finds objects in.
//!
//! Numbers are unique in the module, not per device: a packet names a queue pair by its number
//! alone, and a timer or work item names what it is for in the same way.

use crate::{
    ah::Av,
    device::Ferroce,
    gids,
    link,
    mcast,
    mr::Mr,
    mw::Mw,
    owner,
    sockets, //
};
use kernel::prelude::*;
use rdma::{
    ib,
    net::{
        skbuff::{
            PacketPools,
            SkBuff, //
        },
        tx_in_flight, //
    },
    sync::{
        CopyTable,
        Global,
        Ref,
        Table, //
    },
    workqueue::{
        Work,
        Workqueue, //
    }, //
};

/// A queue pair as lookups return it.
pub(crate) type QpRef = Ref<ib::qp::Qp<Ferroce>>;

/// A completion queue as lookups return it.
pub(crate) type CqRef = Ref<ib::cq::Cq<Ferroce>>;

/// A shared receive queue as lookups return it.
pub(crate) type SrqRef = Ref<ib::srq::Srq<Ferroce>>;

/// The most queue pairs, completion queues, shared receive queues, regions and windows of
/// processes, each.
pub(crate) const MAX_OBJECTS: u32 = 1 << 20;

/// How many more there may be for kernel consumers, each. A new link needs some, and one that
/// connects again does.
const KEPT: u32 = 1 << 16;

/// Bits of the number of a region or a window: those of a key that its consumer does not choose.
pub(crate) const KEY_NUMBER_BITS: u32 = 24;

/// The first number of a window. Regions have those below, so a key says what it is a key of.
///
/// The numbers are random, and there are at least eight times as many as may be in use. So a key
/// has as many bits that nobody can guess as fit: 31 if its low bits are random, too.
pub(crate) const FIRST_MW: u32 = 1 << (KEY_NUMBER_BITS - 1);

/// The last number of a window.
const LAST_MW: u32 = (1 << KEY_NUMBER_BITS) - 1;

/// Queue pair numbers below are special: 0 and 1 are management, and a few are kept free.
const FIRST_QPN: u32 = 16;

/// As many as there may be, the management queue pairs included.
const LAST_QPN: u32 = FIRST_QPN + MAX_OBJECTS + KEPT - 1;

/// The most address handles of processes.
pub(crate) const MAX_AH: u32 = 1 << 20;

/// The most address handles of kernel consumers. Numbers of their own, so that no process can take
/// the last one of the connection manager.
const MAX_KERNEL_AH: u32 = 1 << 20;

static QPS: Global<Table<ib::qp::Qp<Ferroce>>> = Global::new();
static CQS: Global<Table<ib::cq::Cq<Ferroce>>> = Global::new();
static SRQS: Global<Table<ib::srq::Srq<Ferroce>>> = Global::new();
static MRS: Global<Table<Mr>> = Global::new();
static MWS: Global<Table<Mw>> = Global::new();
static AHS: Global<CopyTable<Av>> = Global::new();
static KERNEL_AHS: Global<CopyTable<Av>> = Global::new();
static PACKETS: Global<PacketPools> = Global::new();
static WORK: Global<Workqueue> = Global::new();
static FETCHES: Global<Workqueue> = Global::new();

/// Constructs the tables. Once, before anything else of the driver runs.
///
/// Nothing uses them any more when what is returned is dropped.
pub(crate) fn init() -> Result<Cleanup> {
    let cleanup = Cleanup(());
    WORK.init(Workqueue::new(c"ferroce"))?;
    FETCHES.init(Workqueue::new_waiting(c"ferroce_odp"))?;
    QPS.init::<core::convert::Infallible>(Table::new(FIRST_QPN..=LAST_QPN, KEPT))?;
    CQS.init::<core::convert::Infallible>(Table::new(1..=MAX_OBJECTS + KEPT, KEPT))?;
    SRQS.init::<core::convert::Infallible>(Table::new(1..=MAX_OBJECTS + KEPT, KEPT))?;
    MRS.init::<core::convert::Infallible>(Table::new_random(
        1..=FIRST_MW - 1,
        MAX_OBJECTS + KEPT,
        KEPT,
    ))?;
    MWS.init::<core::convert::Infallible>(Table::new_random(FIRST_MW..=LAST_MW, MAX_OBJECTS, 0))?;
    AHS.init::<core::convert::Infallible>(CopyTable::new(1..=MAX_AH))?;
    KERNEL_AHS.init::<core::convert::Infallible>(CopyTable::new(
        MAX_AH.wrapping_add(1)..=MAX_AH.wrapping_add(MAX_KERNEL_AH),
    ))?;
    owner::init()?;
    gids::init()?;
    mcast::init()?;
    sockets::init()?;
    link::init()?;
    PACKETS.init(PacketPools::new())?;
    Ok(cleanup)
}

/// The queue pairs, by number.
pub(crate) fn qps() -> Result<&'static Table<ib::qp::Qp<Ferroce>>> {
    QPS.get().ok_or(ENODEV)
}

/// The completion queues, by number.
pub(crate) fn cqs() -> Result<&'static Table<ib::cq::Cq<Ferroce>>> {
    CQS.get().ok_or(ENODEV)
}

/// The shared receive queues, by number.
pub(crate) fn srqs() -> Result<&'static Table<ib::srq::Srq<Ferroce>>> {
    SRQS.get().ok_or(ENODEV)
}

/// The memory regions, by the upper 24 bits of their keys.
pub(crate) fn mrs() -> Result<&'static Table<Mr>> {
    MRS.get().ok_or(ENODEV)
}

/// The memory windows, by the upper 24 bits of their keys.
pub(crate) fn mws() -> Result<&'static Table<Mw>> {
    MWS.get().ok_or(ENODEV)
}

/// The address handles of processes, by the number that work requests have.
pub(crate) fn user_ahs() -> Result<&'static CopyTable<Av>> {
    AHS.get().ok_or(ENODEV)
}

/// The address handles of kernel consumers.
pub(crate) fn kernel_ahs() -> Result<&'static CopyTable<Av>> {
    KERNEL_AHS.get().ok_or(ENODEV)
}

/// The table that has the address handle of a number.
pub(crate) fn ahs(number: u32) -> Result<&'static CopyTable<Av>> {
    if number <= MAX_AH {
        user_ahs()
    } else {
        kernel_ahs()
    }
}

/// Ends the work queues and waits for packets that the network stack has. Dropped when nothing uses
/// the tables any more: what remains would run code of a module that is gone.
pub(crate) struct Cleanup(());

impl Drop for Cleanup {
    fn drop(&mut self) {
        // The first queues items of the second.
        for queue in [&FETCHES, &WORK] {
            if let Some(queue) = queue.get() {
                queue.shut_down();
            }
        }
        owner::shut_down();
        tx_in_flight::wait_all_returned(|accounts| {
            pr_warn!("unloading waits for packets of {accounts} queue pairs in network devices\n");
        });
        if let Some(packets) = PACKETS.get() {
            packets.shut_down();
        }
    }
}

/// Allocates an empty packet with `headroom` bytes in front and room for `size`. Does not sleep.
#[inline]
pub(crate) fn packet(headroom: usize, size: usize) -> Option<SkBuff> {
    PACKETS.get()?.alloc(headroom, size)
}

/// Queues a work item.
pub(crate) fn queue_work(work: &Work) {
    if let Some(queue) = WORK.get() {
        queue.queue(work);
    }
}

/// Has `f` called in process context, where it may wait for memory of a process.
///
/// # Errors
///
/// `ENOMEM`, `ESHUTDOWN`.
pub(crate) fn spawn(f: impl FnOnce() + Send + 'static) -> Result {
    FETCHES.get().ok_or(ESHUTDOWN)?.spawn(f)
}
