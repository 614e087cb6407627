// SPDX-License-Identifier: GPL-2.0

//! How many packets of one sender are on their way.
//!
//! The network stack returns a packet when it has left the device, or was dropped, or when nobody
//! needs to know any longer (`lo` does so within our own transmission); a tun device or netem may
//! keep it for ever. So what a packet refers to is an account with a reference count of its own,
//! which can outlive the sender, and which calls the sender by number.
//!
//! ```text
//!   sender:  admits()? --yes--> charge(skb), transmit
//!              | no: paused
//!   skb freed: in flight at the low mark and paused --> wake(cookie), no longer paused
//! ```
//!
//! Packets are counted, not bytes: what a packet occupies changes while the stack works on it.

use super::SkBuff;
use crate::bindings;
use core::ptr::null_mut;
use kernel::{
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

/// Accounts that exist: those of senders that are gone are kept by packets on their way.
static ACCOUNTS: Atomic<usize> = Atomic::new(0);

struct Inner {
    in_flight: Atomic<u32>,
    paused: Atomic<bool>,
    limit: u32,
    wake: fn(u32),
    cookie: u32,
}

/// An account of packets on their way. Its functions are callable in softirq context.
pub struct TxAccount(Arc<Inner>);

impl TxAccount {
    /// Opens an account for `limit` packets. May sleep.
    ///
    /// `wake(cookie)` is called after a pause, when three quarters of them have been returned. It
    /// must only queue work: it is called in softirq or process context, under locks of the network
    /// stack and of whoever transmits.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(limit: u32, wake: fn(u32), cookie: u32) -> Result<Self> {
        let account = Arc::new(
            Inner {
                in_flight: Atomic::new(0),
                paused: Atomic::new(false),
                limit,
                wake,
                cookie,
            },
            GFP_KERNEL_ACCOUNT,
        );
        if account.is_ok() {
            ACCOUNTS.add(1, Relaxed);
        }
        Ok(Self(account?))
    }

    /// Returns whether another packet may go. If not, `wake` is going to be called.
    pub fn admits(&self) -> bool {
        let inner = &*self.0;

        if inner.in_flight.load(Relaxed) < inner.limit {
            return true;
        }
        // The order matters: either this sees what the destructor has subtracted, or the destructor
        // sees the pause. If both do, the one who takes the pause back acts on it.
        inner.paused.xchg(true, Full);
        inner.in_flight.load(Relaxed) <= inner.low_mark() && inner.paused.xchg(false, Full)
    }

    /// Returns how many packets are on their way, for people.
    pub fn in_flight(&self) -> u32 {
        self.0.in_flight.load(Relaxed)
    }

    /// Returns whether the sender waits for packets to be returned, for people.
    pub fn is_paused(&self) -> bool {
        self.0.paused.load(Relaxed)
    }

    /// Charges the account for a packet until the stack returns it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the data is shared with a clone: what says who is to be told is beside the data.
    pub fn charge(&self, skb: &mut SkBuff) -> Result {
        skb.check_writable()?;
        let skb = skb.as_raw();

        self.0.in_flight.add(1, Relaxed);
        // SAFETY: `skb` is alive and owned. A destructor that it has already is called, so that
        // none is lost. The argument survives until the destructor is called: nobody else uses it
        // in a packet without zero-copy pages, and it moves along when the data does.
        unsafe {
            bindings::skb_orphan(skb);
            bindings::sk_buff_set_destructor_arg(
                skb,
                Arc::into_raw(self.0.clone()).cast_mut().cast(),
            );
            bindings::sk_buff_set_destructor(skb, Some(destructor_callback));
        }
        Ok(())
    }
}

impl Inner {
    fn low_mark(&self) -> u32 {
        self.limit / 4
    }

    fn returned(&self) {
        let before = self.in_flight.fetch_sub(1, Full);

        if before.saturating_sub(1) <= self.low_mark()
            && self.paused.load(Relaxed)
            && self.paused.xchg(false, Full)
        {
            (self.wake)(self.cookie);
        }
    }
}

/// The destructor of a charged packet.
///
/// # Safety
///
/// `skb` must be a packet that [`TxAccount::charge`] was called for, once for each such call.
unsafe extern "C" fn destructor_callback(skb: *mut bindings::sk_buff) {
    // SAFETY: `charge` put this pointer there, with a reference that is taken back here.
    let account = unsafe {
        let arg = bindings::sk_buff_destructor_arg(skb);
        bindings::sk_buff_set_destructor_arg(skb, null_mut());
        Arc::<Inner>::from_raw(arg.cast_const().cast())
    };

    account.returned();
    drop(account);
}

impl Drop for Inner {
    fn drop(&mut self) {
        ACCOUNTS.fetch_sub(1, Full);
    }
}

/// Waits until the network stack has returned every packet, and runs no code of this module for one
/// of them. Sleeps, for ever if a packet is stuck.
///
/// Call it when every sender is gone, before the module goes. `report` is called with the number of
/// accounts that packets still keep, every ten seconds.
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
    // The last destructor may have counted itself off and not have returned yet. It can be
    // preempted there, so a grace period of plain RCU would not do.
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
#[kernel::macros::kunit_tests(rdma_tx_account)]
mod tests {
    use super::*;

    static WOKEN: Atomic<u32> = Atomic::new(0);

    fn wake(cookie: u32) {
        WOKEN.add(cookie, Relaxed);
    }

    fn charged(account: &TxAccount) -> Option<SkBuff> {
        let mut skb = SkBuff::alloc(0, 64)?;
        account.charge(&mut skb).ok()?;
        Some(skb)
    }

    #[test]
    fn a_packet_with_a_clone_is_not_charged() -> Result {
        let account = TxAccount::new(4, wake, 7)?;
        let mut skb = SkBuff::alloc(0, 64).ok_or(ENOMEM)?;
        let clone = skb.try_clone().ok_or(ENOMEM)?;

        assert_eq!(account.charge(&mut skb).err(), Some(EBUSY));
        assert_eq!(account.in_flight(), 0);
        drop(clone);
        assert!(account.charge(&mut skb).is_ok());
        Ok(())
    }

    #[test]
    fn a_full_account_wakes_once_when_most_has_been_returned() -> Result {
        let account = TxAccount::new(4, wake, 7)?;
        let mut skbs = KVec::new();

        WOKEN.store(0, Relaxed);
        for _ in 0..4 {
            assert!(account.admits());
            skbs.push(charged(&account).ok_or(ENOMEM)?, GFP_KERNEL)?;
        }
        assert!(!account.admits());
        skbs.truncate(2);
        assert!(account.0.paused.load(Relaxed));
        assert_eq!(WOKEN.load(Relaxed), 0);
        skbs.truncate(1);
        assert_eq!(WOKEN.load(Relaxed), 7);
        assert!(account.admits());
        skbs.clear();
        assert_eq!(WOKEN.load(Relaxed), 7);
        Ok(())
    }

    #[test]
    fn an_account_that_never_was_full_wakes_nobody() -> Result {
        let account = TxAccount::new(4, wake, 1)?;

        WOKEN.store(0, Relaxed);
        drop(charged(&account));
        assert_eq!(WOKEN.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn packets_outlive_the_sender() -> Result {
        let before = ACCOUNTS.load(Relaxed);
        let account = TxAccount::new(1, wake, 1)?;
        let skb = charged(&account);

        drop(account);
        assert_eq!(ACCOUNTS.load(Relaxed), before + 1);
        drop(skb);
        assert_eq!(ACCOUNTS.load(Relaxed), before);
        Ok(())
    }
}
