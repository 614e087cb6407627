// SPDX-License-Identifier: GPL-2.0

//! The user to whom a process is charged, for limits per user.
//!
//! C headers: [`include/linux/cred.h`](srctree/include/linux/cred.h),
//! [`include/linux/user_namespace.h`](srctree/include/linux/user_namespace.h)

use crate::bindings;

/// A user of the initial user namespace.
///
/// Processes in other user namespaces count for the owner of the outermost one that they are in:
/// the owner of a namespace has many user ids in it, which must not count as many users.
///
/// # Examples
///
/// ```
/// use rdma::cred::UserId;
///
/// struct Region {
///     owner: UserId,
/// }
///
/// let region = Region {
///     owner: UserId::of_caller(),
/// };
/// let is_owner = region.owner == UserId::of_caller();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserId(u32);

impl UserId {
    /// Returns the user that the calling process counts for. Process context; does not sleep.
    pub fn of_caller() -> Self {
        // SAFETY: A task that calls something is alive.
        let mut uid = unsafe { bindings::task_uid(bindings::get_current()) };
        // SAFETY: No requirement.
        let mut ns = unsafe { bindings::current_user_ns() };
        loop {
            // SAFETY: The credentials of the calling task keep their namespace alive, and each
            // namespace its parent. Neither the parent nor the owner of a namespace ever changes.
            let (parent, owner) = unsafe { ((*ns).parent, (*ns).owner) };
            if parent.is_null() {
                return Self(uid.val);
            }
            (ns, uid) = (parent, owner);
        }
    }
}

/// Returns whether the calling process may exceed limits of resources (`CAP_SYS_RESOURCE` in the
/// initial user namespace). A refusal is not audited, since few processes have it or need it.
/// Process context; does not sleep.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::cred::may_exceed_limits;
///
/// fn check(used: u32, limit: u32) -> Result {
///     if used >= limit && !may_exceed_limits() {
///         return Err(ENOMEM);
///     }
///     Ok(())
/// }
/// ```
pub fn may_exceed_limits() -> bool {
    // CAST: A small number.
    // SAFETY: It is the number of a capability.
    unsafe { bindings::capable_noaudit(bindings::CAP_SYS_RESOURCE as kernel::ffi::c_int) }
}
