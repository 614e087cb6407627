// SPDX-License-Identifier: GPL-2.0

//! Capacities of queues, and the geometry of their rings.
//!
//! The number of slots and their size are powers of two, so a queue usually gets more room than
//! requested. The granted capacities are returned to the program, which may use all of them.

use crate::uapi::{
    cqe::CQE_LEN,
    ring::Ring,
    wqe::{
        RECV_WQE_LEN,
        SEND_WQE_LEN,
        SGE_LEN, //
    }, //
};

/// Capacities of a queue pair: `struct ib_qp_cap`. Also the limits of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Send requests that can be outstanding.
    pub max_send_wr: u32,
    /// Receive requests that can be outstanding.
    pub max_recv_wr: u32,
    /// SGEs of a send request.
    pub max_send_sge: u32,
    /// SGEs of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data in a send request.
    pub max_inline_data: u32,
}

/// The queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// The capacities granted, at least those requested.
    pub caps: Caps,
    /// Ring of send WQEs.
    pub send: Ring,
    /// Ring of receive WQEs, unless they come from an SRQ.
    pub recv: Option<Ring>,
}

/// The size of an SGE in bytes.
// CAST: A small constant.
const SGE: u32 = SGE_LEN as u32;

/// Lays out the queues of a queue pair. With an SRQ, requested receive capacities are ignored.
///
/// Returns `None` if any capacity is above `limits`.
pub fn queues(asked: &Caps, limits: &Caps, has_srq: bool) -> Option<Queues> {
    if asked.max_send_wr > limits.max_send_wr
        || asked.max_send_sge > limits.max_send_sge
        || asked.max_inline_data > limits.max_inline_data
    {
        return None;
    }
    // SGEs and inline data share the tail of a WQE, so each of them may use all of its room.
    let sges = asked.max_send_sge.checked_mul(SGE)?;
    let tail = sges.max(asked.max_inline_data);
    let send = ring(asked.max_send_wr, SEND_WQE_LEN, tail)?;
    let recv = if has_srq {
        None
    } else {
        Some(recv_ring(
            asked.max_recv_wr,
            asked.max_recv_sge,
            limits.max_recv_wr,
            limits.max_recv_sge,
        )?)
    };

    // A ring may have room for more than the limit. A request for the granted values gets the same
    // values.
    let caps = Caps {
        max_send_wr: send.capacity().min(limits.max_send_wr),
        max_recv_wr: recv.map_or(0, |ring| ring.capacity().min(limits.max_recv_wr)),
        max_send_sge: tail / SGE,
        max_recv_sge: if has_srq { 0 } else { asked.max_recv_sge },
        max_inline_data: tail,
    };
    Some(Queues { caps, send, recv })
}

/// Lays out a ring of receive WQEs, of a queue pair or an SRQ.
///
/// Returns `None` if `wr` is above `max_wr` or `sge` above `max_sge`.
pub fn recv_ring(wr: u32, sge: u32, max_wr: u32, max_sge: u32) -> Option<Ring> {
    if wr > max_wr || sge > max_sge {
        return None;
    }
    ring(wr, RECV_WQE_LEN, sge.checked_mul(SGE)?)
}

/// Lays out a ring for `cqe` completions.
///
/// Returns `None` if `cqe` is above `max_cqe`.
pub fn completion_ring(cqe: u32, max_cqe: u32) -> Option<Ring> {
    if cqe > max_cqe {
        return None;
    }
    ring(cqe, CQE_LEN, 0)
}

fn ring(entries: u32, header: usize, tail: u32) -> Option<Ring> {
    let header = u32::try_from(header).ok()?;
    Ring::new(entries, header.checked_add(tail)?)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_caps))]
mod tests {
    use super::*;

    const LIMITS: Caps = Caps {
        max_send_wr: 1 << 20,
        max_recv_wr: 1 << 20,
        max_send_sge: 32,
        max_recv_sge: 32,
        max_inline_data: 512,
    };

    #[test]
    fn sges_and_inline_data_share_wqe_space() {
        let asked = Caps {
            max_send_wr: 100,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 3,
            max_inline_data: 200,
        };
        let expected = Caps {
            max_send_wr: 127,
            max_recv_wr: 1,
            max_send_sge: 12,
            max_recv_sge: 3,
            max_inline_data: 200,
        };
        let queues = queues(&asked, &LIMITS, false);
        assert_eq!(queues.map(|queues| queues.caps), Some(expected));
        assert_eq!(queues.map(|queues| queues.send.elem_size()), Some(512));
        let recv = queues.map(|queues| queues.recv.map(|ring| ring.elem_size()));
        assert_eq!(recv, Some(Some(128)));
    }

    #[test]
    fn returned_caps_can_be_requested_again() {
        let check = |asked: Caps| {
            let first = queues(&asked, &LIMITS, false).unwrap();
            assert!(first.caps.max_send_wr >= asked.max_send_wr);
            assert!(first.caps.max_recv_wr >= asked.max_recv_wr);
            assert!(first.caps.max_send_sge >= asked.max_send_sge);
            assert!(first.caps.max_inline_data >= asked.max_inline_data);
            assert_eq!(queues(&first.caps, &LIMITS, false), Some(first));
        };
        for inline in 0..=512 {
            for sge in 0..=32 {
                check(Caps {
                    max_send_wr: 5,
                    max_send_sge: sge,
                    max_inline_data: inline,
                    ..Caps::default()
                });
            }
        }
        check(LIMITS);
    }

    #[test]
    fn srq_replaces_recv_ring() {
        let asked = Caps {
            max_recv_wr: u32::MAX,
            max_recv_sge: u32::MAX,
            ..Caps::default()
        };
        let with_srq = queues(&asked, &LIMITS, true);
        assert_eq!(with_srq.map(|queues| queues.recv), Some(None));
        assert_eq!(with_srq.map(|queues| queues.caps.max_recv_wr), Some(0));
        assert_eq!(queues(&asked, &LIMITS, false), None);
    }

    #[test]
    fn limits_are_inclusive() {
        assert!(queues(&LIMITS, &LIMITS, false).is_some());
        let over: [fn(&mut Caps); 5] = [
            |caps| caps.max_send_wr += 1,
            |caps| caps.max_recv_wr += 1,
            |caps| caps.max_send_sge += 1,
            |caps| caps.max_recv_sge += 1,
            |caps| caps.max_inline_data += 1,
        ];
        for spoil in over {
            let mut asked = LIMITS;
            spoil(&mut asked);
            assert_eq!(queues(&asked, &LIMITS, false), None);
        }
        assert!(completion_ring(32768, 32768).is_some());
        assert_eq!(completion_ring(32769, 32768), None);
    }
}
