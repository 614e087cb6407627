// SPDX-License-Identifier: GPL-2.0

//! The number of packets of a sender that the network stack holds.
//!
//! The network stack frees a packet when it has left the device or was dropped, or orphans it
//! earlier (`lo` does so within our own transmission); a tun device or netem may keep it forever.
//! So a packet refers to an account with its own reference count, which can outlive the sender, and
//! which names the sender by number.
//!
//! ```text
//!   sender:  room()? --yes--> charge(skb), transmit
//!              | no: paused
//!   skb freed: at the low mark and paused --> Wake::wake(), no longer paused
//! ```
//!
//! Packets of one CPU may overtake those that another has just sent: both the backlog of packets
//! for the same host and the queues of a device are per CPU. A sender whose packets must arrive in
//! order continues on another CPU only when all of them have been returned, or none was sent for a
//! while, because a packet may be kept forever. For the same reason, one packet at a time may be
//! sent beyond the limit then: otherwise the retries of a sender would not run out.
//!
//! Packets are counted, not bytes: the size of a packet changes while the stack works on it. Those
//! of a [`Train`] are returned together, with its head, even if a device sends them one by one.

use super::{
    SkBuff,
    Train, //
};
use crate::{
    bindings,
    sync::Wake,
    time::jiffies, //
};
use core::ptr::null_mut;
use kernel::{
    cpu::CpuId,
    ffi,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

const NSEC_PER_SEC: u64 = 1_000_000_000;

/// The bits of the argument of the destructor that are the number of packets, less one.
const COUNT: usize = align_of::<Inner<()>>() - 1;

// CAST: Widening.
const _: () = assert!(Train::MOST as usize <= COUNT + 1);

/// The number of accounts. Packets in flight keep the accounts of senders that are gone.
static ACCOUNTS: Atomic<usize> = Atomic::new(0);

/// # Invariants
///
/// Every value is counted in [`ACCOUNTS`] from [`Inner::new`] until it is dropped, even if it never
/// gets into an [`Arc`].
// The low bits of a pointer to one are free for the number of packets, less one.
#[repr(align(64))]
struct Inner<W> {
    in_flight: Atomic<u32>,
    paused: Atomic<bool>,
    /// The CPU that sent the last packet.
    cpu: Atomic<u32>,
    /// The time of the last packet, in jiffies.
    sent: Atomic<usize>,
    /// The most packets in flight when a pause ends.
    low_mark: Atomic<u32>,
    /// The time since the last packet, in jiffies, after which another CPU may send in any case,
    /// and one packet may be sent although the limit is reached.
    takeover: usize,
    /// The number of packets in flight from which no packet is sent beyond the limit.
    most: u32,
    waker: W,
}

/// An account of packets on their way. Its functions are callable in softirq context.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::{net::{Dst, Train, TxInFlight}, sync::Wake};
/// /// Called with bottom halves disabled.
/// fn send(account: &TxInFlight<impl Wake>, mut train: Train, dst: Dst<'_>) -> Result {
///     if account.room(0, 64, 16) == 0 {
///         return Err(EAGAIN);
///     }
///     account.charge(&mut train)?;
///     train.transmit(dst)
/// }
/// ```
pub struct TxInFlight<W>(Arc<Inner<W>>);

impl<W: Wake> TxInFlight<W> {
    /// Opens an account. May sleep.
    ///
    /// After `takeover` nanoseconds without a packet, another CPU may go on in any case. One packet
    /// may then be sent although the limit is reached, if fewer than `most` are in flight.
    /// `waker` is called after a pause, when enough packets have been returned: in softirq or
    /// process context, under locks of the network stack and of the sender.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(takeover: u64, most: u32, waker: W) -> Result<Self> {
        // CAST: 64 bits.
        let takeover = takeover
            .saturating_mul(u64::from(kernel::bindings::HZ))
            .div_ceil(NSEC_PER_SEC) as usize;
        Ok(Self(Arc::new(
            Inner::new(takeover, most, waker),
            GFP_KERNEL_ACCOUNT,
        )?))
    }

    /// Returns the number of packets that this CPU may send now if `limit` may be in flight.
    ///
    /// If it is 0, the waker is called once no more than `low_mark` are in flight, or once none is
    /// if another CPU has sent those in flight. Call this again after `takeover` nanoseconds, too:
    /// the stack may keep packets forever, so another CPU may then send, or one packet beyond the
    /// limit. Bottom halves are off.
    ///
    /// `pending` packets were admitted just before, and are not charged yet.
    #[inline]
    pub fn room(&self, pending: u32, limit: u32, low_mark: u32) -> u32 {
        let now = jiffies();
        self.room_on(CpuId::current().as_u32(), now, pending, limit, low_mark)
    }

    fn room_on(&self, cpu: u32, now: usize, pending: u32, limit: u32, low_mark: u32) -> u32 {
        let inner = &*self.0;
        // The first packet of another CPU is admitted when none is in flight; then nothing is left
        // for the next ones to overtake.
        let is_other = pending == 0
            && inner.cpu.load(Relaxed) != cpu
            && now.wrapping_sub(inner.sent.load(Relaxed)) < inner.takeover;
        let (limit, low_mark) = if is_other { (1, 0) } else { (limit, low_mark) };
        let room = limit.saturating_sub(inner.in_flight.load(Relaxed).saturating_add(pending));
        if room > 0 {
            return room;
        }
        if pending == 0
            && inner.in_flight.load(Relaxed) < inner.most
            && now.wrapping_sub(inner.sent.load(Relaxed)) >= inner.takeover
        {
            return 1;
        }
        inner.low_mark.store(low_mark, Relaxed);
        // The order matters: either this sees the subtraction of the destructor, or the destructor
        // sees the pause. If both do, the one that resets the pause acts on it.
        inner.paused.xchg(true, Full);
        let is_over = inner.in_flight.load(Relaxed).saturating_add(pending) <= low_mark
            && inner.paused.xchg(false, Full);
        is_over.into()
    }

    /// Returns the number of packets in flight.
    pub fn in_flight(&self) -> u32 {
        self.0.in_flight.load(Relaxed)
    }

    /// Returns whether the sender waits for packets to be returned, for diagnostics.
    pub fn is_paused(&self) -> bool {
        self.0.paused.load(Relaxed)
    }

    /// Charges the account for packets that this CPU sends, until the stack returns them. Bottom
    /// halves are off.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the data is shared with a clone: the argument of the destructor is beside the
    /// data.
    #[inline]
    pub fn charge(&self, train: &mut Train) -> Result {
        let packets = train.packets().into();
        self.charge_on(CpuId::current().as_u32(), jiffies(), train.head(), packets)
    }

    /// Charges the account for a frame, as [`TxInFlight::charge`].
    ///
    /// # Errors
    ///
    /// See [`TxInFlight::charge`].
    pub fn charge_frame(&self, skb: &mut SkBuff) -> Result {
        self.charge_on(CpuId::current().as_u32(), jiffies(), skb, 1)
    }

    /// Charges `packets` packets, from 1 to [`Train::MOST`].
    fn charge_on(&self, cpu: u32, now: usize, skb: &SkBuff, packets: u32) -> Result {
        skb.check_writable()?;
        let skb = skb.as_raw();

        self.0.cpu.store(cpu, Relaxed);
        self.0.sent.store(now, Relaxed);
        self.0.in_flight.add(packets, Relaxed);
        // CAST: Widening.
        let more = packets.wrapping_sub(1) as usize & COUNT;
        let account = Arc::into_raw(self.0.clone())
            .cast_mut()
            .cast::<ffi::c_void>();
        // The argument moves along when the data does. Only packets with zero-copy pages use the
        // field otherwise, or XDP for fragments. Packets with fragments that reach XDP were copied
        // before (`skb_pp_cow_data()`), and the copy has no destructor.
        // SAFETY: `skb` is alive and owned. `skb_orphan()` calls the present destructor, if any,
        // before it is replaced. The argument survives until the destructor is called: see above.
        unsafe {
            bindings::skb_orphan(skb);
            (*bindings::skb_shinfo(skb)).__bindgen_anon_2.destructor_arg =
                account.map_addr(|addr| addr | more);
            (*skb).__bindgen_anon_3.__bindgen_anon_1.destructor = Some(destructor_callback::<W>);
        }
        Ok(())
    }
}

impl<W: Wake> Inner<W> {
    /// Counts the value itself: [`Arc::new`] drops its argument when it has no memory, and dropping
    /// an `Inner` always subtracts it.
    fn new(takeover: usize, most: u32, waker: W) -> Self {
        ACCOUNTS.add(1, Relaxed);
        // INVARIANT: The value is counted above.
        Self {
            in_flight: Atomic::new(0),
            paused: Atomic::new(false),
            cpu: Atomic::new(0),
            sent: Atomic::new(0),
            low_mark: Atomic::new(0),
            takeover,
            most,
            waker,
        }
    }

    fn returned(&self, packets: u32) {
        let before = self.in_flight.fetch_sub(packets, Full);

        if self.paused.load(Relaxed)
            && before.saturating_sub(packets) <= self.low_mark.load(Relaxed)
            && self.paused.xchg(false, Full)
        {
            self.waker.wake();
        }
    }
}

/// The destructor of a charged packet.
///
/// # Safety
///
/// `skb` must be a packet that [`TxInFlight::charge`] of a `TxInFlight<W>` was called for, once for
/// each such call.
unsafe extern "C" fn destructor_callback<W: Wake>(skb: *mut bindings::sk_buff) {
    // SAFETY: `charge` put this pointer there, with a reference that is taken back here.
    let (account, more) = unsafe {
        let info = bindings::skb_shinfo(skb);
        let arg = (*info).__bindgen_anon_2.destructor_arg;
        (*info).__bindgen_anon_2.destructor_arg = null_mut();
        let account = arg.map_addr(|addr| addr & !COUNT);
        (
            Arc::<Inner<W>>::from_raw(account.cast_const().cast()),
            arg.addr() & COUNT,
        )
    };

    // CAST: At most 63.
    account.returned((more as u32).wrapping_add(1));
    drop(account);
}

impl<W> Drop for Inner<W> {
    fn drop(&mut self) {
        ACCOUNTS.fetch_sub(1, Full);
    }
}

#[cfg(all(CONFIG_PREEMPTION, not(CONFIG_TASKS_RCU)))]
compile_error!(
    "a module for a preemptible kernel needs CONFIG_TASKS_RCU to wait for its last destructor: \
     enable an option that selects it, such as CONFIG_KPROBES"
);

/// Waits until the network stack has returned every packet, and no code of this module runs for any
/// of them. Sleeps, forever if a packet is stuck.
///
/// Call it when every sender is gone, before the module is unloaded. `report` is called with the
/// number of accounts that packets still keep, every ten seconds.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # const __LOG_PREFIX: &[u8] = b"my_driver\0";
/// use rdma::net::tx_in_flight::wait_all_returned;
///
/// /// Called when the module is unloaded and no sender is left.
/// fn exit() {
///     wait_all_returned(|accounts| {
///         pr_warn!("packets of {} senders are still in flight\n", accounts);
///     });
/// }
/// # fn main() {}
/// ```
pub fn wait_all_returned(mut report: impl FnMut(usize)) {
    const POLL_MS: i64 = 10;
    const POLLS_PER_REPORT: u32 = 1000;

    let mut polls: u32 = 0;
    loop {
        let outstanding = ACCOUNTS.load(Relaxed);
        if outstanding == 0 {
            break;
        }
        polls = polls.wrapping_add(1);
        if polls % POLLS_PER_REPORT == 0 {
            report(outstanding);
        }
        fsleep(Delta::from_millis(POLL_MS));
    }
    // The last destructor may have dropped the count without having returned yet. It can be
    // preempted there, so a grace period of plain RCU does not suffice on a preemptible kernel.
    //
    // SAFETY: This function may sleep.
    #[cfg(CONFIG_TASKS_RCU)]
    unsafe {
        bindings::synchronize_rcu_tasks()
    };
    #[cfg(not(CONFIG_TASKS_RCU))]
    kernel::sync::rcu::synchronize_rcu();
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::macros::kunit_tests(rdma_tx_in_flight)]
mod tests {
    use super::*;

    /// A tenth of a second.
    const TAKEOVER: u64 = NSEC_PER_SEC / 10;

    const MOST: u32 = 12;

    static WOKEN: Atomic<u32> = Atomic::new(0);

    #[derive(Clone, Copy)]
    struct Add(u32);

    impl Wake for Add {
        fn wake(&self) {
            WOKEN.add(self.0, Relaxed);
        }
    }

    fn charged(account: &TxInFlight<Add>) -> Option<SkBuff> {
        let skb = SkBuff::alloc(0, 64)?;
        account.charge_on(0, 0, &skb, 1).ok()?;
        Some(skb)
    }

    #[test]
    fn cloned_packet_is_not_charged() -> Result {
        let account = TxInFlight::new(TAKEOVER, MOST, Add(7))?;
        let skb = SkBuff::alloc(0, 64).ok_or(ENOMEM)?;
        let clone = skb.try_clone().ok_or(ENOMEM)?;

        assert_eq!(account.charge_on(0, 0, &skb, 1).err(), Some(EBUSY));
        assert_eq!(account.in_flight(), 0);
        drop(clone);
        assert!(account.charge_on(0, 0, &skb, 1).is_ok());
        Ok(())
    }

    #[test]
    fn full_account_wakes_once_when_mostly_drained() -> Result {
        let account = TxInFlight::new(TAKEOVER, MOST, Add(7))?;
        let mut skbs = KVec::new();

        assert!(!account.0.paused.load(Relaxed));
        WOKEN.store(0, Relaxed);
        for _ in 0..4 {
            assert!(account.room_on(0, 0, 0, 4, 1) > 0);
            skbs.push(charged(&account).ok_or(ENOMEM)?, GFP_KERNEL)?;
        }
        assert_eq!(account.room_on(0, 0, 0, 4, 1), 0);
        skbs.truncate(2);
        assert!(account.0.paused.load(Relaxed));
        assert_eq!(WOKEN.load(Relaxed), 0);
        skbs.truncate(1);
        assert_eq!(WOKEN.load(Relaxed), 7);
        assert!(account.room_on(0, 0, 0, 4, 1) > 0);
        skbs.clear();
        assert_eq!(WOKEN.load(Relaxed), 7);
        Ok(())
    }

    #[test]
    fn full_account_admits_few_packets_later() -> Result {
        let account = TxInFlight::new(TAKEOVER, MOST, Add(7))?;
        let later = kernel::bindings::HZ as usize;
        let mut skbs = KVec::new();

        for _ in 0..4 {
            skbs.push(charged(&account).ok_or(ENOMEM)?, GFP_KERNEL)?;
        }
        assert_eq!(account.room_on(0, 0, 0, 4, 1), 0);
        for limit in [4, 4, 1, 1, 4, 1, 4, 1] {
            assert_eq!(account.room_on(0, later, 0, limit, 0), 1);
            assert_eq!(account.room_on(0, later, 1, limit, 0), 0);
            skbs.push(charged(&account).ok_or(ENOMEM)?, GFP_KERNEL)?;
        }
        assert_eq!(account.room_on(0, later, 0, 4, 1), 0);
        Ok(())
    }

    #[test]
    fn other_cpu_waits_until_account_is_drained() -> Result {
        let account = TxInFlight::new(TAKEOVER, MOST, Add(7))?;
        let mut skbs = KVec::new();

        WOKEN.store(0, Relaxed);
        assert!(account.room_on(1, 0, 0, 4, 1) > 0);
        for _ in 0..2 {
            skbs.push(charged(&account).ok_or(ENOMEM)?, GFP_KERNEL)?;
        }
        assert!(account.room_on(0, 0, 0, 4, 1) > 0);
        assert_eq!(account.room_on(1, 0, 0, 4, 1), 0);
        // The packets may never be returned.
        assert!(account.room_on(1, kernel::bindings::HZ as usize, 0, 4, 1) > 0);
        skbs.truncate(1);
        assert_eq!(WOKEN.load(Relaxed), 0);
        skbs.truncate(0);
        assert_eq!(WOKEN.load(Relaxed), 7);
        assert!(account.room_on(1, 0, 0, 4, 1) > 0);
        Ok(())
    }

    #[test]
    fn packets_of_a_train_are_returned_together() -> Result {
        let account = TxInFlight::new(TAKEOVER, MOST, Add(7))?;
        let skb = SkBuff::alloc(0, 64).ok_or(ENOMEM)?;

        // Another CPU begins with one packet, and goes on with the train that it has begun.
        assert_eq!(account.room_on(1, 0, 0, 4, 1), 1);
        assert_eq!(account.room_on(1, 0, 3, 4, 1), 1);
        assert_eq!(account.room_on(1, 0, 4, 4, 1), 0);
        account.charge_on(0, 0, &skb, Train::MOST.into())?;
        assert_eq!(account.in_flight(), Train::MOST.into());
        WOKEN.store(0, Relaxed);
        drop(skb);
        assert_eq!(account.in_flight(), 0);
        assert_eq!(WOKEN.load(Relaxed), 7);
        Ok(())
    }

    // `Arc::new` drops its argument like this when out of memory.
    #[test]
    fn failed_allocation_is_not_counted() {
        let before = ACCOUNTS.load(Relaxed);

        drop(Inner::new(0, 0, Add(1)));
        assert_eq!(ACCOUNTS.load(Relaxed), before);
    }

    #[test]
    fn packets_keep_account_alive() -> Result {
        let before = ACCOUNTS.load(Relaxed);
        let account = TxInFlight::new(TAKEOVER, MOST, Add(1))?;
        let skb = charged(&account);

        drop(account);
        assert_eq!(ACCOUNTS.load(Relaxed), before + 1);
        drop(skb);
        assert_eq!(ACCOUNTS.load(Relaxed), before);
        Ok(())
    }
}
