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

#[doc(hidden)]
mod bindings;

use kernel::{
    ffi,
    prelude::*, //
};
use rdma::ib::DeviceName;

/// The fields of a packet in tracepoints, which also take the name of the device.
#[derive(Clone, Copy)]
pub struct Packet {
    /// The number of the queue pair, or that in the packet if there is no such queue pair.
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

/// Defines the function of a tracepoint. It takes a closure that returns the fields, and calls the
/// C function out of line.
macro_rules! tracepoint {
    (
        $(#[$doc:meta])*
        $name:ident: $tracepoint:ident,
        $function:ident(|$fields:tt: $ty:ty| $($arg:expr),* $(,)?)
    ) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(fields: impl FnOnce() -> $ty) {
            #[cold]
            #[inline(never)]
            fn emit(fields: impl FnOnce() -> $ty) {
                let $fields = fields();
                #[cfg(CONFIG_TRACEPOINTS)]
                // SAFETY: Texts are C strings, valid for the call; all other arguments are numbers.
                unsafe {
                    bindings::$function($($arg),*)
                };
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = ($($arg),*);
            }

            if is_on!($tracepoint) {
                emit(fields);
            }
        }
    };
}

fn text(text: &CStr) -> *const ffi::c_char {
    text.as_char_ptr()
}

tracepoint!(
    /// Traces a packet that was handed to the IP layer or added to a train.
    send: __tracepoint_ferroce_send,
    rust_do_trace_ferroce_send(
        |(device, packet): (DeviceName, Packet)| text(device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
    )
);

tracepoint!(
    /// Traces a received packet for a queue pair.
    receive: __tracepoint_ferroce_receive,
    rust_do_trace_ferroce_receive(
        |(device, packet): (DeviceName, Packet)| text(device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
    )
);

tracepoint!(
    /// Traces an acknowledgment that was sent or received.
    ack: __tracepoint_ferroce_ack,
    rust_do_trace_ferroce_ack(
        |ack: Ack| text(ack.device.as_c_str()),
        ack.qpn,
        ack.sent,
        ack.psn,
        ack.syndrome,
        ack.msn,
    )
);

tracepoint!(
    /// Traces a send half that retransmits, or gives up.
    retry: __tracepoint_ferroce_retry,
    rust_do_trace_ferroce_retry(
        |retry: Retry| text(retry.device.as_c_str()),
        retry.qpn,
        retry.psn,
        retry.left,
        text(retry.reason),
    )
);

tracepoint!(
    /// Traces a train that was handed to the IP layer, which may not have accepted it.
    train: __tracepoint_ferroce_train,
    rust_do_trace_ferroce_train(
        |train: Train| text(train.device.as_c_str()),
        train.qpn,
        train.receive,
        train.packets,
        train.bytes,
        text(train.result),
    )
);

tracepoint!(
    /// Traces a dropped packet, with the reason. The name of the device is empty if there is none.
    drop: __tracepoint_ferroce_drop,
    rust_do_trace_ferroce_drop(
        |(device, packet, reason): (DeviceName, Packet, &'static CStr)| text(device.as_c_str()),
        packet.qpn,
        packet.opcode,
        packet.psn,
        packet.len,
        text(reason),
    )
);

/// Returns whether the tracepoint of acknowledgments is enabled.
#[inline(always)]
pub fn ack_is_on() -> bool {
    is_on!(__tracepoint_ferroce_ack)
}

/// Returns whether the tracepoint of trains is enabled, for callers that must keep the fields.
#[inline(always)]
pub fn train_is_on() -> bool {
    is_on!(__tracepoint_ferroce_train)
}

/// Returns whether the tracepoint of drops is enabled, for callers that must keep the fields.
#[inline(always)]
pub fn drop_is_on() -> bool {
    is_on!(__tracepoint_ferroce_drop)
}
