// SPDX-License-Identifier: GPL-2.0

//! Calls of the driver's tracepoints, `/sys/kernel/tracing/events/ferroce`.
//!
//! They are defined in C, in `trace.h`, and bindgen declares them here. The calls are `unsafe`,
//! which the driver forbids, so they are in a crate of their own. `kernel::declare_trace!` cannot
//! be used: it looks for tracepoints in `kernel::bindings`, which does not have those of a module.
//!
//! A disabled tracepoint is a static branch. A closure provides its arguments, and is not called
//! then.
//!
//! All functions are callable in any context.

mod bindings;

use kernel::{
    ffi,
    prelude::*, //
};
use rdma::ib::DeviceName;

/// The fields of a packet in tracepoints.
#[derive(Clone, Copy)]
pub struct Packet {
    /// The name of the device, empty if there is none.
    pub device: DeviceName,
    /// The number of the queue pair; for a packet that names none, the number in the packet.
    pub qpn: u32,
    /// The opcode, as in the BTH.
    pub opcode: u8,
    /// The PSN.
    pub psn: u32,
    /// Bytes of payload.
    pub len: u32,
}

/// The fields of an acknowledgment in tracepoints.
#[derive(Clone, Copy)]
pub struct Ack {
    /// The name of the device.
    pub device: DeviceName,
    /// The number of the own queue pair.
    pub qpn: u32,
    /// True if it was sent, false if received.
    pub sent: bool,
    /// The PSN that it acknowledges, or rejects.
    pub psn: u32,
    /// The syndrome, as in the AETH.
    pub syndrome: u8,
    /// The MSN: messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// The fields of a retry in tracepoints.
#[derive(Clone, Copy)]
pub struct Retry {
    /// The name of the device.
    pub device: DeviceName,
    /// The number of the queue pair.
    pub qpn: u32,
    /// The PSN that is sent again.
    pub psn: u32,
    /// The retries left.
    pub left: u8,
    /// The reason.
    pub reason: &'static CStr,
}

/// The fields of a train in tracepoints.
#[derive(Clone, Copy)]
pub struct Train {
    /// The name of the device.
    pub device: DeviceName,
    /// The number of the queue pair.
    pub qpn: u32,
    /// True if the receive half sent it, false if the send half did.
    pub receive: bool,
    /// The number of packets.
    pub packets: u16,
    /// Bytes of all packets, from the IP headers on.
    pub bytes: u32,
    /// The result of handing it to the IP layer.
    pub result: &'static CStr,
}

/// Returns whether a tracepoint is enabled: a static branch.
macro_rules! is_on {
    ($tracepoint:ident) => {{
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: The tracepoint has a static key, which C defines.
        let on = unsafe {
            kernel::jump_label::static_branch_unlikely!(
                bindings::$tracepoint,
                bindings::tracepoint,
                key
            )
        };
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let on = false;
        on
    }};
}

/// Calls the C function of a tracepoint.
macro_rules! emit {
    ($function:ident($($arg:expr),* $(,)?)) => {{
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: Texts are C strings, valid for the call; all other arguments are numbers.
        unsafe { bindings::$function($($arg),*) };
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let _ = ($($arg),*);
    }};
}

fn text(text: &CStr) -> *const ffi::c_char {
    text.as_char_ptr()
}

/// Traces a packet that was handed to the IP layer.
#[inline(always)]
pub fn send(packet: impl FnOnce() -> Packet) {
    if is_on!(__tracepoint_ferroce_send) {
        emit_send(packet);
    }
}

#[cold]
#[inline(never)]
fn emit_send(packet: impl FnOnce() -> Packet) {
    let packet = packet();
    emit!(rust_do_trace_ferroce_send(
        text(packet.device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
    ));
}

/// Traces a received packet for a queue pair.
#[inline(always)]
pub fn receive(packet: impl FnOnce() -> Packet) {
    if is_on!(__tracepoint_ferroce_receive) {
        emit_receive(packet);
    }
}

#[cold]
#[inline(never)]
fn emit_receive(packet: impl FnOnce() -> Packet) {
    let packet = packet();
    emit!(rust_do_trace_ferroce_receive(
        text(packet.device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
    ));
}

/// Returns whether the tracepoint of acknowledgments is enabled.
#[inline(always)]
pub fn ack_is_on() -> bool {
    is_on!(__tracepoint_ferroce_ack)
}

/// Traces an acknowledgment that was sent or received.
#[inline(always)]
pub fn ack(ack: impl FnOnce() -> Ack) {
    if ack_is_on() {
        emit_ack(ack);
    }
}

#[cold]
#[inline(never)]
fn emit_ack(ack: impl FnOnce() -> Ack) {
    let ack = ack();
    emit!(rust_do_trace_ferroce_ack(
        text(ack.device.as_c_str()),
        ack.qpn,
        ack.sent,
        ack.psn,
        ack.syndrome,
        ack.msn,
    ));
}

/// Traces a send half that retransmits, or gives up.
#[inline(always)]
pub fn retry(retry: impl FnOnce() -> Retry) {
    if is_on!(__tracepoint_ferroce_retry) {
        emit_retry(retry);
    }
}

#[cold]
#[inline(never)]
fn emit_retry(retry: impl FnOnce() -> Retry) {
    let retry = retry();
    emit!(rust_do_trace_ferroce_retry(
        text(retry.device.as_c_str()),
        retry.qpn,
        retry.psn,
        retry.left,
        text(retry.reason),
    ));
}

/// Returns whether the tracepoint of trains is enabled, for callers that must keep the fields.
#[inline(always)]
pub fn train_is_on() -> bool {
    is_on!(__tracepoint_ferroce_train)
}

/// Traces a train that was handed to the IP layer, which may not have accepted it.
#[inline(always)]
pub fn train(train: impl FnOnce() -> Train) {
    if train_is_on() {
        emit_train(train);
    }
}

#[cold]
#[inline(never)]
fn emit_train(train: impl FnOnce() -> Train) {
    let train = train();
    emit!(rust_do_trace_ferroce_train(
        text(train.device.as_c_str()),
        train.qpn,
        train.receive,
        train.packets,
        train.bytes,
        text(train.result),
    ));
}

/// Returns whether the tracepoint of drops is enabled, for callers that must keep the fields.
#[inline(always)]
pub fn drop_is_on() -> bool {
    is_on!(__tracepoint_ferroce_drop)
}

/// Traces a dropped packet, with the reason.
#[inline(always)]
pub fn drop(drop: impl FnOnce() -> (&'static CStr, Packet)) {
    if drop_is_on() {
        emit_drop(drop);
    }
}

#[cold]
#[inline(never)]
fn emit_drop(drop: impl FnOnce() -> (&'static CStr, Packet)) {
    let (reason, packet) = drop();
    emit!(rust_do_trace_ferroce_drop(
        text(packet.device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
        text(reason),
    ));
}
