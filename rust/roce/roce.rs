// SPDX-License-Identifier: GPL-2.0

//! The RoCE v2 protocol, without any input or output.
//!
//! This crate is a pure state machine. Its inputs are posted work requests, received packets and
//! the time; its outputs are packets to send, destinations for received bytes, and completions.
//! Sockets, clocks, locks, memory keys and payload belong to the caller, called the *driver* here:
//! the driver in the kernel, the simulator in `tools/testing/roce`.
//!
//! - [`requester::Requester`] is the send half of a queue pair: work requests go in, request
//!   packets come out, responses go in, completions come out. One type serves RC, UC and UD.
//! - [`responder::Responder`] is the receive half: request packets go in; placements, replies and
//!   completions come out.
//! - [`wire`] is the packet format, [`opcode`] the table of operations, [`psn`] the arithmetic of
//!   sequence numbers.
//! - Decisions of the driver that need no kernel are here, too, so that the host can test them:
//!   [`share`] and [`senders`] (fairness among users and queue pairs of a host), [`fifo`] (the CQ
//!   of a kernel consumer) and [`backoff`].
//!
//! Nothing here allocates, and nothing here may panic: in the kernel, a remote peer could trigger
//! the crash. Arithmetic is wrapping, checked or saturating, and slices are read with `get`. The
//! work of a call is bounded by the number of slots of the queue; loops over packets belong to the
//! driver.
//!
//! # Abbreviations
//!
//! | short | long |
//! |---|---|
//! | AETH | ACK extended transport header: syndrome and MSN |
//! | AtomicETH | extended transport header of an atomic operation: address, key and operands |
//! | BTH | base transport header, at the front of every packet |
//! | CNP | congestion notification packet |
//! | DETH | datagram extended transport header: Q_Key and source QP (UD) |
//! | ePSN | expected PSN: the PSN that the responder executes next |
//! | ECN | explicit congestion notification: marks on IP packets |
//! | FETH | FLUSH extended transport header: placement type and selectivity level |
//! | GRH | global route header; on RoCE v2 the IP header takes its place |
//! | GSI | general services interface: queue pair 1 |
//! | IBTA | InfiniBand Trade Association; its specification, volume 1 |
//! | ICRC | invariant CRC, the last four bytes of a packet |
//! | IETH | invalidate extended transport header: an R_Key |
//! | ImmDt | immediate data: four bytes that the receiver finds in its completion |
//! | MSN | message sequence number: the number of messages that the responder has completed |
//! | MTU | path MTU: the largest payload of one packet |
//! | NAK | negative acknowledgment |
//! | P_Key | partition key |
//! | PSN | packet sequence number, 24 bits |
//! | Q_Key | queue key, which a datagram must carry |
//! | QP, QPN | queue pair, and its number |
//! | RC, UC, UD | reliable connection, unreliable connection, unreliable datagram |
//! | RETH | RDMA extended transport header: address, R_Key and length |
//! | R_Key, L_Key | remote and local key of a memory region |
//! | RTT, SRTT, RTTVAR | round-trip time, its smoothed value and its variation (RFC 6298) |
//! | RNR | receiver not ready: no receive work request was posted |
//! | SQD, SQE | states of a queue pair: send queue drained, send queue error |
//! | WQE | work queue element: a posted work request |

#![cfg_attr(not(any(CONFIG_RUST, test)), no_std)]
#![forbid(unsafe_code)]

pub mod backoff;
pub mod congestion;
pub mod fifo;
pub mod icrc;
pub mod ids;
mod kept;
pub mod opcode;
pub mod pace;
pub mod pma;
pub mod psn;
pub mod qp;
pub mod requester;
pub mod responder;
pub mod senders;
pub mod share;
pub mod source_port;
pub mod time;
pub mod trains;
pub mod tx_backoff;
pub mod uapi;
pub mod wire;
pub mod wr;

#[cfg(any(test, CONFIG_KUNIT = "y"))]
mod testutil;
