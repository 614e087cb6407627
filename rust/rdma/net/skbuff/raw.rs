// SPDX-License-Identifier: GPL-2.0

//! Accesses to a `struct sk_buff` that are made for every packet. They are written in Rust, because
//! a helper costs a call each. Those that C has as inline functions have the same names.

use crate::bindings;
use core::ptr::{
    null_mut,
    NonNull, //
};

/// Returns the next packet of a list.
///
/// # Safety
///
/// `skb` must be alive.
#[inline]
pub(super) unsafe fn next(skb: *const bindings::sk_buff) -> *mut bindings::sk_buff {
    // SAFETY: By the requirement of this function. All links have this type.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

/// Sets the next packet of a list.
///
/// # Safety
///
/// `skb` must be alive, and no one else may use its link.
#[inline]
pub(super) unsafe fn set_next(skb: *mut bindings::sk_buff, next: *mut bindings::sk_buff) {
    // SAFETY: By the requirement of this function.
    unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next = next };
}

/// Returns the address of the net device's pointer.
///
/// # Safety
///
/// `skb` must be alive.
#[inline]
pub(in crate::net) unsafe fn dev(skb: *mut bindings::sk_buff) -> *mut *mut bindings::net_device {
    // SAFETY: By the requirement of this function.
    unsafe {
        &raw mut (*skb)
            .__bindgen_anon_1
            .__bindgen_anon_1
            .__bindgen_anon_1
            .dev
    }
}

/// Removes the first packet of a list.
///
/// # Safety
///
/// `list` must be null, or a packet of which no one else uses the link.
#[inline]
pub(super) unsafe fn take_first(
    list: &mut *mut bindings::sk_buff,
) -> Option<NonNull<bindings::sk_buff>> {
    let first = NonNull::new(*list)?;
    // SAFETY: By the requirement of this function.
    unsafe {
        *list = next(first.as_ptr());
        set_next(first.as_ptr(), null_mut());
    }
    Some(first)
}

/// Returns whether the data is shared with a clone.
///
/// # Safety
///
/// `skb` must be alive.
#[inline]
pub(super) unsafe fn skb_cloned(skb: *const bindings::sk_buff) -> bool {
    // SAFETY: By the requirement of this function. Only a packet with the flag can share its data,
    // so the function is rarely called.
    unsafe { (*skb).cloned() != 0 && bindings::skb_cloned(skb) != 0 }
}

/// Leaves `n` bytes of an empty packet in front of its data.
///
/// # Safety
///
/// `skb` must be owned, empty, and have that much room.
#[inline]
pub(super) unsafe fn skb_reserve(skb: *mut bindings::sk_buff, n: usize) {
    // SAFETY: By the requirement of this function.
    // CAST: The room is a `u32`.
    unsafe {
        (*skb).data = (*skb).data.add(n);
        (*skb).tail = (*skb).tail.wrapping_add(n as u32);
    }
}

/// Removes `n` bytes from the front.
///
/// # Safety
///
/// `skb` must be owned, and its linear part have that many bytes.
#[inline]
pub(super) unsafe fn __skb_pull(skb: *mut bindings::sk_buff, n: usize) {
    // SAFETY: By the requirement of this function.
    // CAST: The length of the linear part is a `u32`.
    unsafe {
        (*skb).data = (*skb).data.add(n);
        (*skb).len = (*skb).len.wrapping_sub(n as u32);
    }
}

/// Sets the offsets of the headers of a packet that begins with an IP header of `ip_len` bytes.
///
/// # Safety
///
/// `skb` must be owned, and begin with that header, the end of which must be less than 64 KiB
/// behind `head`.
#[inline]
pub(super) unsafe fn set_headers(skb: *mut bindings::sk_buff, ip_len: u16) {
    // SAFETY: By the requirement of this function. `data` is behind `head`, in the same buffer.
    unsafe {
        // CAST: By the requirement of this function.
        let at = (*skb).data.offset_from((*skb).head) as u16;
        let headers = (*skb).__bindgen_anon_4.headers.as_mut();
        headers.network_header = at;
        headers.transport_header = at.wrapping_add(ip_len);
    }
}

/// Lets IP send a packet in fragments although its header forbids that. If a train is split, each
/// packet inherits this.
///
/// # Safety
///
/// `skb` must be owned, and be given to the output function of that IP version next.
#[inline]
pub(super) unsafe fn allow_fragments(skb: *mut bindings::sk_buff, is_ipv4: bool) {
    // SAFETY: By the requirement of this function. IPv4 keeps its parameters in `cb`, which has
    // room for them and is aligned to eight bytes.
    unsafe {
        (*skb).__bindgen_anon_4.headers.as_mut().set_ignore_df(1);
        if is_ipv4 {
            // Fragments keep "don't fragment", so that the receiver restores it.
            (*(&raw mut (*skb).cb).cast::<bindings::inet_skb_parm>()).flags =
                bindings::RUST_CONST_HELPER_IPSKB_FRAG_PMTU;
        }
    }
}
