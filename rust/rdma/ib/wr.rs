// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel consumers.

use super::{
    ah::Ah,
    enums::{
        SendFlags,
        WrOpcode, //
    },
    Access,
    Driver, //
};
use crate::bindings;
use core::marker::PhantomData;
use kernel::container_of;

/// A chain of send work requests.
///
/// # Invariants
///
/// `current` and `next` are null or valid for `'a`, and `datagram` is true if they were posted to a
/// datagram queue pair.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use rdma::ib::{wr::{SendList, SendWr}, Driver};
/// /// Posts requests. The core learns from the list which one has failed.
/// fn post<'a, D: Driver>(
///     list: &mut SendList<'a, D>,
///     mut post_one: impl FnMut(SendWr<'a, D>) -> Result,
/// ) -> Result {
///     while let Some(wr) = list.next_wr() {
///         post_one(wr)?;
///     }
///     Ok(())
/// }
/// ```
pub struct SendList<'a, D: Driver> {
    current: *const bindings::ib_send_wr,
    next: *const bindings::ib_send_wr,
    datagram: bool,
    _p: PhantomData<(&'a bindings::ib_send_wr, D)>,
}

impl<'a, D: Driver> SendList<'a, D> {
    /// Wraps a chain.
    ///
    /// # Safety
    ///
    /// The chain must be valid for `'a` and posted to a queue pair of a device of `D`, which is of
    /// a datagram type if and only if `datagram` is set.
    pub(super) unsafe fn new(wr: *const bindings::ib_send_wr, datagram: bool) -> Self {
        Self {
            current: wr,
            next: wr,
            datagram,
            _p: PhantomData,
        }
    }

    /// Returns `true` if there is nothing left.
    pub fn is_empty(&self) -> bool {
        self.next.is_null()
    }

    /// Returns the request that [`SendList::next_wr`] returned last, or the first one.
    pub(super) fn current(&self) -> *const bindings::ib_send_wr {
        self.current
    }

    /// Moves to the next request and returns it, or `None` at the end of the chain.
    pub fn next_wr(&mut self) -> Option<SendWr<'a, D>> {
        // SAFETY: Valid by the type invariant.
        let wr = unsafe { self.next.as_ref() }?;
        self.current = self.next;
        self.next = wr.next;
        // INVARIANT: As for the list.
        Some(SendWr {
            wr,
            datagram: self.datagram,
            _p: PhantomData,
        })
    }
}

/// A send work request.
///
/// # Invariants
///
/// `wr` was posted to a queue pair of a datagram type if and only if `datagram` is set.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{enums::WrOpcode, wr::SendWr, Driver};
/// fn is_write<D: Driver>(wr: &SendWr<'_, D>) -> bool {
///     wr.opcode() == WrOpcode::RDMA_WRITE
/// }
/// ```
pub struct SendWr<'a, D: Driver> {
    wr: &'a bindings::ib_send_wr,
    datagram: bool,
    _p: PhantomData<D>,
}

impl<D: Driver> SendWr<'_, D> {
    /// Returns the consumer's cookie.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both members of the union are 64 bits wide.
        unsafe { *self.wr.__bindgen_anon_1.wr_id.as_ref() }
    }

    /// Returns the operation.
    pub fn opcode(&self) -> WrOpcode {
        WrOpcode::from_raw(self.wr.opcode)
    }

    /// Returns the flags.
    pub fn flags(&self) -> SendFlags {
        // CAST: Flags, which are signed in C.
        SendFlags::from_raw(self.wr.send_flags as u32)
    }

    /// Returns the immediate data as it goes on the wire, or the key to invalidate in host order.
    pub fn ex(&self) -> [u8; 4] {
        // SAFETY: Both members of the union are 32 bits wide.
        unsafe { self.wr.ex.imm_data.as_ref() }.to_ne_bytes()
    }

    /// Returns the gather list.
    pub fn sges(&self) -> Sges<'_> {
        // SAFETY: The consumer's list has `num_sge` entries.
        unsafe { Sges::new(self.wr.sg_list, self.wr.num_sge) }
    }

    /// Returns the arguments of the operation.
    pub fn args(&self) -> Args<'_, D> {
        let wr = core::ptr::from_ref(self.wr);
        match self.wr.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND | bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
                if self.datagram =>
            {
                // SAFETY: By the type invariant the request was posted to a datagram queue pair,
                // and it is a SEND, so it is embedded in an `ib_ud_wr`, by the contract of
                // `ib_post_send()`.
                let ud = unsafe { &*container_of!(wr, bindings::ib_ud_wr, wr) };
                if ud.ah.is_null() {
                    return Args::None;
                }
                Args::Datagram {
                    // SAFETY: The consumer keeps the handle until the request completes, and it is
                    // of the same device.
                    ah: unsafe { Ah::from_raw(ud.ah) },
                    qpn: ud.remote_qpn,
                    qkey: ud.remote_qkey,
                }
            }
            // A drain posts an RDMA WRITE to a queue pair of any type.
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ
                if !self.datagram =>
            {
                // SAFETY: A request with one of these opcodes is embedded in an `ib_rdma_wr`, by
                // the contract of `ib_post_send()`.
                let rdma = unsafe { &*container_of!(wr, bindings::ib_rdma_wr, wr) };
                Args::Rdma {
                    addr: rdma.remote_addr,
                    rkey: rdma.rkey,
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP
            | bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                // SAFETY: As for the operations above, in an `ib_atomic_wr`.
                let atomic = unsafe { &*container_of!(wr, bindings::ib_atomic_wr, wr) };
                Args::Atomic {
                    addr: atomic.remote_addr,
                    compare_add: atomic.compare_add,
                    swap: atomic.swap,
                    rkey: atomic.rkey,
                }
            }
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: As for the operations above, in an `ib_reg_wr`.
                let reg = unsafe { &*container_of!(wr, bindings::ib_reg_wr, wr) };
                if reg.mr.is_null() {
                    return Args::None;
                }
                // SAFETY: The consumer keeps the region until the request completes.
                let (iova, mr_key) = unsafe { ((*reg.mr).iova, (*reg.mr).lkey) };
                Args::Register {
                    iova,
                    mr_key,
                    key: reg.key,
                    // CAST: A mask of flags.
                    access: Access::from_raw(reg.access as u32),
                }
            }
            _ => Args::None,
        }
    }
}

/// The arguments of a send work request, besides its gather list.
///
/// # Examples
///
/// ```
/// # use rdma::ib::{wr::Args, Driver};
/// /// Returns the remote address of a request, if it has one.
/// fn remote_addr<D: Driver>(args: &Args<'_, D>) -> Option<u64> {
///     match args {
///         Args::Rdma { addr, .. } | Args::Atomic { addr, .. } => Some(*addr),
///         _ => None,
///     }
/// }
/// ```
pub enum Args<'a, D: Driver> {
    /// A SEND on a queue pair of a datagram type.
    Datagram {
        /// The address handle.
        ah: &'a Ah<D>,
        /// The destination.
        qpn: u32,
        /// Its Q_Key.
        qkey: u32,
    },
    /// A WRITE or a READ on a queue pair of another type.
    Rdma {
        /// The remote address.
        addr: u64,
        /// The remote key.
        rkey: u32,
    },
    /// A compare and swap, or a fetch and add.
    Atomic {
        /// The remote address.
        addr: u64,
        /// The value to compare with, or to add.
        compare_add: u64,
        /// The value to store. Compare and swap only.
        swap: u64,
        /// The remote key.
        rkey: u32,
    },
    /// A registration of mapped memory.
    Register {
        /// The address that requests use for the first byte.
        iova: u64,
        /// The present key of the region.
        mr_key: u32,
        /// The key that the region shall have.
        key: u32,
        /// The access that it allows.
        access: Access,
    },
    /// Another operation, or one whose address handle or region is missing.
    None,
}

/// A chain of receive work requests.
///
/// # Invariants
///
/// `current` and `next` are null or valid for `'a`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use rdma::ib::wr::RecvList;
///
/// const MAX_SGE: usize = 4;
///
/// /// Adds the cookies of requests to a queue.
/// fn post(queue: &mut KVec<u64>, list: &mut RecvList<'_>) -> Result {
///     while let Some((wr_id, sges)) = list.next_wr() {
///         if sges.len() > MAX_SGE {
///             return Err(EINVAL);
///         }
///         queue.push(wr_id, GFP_ATOMIC)?;
///     }
///     Ok(())
/// }
/// ```
pub struct RecvList<'a> {
    current: *const bindings::ib_recv_wr,
    next: *const bindings::ib_recv_wr,
    _p: PhantomData<&'a bindings::ib_recv_wr>,
}

impl<'a> RecvList<'a> {
    /// Wraps a chain.
    ///
    /// # Safety
    ///
    /// The chain must be valid for `'a`.
    pub(super) unsafe fn new(wr: *const bindings::ib_recv_wr) -> Self {
        Self {
            current: wr,
            next: wr,
            _p: PhantomData,
        }
    }

    /// Returns the request that [`RecvList::next_wr`] returned last, or the first one.
    pub(super) fn current(&self) -> *const bindings::ib_recv_wr {
        self.current
    }

    /// Moves to the next request and returns its cookie and scatter list, or `None` at the end.
    pub fn next_wr(&mut self) -> Option<(u64, Sges<'a>)> {
        // SAFETY: Valid by the type invariant.
        let wr = unsafe { self.next.as_ref() }?;
        self.current = self.next;
        self.next = wr.next;
        // SAFETY: Both members of the union are 64 bits wide; the list has `num_sge` entries.
        unsafe {
            Some((
                *wr.__bindgen_anon_1.wr_id.as_ref(),
                Sges::new(wr.sg_list, wr.num_sge),
            ))
        }
    }
}

/// A gather or scatter list.
///
/// # Invariants
///
/// `ptr` has `len` entries, valid for `'a`.
///
/// # Examples
///
/// ```
/// use rdma::ib::wr::Sges;
///
/// /// Returns the number of bytes in a list.
/// fn total_len(sges: Sges<'_>) -> u64 {
///     (0..sges.len())
///         .filter_map(|index| sges.get(index))
///         .map(|(_addr, len, _lkey)| u64::from(len))
///         .sum()
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Sges<'a> {
    ptr: *const bindings::ib_sge,
    len: usize,
    _p: PhantomData<&'a bindings::ib_sge>,
}

impl Sges<'_> {
    /// Wraps the SGEs of a work request.
    ///
    /// # Safety
    ///
    /// `ptr` must have `num` entries.
    pub(super) unsafe fn new(ptr: *const bindings::ib_sge, num: i32) -> Self {
        Self {
            ptr,
            len: if ptr.is_null() {
                0
            } else {
                usize::try_from(num).unwrap_or(0)
            },
            _p: PhantomData,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address, the length in bytes and the key of an entry.
    pub fn get(&self, index: usize) -> Option<(u64, u32, u32)> {
        if index >= self.len {
            return None;
        }
        // SAFETY: `index` is below `len`.
        let sge = unsafe { &*self.ptr.add(index) };
        Some((sge.addr, sge.length, sge.lkey))
    }
}
