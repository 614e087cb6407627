// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys to a range of a region that requests bind and invalidate.
//!
//! A window of type 1 can be bound again and again, each time with a new key, and any queue pair of
//! its protection domain may use it. A window of type 2 is bound to one queue pair until it is
//! invalidated (type 2B). A region is not destroyed while a window is bound to it, unless its
//! registration is aborted.

use super::{
    bound::BoundRange,
    by_qp,
    target::Target,
    FIRST_MW,
    KEY_NUMBER_BITS, //
};
use crate::{
    device::Ferroce,
    pool::{
        self,
        Charge,
        MAX_OBJECTS, //
    }, //
};
use kernel::prelude::*;
use rdma::{
    ib::{
        mw::MwType,
        object::{
            Pd,
            PdId, //
        },
        Access, //
    },
    new_spinlock_bh,
    sync::{
        Global,
        Number,
        Owned,
        Ref,
        SpinLockBh,
        Table, //
    }, //
};
use roce::{
    requester::Local,
    wr::MemError, //
};

/// Rights that a window may have.
const SUPPORTED: Access = Access::REMOTE_WRITE
    .or(Access::REMOTE_READ)
    .or(Access::REMOTE_ATOMIC)
    .or(Access::FLUSH_GLOBAL)
    .or(Access::ZERO_BASED)
    .or(NO_EFFECT);

/// Flags that are accepted and have no effect, as in C rxe: programs pass the flags of the region.
const NO_EFFECT: Access = Access::LOCAL_WRITE
    .or(Access::MW_BIND)
    .or(Access::ON_DEMAND)
    .or(Access::OPTIONAL);

/// The mask for tags of new windows. Programs add a small number to the current key to get the next
/// one, and a carry must not change the number of the window.
const FIRST_TAGS: u8 = 0x7f;

/// The last number of a window.
const LAST_MW: u32 = (1 << KEY_NUMBER_BITS) - 1;

/// The windows, by number.
static TABLE: Global<Table<Mw>> = Global::new();

/// Constructs the tables. Called once, before any device exists.
pub(super) fn init() -> Result {
    by_qp::init()?;
    TABLE.init(Table::new_random(FIRST_MW..=LAST_MW, MAX_OBJECTS))
}

/// The driver's part of a memory window.
///
/// Dropping it hides the window from the data path, and waits for the packets that use it.
pub(crate) struct Window {
    mw: Owned<Mw>,
    number: Number<Mw>,
    _charge: Option<Charge>,
}

impl Window {
    pub(crate) fn new(pd: &Pd<Ferroce>, ty: MwType) -> Result<Self> {
        let charge = Charge::new(&pool::MWS, pd.owner.as_ref())?;
        let number = TABLE.get().ok_or(ENODEV)?.reserve()?;
        let pd = pd.id();
        let binding = Binding {
            key: super::key(number.get(), rdma::random::byte() & FIRST_TAGS),
            epoch: 0,
            bound: None,
            by_qp: match ty {
                MwType::One => None,
                MwType::Two => Some(by_qp::Entry::new(number.get())?),
            },
        };
        let mw = Owned::new(try_pin_init!(Mw {
            ty,
            pd,
            binding <- new_spinlock_bh!(binding, "ferroce::Mw::binding"),
        }? Error))?;
        number.publish(&mw);
        Ok(Self {
            mw,
            number,
            _charge: charge,
        })
    }

    /// Returns the key.
    pub(crate) fn rkey(&self) -> u32 {
        self.mw.binding.lock().key
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        {
            let mut binding = self.mw.binding.lock();
            binding.unbind();
            // No request can bind the window any more, because no key is zero.
            binding.key = 0;
        }
        self.number.hide();
    }
}

/// A memory window as the data path finds it.
#[pin_data]
pub(crate) struct Mw {
    ty: MwType,
    pd: PdId,
    #[pin]
    binding: SpinLockBh<Binding>,
}

/// The binding of a window.
struct Binding {
    key: u32,
    /// Changes whenever the window is bound or unbound.
    epoch: u64,
    bound: Option<Bound>,
    /// Only for type 2: the window among those of the queue pair that it is bound to.
    by_qp: Option<by_qp::Entry>,
}

#[derive(Clone, Copy)]
struct Bound {
    range: BoundRange,
    /// The queue pair that may use it, for type 2.
    qpn: Option<u32>,
    access: Access,
    /// The address that requests use for the first byte.
    va: u64,
    /// Bytes.
    len: u64,
}

impl Binding {
    /// Ends the binding, if there is one. When this returns, no access through the window is in
    /// progress, because an access holds the lock.
    fn unbind(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(bound) = self.bound.take() {
            bound.range.give_back();
            if let (Some(entry), Some(qpn)) = (&mut self.by_qp, bound.qpn) {
                entry.remove_from(qpn);
            }
        }
    }

    /// Begins a binding, or none; ends the one before.
    fn bind(&mut self, bound: Option<Bound>) {
        self.unbind();
        self.bound = bound;
        if let (Some(entry), Some(qpn)) = (&mut self.by_qp, bound.and_then(|bound| bound.qpn)) {
            entry.add_to(qpn);
        }
    }
}

/// Returns whether a key is one of a window.
#[inline]
pub(crate) fn is_window(key: u32) -> bool {
    super::number(key) >= FIRST_MW
}

/// Finds the window that an R_Key of the peer names, and checks its rights.
///
/// # Errors
///
/// [`MemError::Protection`].
pub(crate) fn find(rkey: u32, pd: PdId, qpn: u32, access: Access) -> Result<Target, MemError> {
    let mw = lookup(rkey)?;
    let (bound, epoch) = {
        let binding = mw.binding.lock();
        let bound = binding.bound.ok_or(MemError::Protection)?;
        if binding.key != rkey
            || mw.pd != pd
            || bound.qpn.is_some_and(|bound| bound != qpn)
            || !bound.access.contains(access)
        {
            return Err(MemError::Protection);
        }
        (bound, binding.epoch)
    };
    // If the window is invalidated from here on, `WindowRef::lock` fails.
    let window = WindowRef { mw, epoch };
    bound.range.target(window, bound.va, bound.len)
}

/// A reference to a window, with the binding that was found.
pub(crate) struct WindowRef {
    mw: Ref<Mw>,
    epoch: u64,
}

impl WindowRef {
    /// Keeps the window from being invalidated.
    ///
    /// # Errors
    ///
    /// [`MemError::Protection`] if it was invalidated already.
    #[inline]
    pub(crate) fn lock(&self) -> Result<impl Sized + '_, MemError> {
        let binding = self.mw.binding.lock();
        if binding.epoch != self.epoch {
            return Err(MemError::Protection);
        }
        Ok(binding)
    }
}

/// Binds a memory window for a request of queue pair `qpn`, which is in protection domain `pd`.
///
/// Called under the lock of the send half.
///
/// # Errors
///
/// [`MemError::Protection`]; the window is unchanged then.
pub(crate) fn bind(local: &Local, pd: PdId, qpn: u32) -> Result<(), MemError> {
    const TAG: u32 = (1 << super::KEY_BITS) - 1;

    let args = &local.args;
    let access = Access::from_raw(args.access);

    let mw = lookup(args.mw_rkey)?;
    let mut binding = mw.binding.lock();
    // C10-72
    if binding.key != args.mw_rkey || mw.pd != pd || !access.is_within(SUPPORTED) {
        return Err(MemError::Protection);
    }
    let qpn = match mw.ty {
        // o10-36.2.2
        MwType::One if access.contains(Access::ZERO_BASED) => {
            return Err(MemError::Protection);
        }
        MwType::One => None,
        // o10-37.2.30, o10-37.2.40
        MwType::Two if binding.bound.is_some() || args.length == 0 => {
            return Err(MemError::Protection);
        }
        MwType::Two => Some(qpn),
    };
    let bound = if args.length == 0 {
        None
    } else {
        Some(Bound {
            range: BoundRange::bind(args, pd)?,
            qpn,
            access,
            va: if access.contains(Access::ZERO_BASED) {
                0
            } else {
                args.addr
            },
            len: args.length,
        })
    };
    binding.bind(bound);
    binding.key = (binding.key & !TAG) | (local.key.get() & TAG);
    Ok(())
}

/// Ends the binding of a window of type 2, on request of its queue pair or of the peer.
///
/// # Errors
///
/// [`MemError::Protection`] if it is not bound, or to another queue pair.
pub(crate) fn invalidate(key: u32, pd: PdId, qpn: u32) -> Result<(), MemError> {
    let mw = lookup(key)?;
    let mut binding = mw.binding.lock();
    // o10-37.2.26: a window of type 1 has no queue pair.
    let bound_to = binding.bound.and_then(|bound| bound.qpn);
    if binding.key != key || mw.pd != pd || bound_to != Some(qpn) {
        return Err(MemError::Protection);
    }
    binding.unbind();
    Ok(())
}

/// Ends the bindings to a queue pair that is being destroyed and executes no more requests. May
/// sleep.
pub(crate) fn release(qpn: u32) {
    let Some(table) = TABLE.get() else {
        return;
    };
    let mut last = 0;
    while let Some(number) = by_qp::after(qpn, last) {
        last = number;
        // A window that is being deallocated is not found. It ends its binding itself.
        if let Some(mw) = table.get(number) {
            let mut binding = mw.binding.lock();
            if binding.bound.is_some_and(|bound| bound.qpn == Some(qpn)) {
                binding.unbind();
            }
        }
        rdma::sync::cond_resched();
    }
}

/// Finds the window that has the number of a key.
#[inline]
fn lookup(key: u32) -> Result<Ref<Mw>, MemError> {
    TABLE
        .get()
        .and_then(|table| table.get(super::number(key)))
        .ok_or(MemError::Protection)
}
