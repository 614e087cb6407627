// SPDX-License-Identifier: GPL-2.0

//! Multicast groups.
//!
//! The net device of a device is in the IP group as long as a queue pair of the device is a member.
//! The members of a group are looked up under RCU, by group and namespace. Each copies the payload
//! of a datagram into a receive request of its own, including the queue pair that sent it, if it is
//! a member. Nothing is allocated for a member that need not wait, and the number of members is
//! limited.

use crate::{
    ah,
    device::IbQp,
    gids::{
        self,
        Address, //
    },
    owner::Owner, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use rdma::{
    cred::UserId,
    net::{
        Group,
        Rtnl, //
    },
    sync::{
        Global,
        MultiTable,
        Owned, //
    }, //
};
use roce::share;

/// The maximum number of members of a group on a device: a packet is copied once for each of them,
/// in a softirq.
pub(crate) const MAX_MEMBERS: u32 = 64;

/// Buckets of the table.
const BUCKETS: usize = 1024;

static GROUPS: Global<Groups> = Global::new();

/// All groups of all devices.
#[pin_data]
struct Groups {
    #[pin]
    members: MultiTable<Address, Member, BUCKETS>,
    /// Held while a queue pair joins or leaves; protects the counts of all devices.
    #[pin]
    changing: Mutex<()>,
}

/// A queue pair in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Member {
    device: u32,
    qp: u32,
    /// The user of the queue pair; `None` for a kernel consumer.
    user: Option<UserId>,
}

/// The members of a group on a device.
#[derive(Default)]
struct Members {
    all: u32,
    /// Those of the requesting user.
    of_user: u32,
    /// True if the queue pair is one of them.
    is_member: bool,
}

impl Members {
    /// Returns whether a queue pair of this owner may join. Group memberships are shared like a
    /// pool, but only per user.
    fn has_room(&self, owner: Option<&Owner>) -> bool {
        match owner {
            Some(owner) if !owner.is_privileged => share::may_take(
                1,
                share::left(MAX_MEMBERS, self.all),
                share::Held {
                    process: self.of_user,
                    user: 0,
                },
            ),
            _ => self.all < MAX_MEMBERS,
        }
    }
}

/// Constructs the table. Called once, before any device exists.
pub(crate) fn init() -> Result {
    GROUPS.init(try_pin_init!(Groups {
        members <- MultiTable::new(),
        changing <- new_mutex!((), "ferroce::mcast"),
    }? Error))
}

/// Makes a queue pair a member of a group.
///
/// # Errors
///
/// `EINVAL` if it already is one: the core counts each attach, and a queue pair with a wrong count
/// could never be destroyed. `ENOMEM` beyond a limit or a share; `ENODEV` or `EINVAL` without a net
/// device that has this version of IP.
pub(crate) fn attach(qp: &Owned<IbQp>, gid: [u8; 16]) -> Result {
    let groups = GROUPS.get().ok_or(ENODEV)?;
    let device = qp.device();
    let owner = qp.owner.as_deref();
    let (address, member) = membership(qp, gid);
    let _changing = groups.changing.lock();
    let members = groups.look(&address, member);
    let is_first = members.all == 0;

    if members.is_member {
        return Err(EINVAL);
    }
    if !members.has_room(owner) || !device.memberships.has_room(owner) {
        return Err(ENOMEM);
    }
    if is_first {
        if !device.groups.has_room(owner) {
            return Err(ENOMEM);
        }
        let rtnl = Rtnl::lock();
        let netdev = device.netdev().ok_or(ENODEV)?;
        if netdev.net_id() != address.net {
            return Err(ENODEV);
        }
        netdev.join(&rtnl, group(gid))?;
    }
    // Keep the members of a device together: `deliver` relies on it to count a datagram only once
    // for each device.
    let inserted = groups.members.insert_beside(
        address,
        member,
        |other| other.device == member.device,
        GFP_KERNEL_ACCOUNT,
    );
    if let Err(e) = inserted {
        if is_first {
            leave(qp, &address);
        }
        return Err(e);
    }
    // `changing` is held, so there still is the room that was found above.
    device.memberships.count(owner, 1);
    if is_first {
        device.groups.count(None, 1);
        // The loopback of datagrams to this host is part of a cached route: have routes looked up
        // again.
        gids::invalidate();
    }
    Ok(())
}

/// Ends the membership of a queue pair in a group.
///
/// # Errors
///
/// `EINVAL` if it is not a member.
pub(crate) fn detach(qp: &Owned<IbQp>, gid: [u8; 16]) -> Result {
    let groups = GROUPS.get().ok_or(ENODEV)?;
    let device = qp.device();
    let (address, member) = membership(qp, gid);
    let _changing = groups.changing.lock();

    groups
        .members
        .remove(&address, |other| *other == member)
        .ok_or(EINVAL)?;
    device.memberships.give_back(qp.owner.as_deref(), 1);
    if groups.look(&address, member).all == 0 {
        device.groups.give_back(None, 1);
        leave(qp, &address);
        gids::invalidate();
    }
    Ok(())
}

/// Returns the group, and the entry of a queue pair in it.
fn membership(qp: &Owned<IbQp>, gid: [u8; 16]) -> (Address, Member) {
    let device = qp.device();
    let member = Member {
        device: device.number,
        qp: qp.qpn,
        user: qp.owner.as_ref().map(|owner| owner.user.id),
    };
    let net = device.link.net;
    (Address { net, gid }, member)
}

impl Groups {
    /// Returns the members of a group on the device of `member`.
    fn look(&self, address: &Address, member: Member) -> Members {
        let mut found = Members::default();

        self.members.find_map(address, |other| {
            if other.device == member.device {
                found.all = found.all.saturating_add(1);
                let is_same = other.user == member.user;
                found.of_user = found.of_user.saturating_add(is_same.into());
                found.is_member |= *other == member;
            }
            None::<()>
        });
        found
    }
}

/// Makes the net device of a queue pair leave a group.
fn leave(qp: &Owned<IbQp>, address: &Address) {
    let rtnl = Rtnl::lock();

    // A net device that was removed, or moved to another namespace, has already left its groups.
    // (So has one whose MTU was too small for IP in the meantime, which is not noticed.)
    if let Some(netdev) = qp.device().netdev() {
        if netdev.net_id() == address.net {
            netdev.leave(&rtnl, group(address.gid));
        }
    }
}

/// Returns the IP group of a multicast GID.
fn group(gid: [u8; 16]) -> Group {
    match ah::v4(&gid) {
        Some(group) => Group::V4(group),
        None => Group::V6(gid),
    }
}

/// Calls `f` with the number of the device and of the queue pair of each member of a group. The
/// members of one device are adjacent. Under RCU: `f` must not sleep.
#[inline]
pub(crate) fn for_each_member(group: &Address, mut f: impl FnMut(u32, u32)) {
    if let Some(groups) = GROUPS.get() {
        groups.members.find_map(group, |member| {
            f(member.device, member.qp);
            None::<()>
        });
    }
}
