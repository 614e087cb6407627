// SPDX-License-Identifier: GPL-2.0

//! Fair shares of a pool that all users of a host share.
//!
//! There is no configured limit per user. Instead, a user may hold no more than it leaves to other
//! users, and a process no more than it leaves to other processes of its user. One process gets at
//! most a third of an empty pool, one user half of it, a second user half of the rest, and so on.
//! So neither a process nor a user can exhaust a pool.

/// The amounts that are held of a pool, in units of that pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The amount that the requesting process holds.
    pub process: u32,
    /// The amount that all processes of its user hold, including this one.
    pub user: u32,
}

/// The divisor of the part of a pool that is reserved for privileged processes.
const RESERVE: u32 = 16;

/// Returns the rest of a pool of `max` for unprivileged users if `used` is in use.
pub fn left(max: u32, used: u32) -> u32 {
    let reserve = max.checked_div(RESERVE).unwrap_or(0);

    max.saturating_sub(reserve).saturating_sub(used)
}

/// Returns whether a process may take `n` more if `left` is the rest of the pool.
pub fn may_take(n: u32, left: u32, held: Held) -> bool {
    let others = left.saturating_sub(held.user);

    held.process.checked_add(n).is_some_and(|sum| sum <= others)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 16000;

    /// Takes as much as possible, one by one, for a process of a user that holds `user` so far.
    ///
    /// Returns the amount that the process got.
    fn fill(used: &mut u32, user: &mut u32) -> u32 {
        let mut process = 0;

        while may_take(
            1,
            left(MAX, *used),
            Held {
                process,
                user: *user,
            },
        ) {
            process += 1;
            *user += 1;
            *used += 1;
        }
        process
    }

    #[test]
    fn single_process_gets_a_third() {
        let (mut used, mut user) = (0, 0);

        assert_eq!(fill(&mut used, &mut user), 5000);
        assert_eq!(used, 5000);
    }

    #[test]
    fn processes_of_one_user_share_half() {
        let (mut used, mut user) = (0, 0);

        for _ in 0..6 {
            assert!(fill(&mut used, &mut user) > 0);
        }
        for _ in 0..1000 {
            fill(&mut used, &mut user);
        }
        assert_eq!(user, 7500);
    }

    #[test]
    fn each_user_gets_half_of_remainder() {
        let mut used = 0;
        let mut before = left(MAX, 0);

        for _ in 0..8 {
            let mut user = 0;
            for _ in 0..1000 {
                fill(&mut used, &mut user);
            }
            assert_eq!(user, before.div_ceil(2));
            before -= user;
        }
        // The reserve is for privileged processes.
        assert!(used <= MAX - MAX / RESERVE);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let held = Held {
            process: u32::MAX,
            user: u32::MAX,
        };

        assert!(!may_take(1, u32::MAX, held));
        assert!(!may_take(u32::MAX, u32::MAX, Held { process: 1, ..held }));
        assert!(may_take(
            u32::MAX,
            u32::MAX,
            Held {
                process: 0,
                user: 0
            }
        ));
        assert_eq!(left(5, 6), 0);
        assert_eq!(left(5, 1), 4);
    }
}
