// SPDX-License-Identifier: GPL-2.0

//! UDP sockets whose packets go to a handler in the kernel.
//!
//! C header: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h)

use super::{
    namespace::{
        Namespace,
        NetId,
        REGISTERED, //
    },
    skbuff::raw,
    NetDevice,
    SkBuffList, //
};
use crate::{
    bindings,
    list,
    sync::Global, //
};
use core::ptr::{
    null_mut,
    NonNull, //
};
use kernel::{
    error::to_result,
    ffi,
    new_mutex,
    prelude::*,
    sync::{
        atomic::Acquire,
        Mutex, //
    }, //
};

/// The version of IP that a socket is for.
///
/// # Examples
///
/// ```
/// use rdma::net::Family;
///
/// fn header_len(family: Family) -> usize {
///     match family {
///         Family::V4 => 20,
///         Family::V6 => 40,
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, and nothing of IPv4.
    V6,
}

/// Handles the packets of a [`UdpTunnel`].
///
/// # Examples
///
/// ```
/// # use rdma::net::{NetDevice, SkBuffList, UdpReceive};
/// struct Receiver;
///
/// impl UdpReceive for Receiver {
///     fn receive(mut packets: SkBuffList, netdev: &NetDevice) {
///         while let Some(packet) = packets.pop() {
///             // Look up the queue pair that the packet names, and handle it.
///             packet.consume();
///         }
///     }
/// }
/// ```
pub trait UdpReceive: 'static {
    /// Takes packets that were received on `dev`: several if they are a [`Train`](super::Train),
    /// none if there was no memory to take one apart. Called with bottom halves off: in softirq
    /// context, or in a process that writes to a tun device.
    ///
    /// The data of a packet begins behind the UDP header, and its
    /// [`received_headers`](super::SkBuff::received_headers) can be read. The IP and UDP checksums
    /// have been verified, and the packet is trimmed to the length in both headers. Nothing else is
    /// known: the packet may not be linear, and no byte of it can be trusted.
    ///
    /// The packets may be kept for longer than the call, but `dev` may not. The packets do not
    /// refer to it.
    fn receive(packets: SkBuffList, dev: &NetDevice);
}

/// A UDP socket, bound to a port on all addresses of a namespace.
///
/// It does not hold the namespace: the socket is closed when this is dropped, when the namespace
/// ends, or when the [`NetRegistration`](super::NetRegistration) is dropped, whichever is first.
/// Dropping this may sleep; afterwards no packet of the socket is passed on any more.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::net::{Family, Namespace, NetDevice, UdpReceive, UdpTunnel};
/// fn open<T: UdpReceive>(netdev: &NetDevice) -> Result<UdpTunnel> {
///     let namespace = Namespace::of(netdev).ok_or(ENODEV)?;
///     UdpTunnel::open::<T>(&namespace, Family::V4, 4791)
/// }
/// ```
pub struct UdpTunnel {
    id: u64,
}

impl UdpTunnel {
    /// Opens a socket in a namespace. Its packets go to `T`. Sleeps.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if there is no [`NetRegistration`](super::NetRegistration).
    /// - `EAFNOSUPPORT` if the kernel was built or booted without this version of IP.
    /// - `EADDRINUSE` if another socket has the port.
    /// - `ENOMEM` and other errors of opening and binding a socket.
    pub fn open<T: UdpReceive>(net: &Namespace, family: Family, port: u16) -> Result<Self> {
        let mut tunnels = TUNNELS.get().ok_or(ENODEV)?.lock();

        // Unregistering clears this before the exit handlers take the lock. So either they find
        // the new socket, or this finds the flag cleared.
        if !REGISTERED.load(Acquire) {
            return Err(ENODEV);
        }
        let id = tunnels.last_id.wrapping_add(1);
        let socket = Socket::open::<T>(id, net, family, port)?;
        tunnels.last_id = id;
        list::push(&mut tunnels.sockets, socket, GFP_KERNEL)?;
        Ok(Self { id })
    }
}

impl Drop for UdpTunnel {
    fn drop(&mut self) {
        close(|socket| socket.id == self.id);
    }
}

/// The open sockets of the module.
static TUNNELS: Global<Mutex<Tunnels>> = Global::new();

/// The open sockets.
///
/// A socket is closed under the lock. The exit handler of its namespace takes the lock, too, so the
/// namespace is not freed meanwhile.
struct Tunnels {
    /// The number of the last socket.
    last_id: u64,
    sockets: KVec<Socket>,
}

/// Closes sockets. Sleeps.
fn close(which: impl Fn(&Socket) -> bool) {
    if let Some(tunnels) = TUNNELS.get() {
        list::retain(&mut tunnels.lock().sockets, |socket| !which(socket));
    }
}

/// Initialises the list of open sockets. Called once.
///
/// # Errors
///
/// `EBUSY` if this was called before.
pub(super) fn init() -> Result {
    let tunnels = Tunnels {
        last_id: 0,
        sockets: KVec::new(),
    };
    TUNNELS.init(new_mutex!(tunnels, "rdma::TUNNELS"))
}

/// Closes the sockets of a namespace. Sleeps.
pub(super) fn close_all(net: NetId) {
    close(|socket| socket.net == net);
}

/// A bound socket.
///
/// # Invariants
///
/// `sk` points to the `struct sock` of a kernel socket that this value owns. Its namespace, `net`,
/// has not been freed: a socket is in [`TUNNELS`], or the opener has a reference to the namespace.
struct Socket {
    id: u64,
    net: NetId,
    sk: NonNull<bindings::sock>,
}

// SAFETY: A socket may be released by any thread.
unsafe impl Send for Socket {}

impl Socket {
    /// Opens a socket; as [`UdpTunnel::open`].
    fn open<T: UdpReceive>(id: u64, net: &Namespace, family: Family, port: u16) -> Result<Self> {
        let mut config: bindings::udp_port_cfg = pin_init::zeroed();

        config.local_udp_port = port.to_be();
        config.family = match family {
            // CAST: The values are 2 and 10.
            Family::V4 => bindings::AF_INET as u8,
            Family::V6 => {
                // The address family is missing if IPv6 was disabled at boot, too, but the kernel
                // would call modprobe to find that out.
                // SAFETY: No requirement.
                if !unsafe { bindings::ipv6_mod_enabled() } {
                    return Err(EAFNOSUPPORT);
                }
                config.set_ipv6_v6only(1);
                bindings::AF_INET6 as u8
            }
        };

        let mut socket: *mut bindings::socket = null_mut();
        // SAFETY: The namespace is alive, `config` is initialised, `socket` is valid for write.
        to_result(unsafe {
            bindings::udp_sock_create(net.as_raw(), &raw mut config, &raw mut socket)
        })?;
        // SAFETY: The socket was just created.
        let sk = NonNull::new(unsafe { (*socket).sk }).ok_or(EINVAL)?;
        // INVARIANT: The socket is owned by this value from here on. It has no `file`.
        let this = Self {
            id,
            net: net.id(),
            sk,
        };

        // SAFETY: The socket is new and not in use yet, so none of its locks is held.
        unsafe { reclassify(sk.as_ptr()) };

        let mut config: bindings::udp_tunnel_sock_cfg = pin_init::zeroed();
        // Any value but 0 makes UDP call `encap_rcv`.
        config.encap_type = 1;
        config.encap_rcv = Some(receive_callback::<T>);
        // SAFETY: The namespace and the socket are alive, `config` is initialised. The callback
        // stays until `drop` has released the socket and waited for it.
        unsafe { bindings::setup_udp_tunnel_sock(net.as_raw(), sk.as_ptr(), &raw mut config) };
        // SAFETY: The socket is alive, and its callback takes trains.
        unsafe { bindings::udp_allow_gso(sk.as_ptr()) };

        Ok(this)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A packet may keep the socket, and be delivered to it long after its release: it may wait
        // for a verdict (NFQUEUE) after early demux has found the socket. So clear the type, too.
        //
        // SAFETY: By the type invariant this value owns the socket, and the namespace has not been
        // freed. Packets are delivered under RCU, and UDP calls the callback only if it sees a type
        // there. So afterwards the callback neither runs nor will run.
        unsafe {
            bindings::udp_disable_encap(self.sk.as_ptr());
            bindings::udp_tunnel_sock_release(self.sk.as_ptr());
            bindings::synchronize_net();
        }
    }
}

/// The C callback. Always returns 0: the packet is consumed.
///
/// It uses no user data: that is cleared while the callback may still run.
///
/// # Safety
///
/// `skb` must be a packet that the caller gives away, with `data` at the UDP header. Its `dev` must
/// be non-null and must not be freed during the call.
unsafe extern "C" fn receive_callback<T: UdpReceive>(
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> ffi::c_int {
    // SAFETY: The packet is alive.
    let dev = unsafe { *raw::dev(skb) };
    // SAFETY: The caller gives the packet away, as UDP passes it on.
    let packets = unsafe { SkBuffList::from_received(sk, skb) };

    // SAFETY: By the requirement of this function. UDP itself uses the device to find the socket.
    T::receive(packets, unsafe { NetDevice::from_raw(dev) });
    0
}

/// Sets separate lock classes for the locks of a socket.
///
/// By default, lockdep distinguishes sockets only by family. Then a lock that another subsystem
/// holds while it calls the RDMA core, and takes in callbacks of its own sockets, looks like a
/// deadlock. The families share the classes, because the locks of two sockets are never held
/// together.
///
/// # Safety
///
/// `sk` must be a socket that is not in use yet.
#[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
unsafe fn reclassify(sk: *mut bindings::sock) {
    // The first call takes a reference to this module, for the sake of the keys, which would keep
    // it from being unloaded. But every socket is closed before that, so the reference is given
    // back.
    //
    // SAFETY: The socket is not in use yet; names and keys are static.
    unsafe {
        bindings::sock_lock_init_class_and_name(
            sk,
            c"slock-RDMA-UDP".as_char_ptr(),
            kernel::static_lock_class!().as_ptr(),
            c"sk_lock-RDMA-UDP".as_char_ptr(),
            kernel::static_lock_class!().as_ptr(),
        );
        bindings::sk_owner_put(sk);
        bindings::sk_owner_clear(sk);
    }
}

/// Does nothing without lockdep.
///
/// # Safety
///
/// None.
#[cfg(not(CONFIG_DEBUG_LOCK_ALLOC))]
unsafe fn reclassify(_sk: *mut bindings::sock) {}
