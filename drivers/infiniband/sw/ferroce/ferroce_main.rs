// SPDX-License-Identifier: GPL-2.0

//! ferroce: RDMA over Converged Ethernet, version 2, in software.
//!
//! This crate is the driver: it connects the protocol (crate `roce`, pure) to the kernel (crate
//! `rdma`, the abstractions). It holds locks, moves data and decides nothing about the protocol.
//!
//! The path of a SEND, from the doorbell to the wire: [`qp`] `post_send` -> [`qp::send`] `run` ->
//! `qp::sq` `pull` -> `roce::requester` `poll_transmit` -> [`qp::path`] `build` and `transmit`. The
//! path of a received request: [`receive`] -> [`qp::recv`] `handle` -> `roce::responder`
//! `on_request` -> [`cq`] `push`.

#![forbid(unsafe_code)]

mod ah;
mod clock;
mod counters;
mod cq;
mod device;
mod doorbell;
mod errno;
mod few;
mod gids;
mod guard;
mod limits;
mod link;
mod mcast;
mod mr;
mod owner;
mod packet;
mod pd;
mod pool;
mod port;
mod qp;
mod queue;
mod receive;
mod sockets;
mod srq;
mod traces;
mod ucontext;
mod verbs;
mod work;

#[cfg(CONFIG_KUNIT = "y")]
mod modify_qp_kunit;

use kernel::prelude::*;
use rdma::{
    ib::{
        device::Devices,
        link::LinkRegistration, //
    },
    modules::ModuleNotifier,
    net::{
        notifier::NetdevNotifier,
        pernet::NetRegistration,
        tx_in_flight, //
    }, //
};

module! {
    type: Module,
    name: "ferroce",
    authors: ["The ferroce developers"],
    description: "Soft RoCE v2 in Rust",
    license: "GPL",
    alias: ["rdma-link-ferroce"],
    params: {
        rxe_compat: bool {
            default: false,
            description: "Also serve `rdma link add ... type rxe`",
        },
        gid_table: u32 {
            default: crate::port::DEFAULT_GID_TABLE,
            description: "Number of GID table entries of a device, 1 to 4096",
        },
        check_local_icrc: bool {
            default: false,
            description: "Also check the ICRC of packets that have not left this kernel",
        },
        ecn: bool {
            default: true,
            description: "Send ECN-capable packets and react to congestion (RC)",
        },
    },
}

/// The state of the module. Fields are dropped in declaration order: first the link types, so that
/// no device is added, then the devices, then the parts that they use.
#[pin_data]
struct Module {
    _compat: Option<Pin<KBox<LinkRegistration<link::CompatLink>>>>,
    #[pin]
    _link: LinkRegistration<link::FerroceLink>,
    _devices: Devices<device::Ferroce>,
    #[pin]
    _notifier: NetdevNotifier<link::FerroceLink>,
    #[pin]
    _net: NetRegistration,
    #[pin]
    _guard: ModuleNotifier<guard::Guard>,
    _cleanup: Cleanup,
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            port::check_gid_table()?;
            let cleanup = init()?;
            Ok(try_pin_init!(Self {
                _cleanup: cleanup,
                // From here on, rdma_rxe cannot be loaded: check that it is not loaded already.
                _guard <- ModuleNotifier::register(),
                _: { guard::check()? },
                _net <- NetRegistration::register(),
                _notifier <- NetdevNotifier::register(),
                _devices: Devices::new(),
                _link <- LinkRegistration::register(),
                _compat: if *module_parameters::rxe_compat.value_ref() {
                    Some(KBox::pin_init(LinkRegistration::register(), GFP_KERNEL)?)
                } else {
                    None
                },
            }))
        })
    }
}

/// Constructs tables and queues. Called once, before anything else of the driver runs.
fn init() -> Result<Cleanup> {
    let cleanup = Cleanup;
    work::init()?;
    qp::init()?;
    cq::init()?;
    srq::init()?;
    mr::init()?;
    ah::init()?;
    owner::init()?;
    gids::init()?;
    mcast::init()?;
    sockets::init()?;
    link::init()?;
    packet::init()?;
    Ok(cleanup)
}

/// Destroys the work queues and waits for packets in the network stack. Dropped when the tables are
/// no longer used: a remaining work item or packet would run code of an unloaded module.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        work::shut_down();
        owner::shut_down();
        tx_in_flight::wait_all_returned(|accounts| {
            pr_warn!(
                "waiting for packets of {accounts} queue pair halves: delete the qdiscs or net \
                 devices that hold them\n"
            );
        });
        packet::shut_down();
    }
}
