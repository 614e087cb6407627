// SPDX-License-Identifier: GPL-2.0

//! The operations that a node posts.

use roce::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::Transport,
    wire::{
        Feth,
        GRH_LEN, //
    },
    wr::{
        SendOp,
        SendWr, //
    },
};

use crate::{
    scenario::Scenario,
    Rng, //
};

/// The key of the memory region of either node.
pub const RKEY: Rkey = Rkey::new(0x1234);

/// The address of the first byte of the memory region.
pub const BASE: u64 = 0x7000_0000_1000;

/// Bytes between two areas of the memory region, which no operation may write.
pub const GUARD: usize = 16;

/// The offset in the memory region of the counter to which the peer adds.
pub const COUNTER: usize = GUARD;

/// The size of a word for atomic operations, in bytes.
pub const WORD: usize = 8;

/// An intended error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// No error.
    None,
    /// The operation names a key that the peer does not have.
    BadKey,
    /// The operation names an address outside of the region.
    BadAddress,
    /// The local memory disappears when a packet is about to be sent, or has arrived, for the
    /// `attempt`th time.
    ///
    /// Later attempts than the first only happen if a packet is lost or taken back.
    Local {
        /// The offset of the packet in the message.
        offset: u32,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// The receive buffers of the peer are too short for the message.
    TooLong,
    /// The operation names a word that is not aligned.
    Unaligned,
}

impl Sabotage {
    /// Returns whether the operation always fails.
    pub fn is_certain(self) -> bool {
        match self {
            Sabotage::None => false,
            Sabotage::Local { attempt, .. } => attempt == 1,
            Sabotage::BadKey | Sabotage::BadAddress | Sabotage::TooLong | Sabotage::Unaligned => {
                true
            }
        }
    }
}

/// An operation, with its memory at the peer and its intended error.
#[derive(Clone, Debug)]
pub struct Op {
    /// The work request. Its `wr_id` determines the payload.
    pub wr: SendWr,
    /// The offset of its area in the memory region of the peer, if it accesses remote memory.
    pub area: usize,
    /// The intended error.
    pub sabotage: Sabotage,
}

impl Op {
    /// Returns whether the operation consumes a receive request of the peer.
    pub fn takes_recv(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::Send | SendOp::SendImm | SendOp::SendInv | SendOp::WriteImm
        )
    }

    /// Returns whether the operation accesses remote memory.
    pub fn is_rdma(&self) -> bool {
        matches!(self.wr.op, SendOp::Write | SendOp::WriteImm) || self.wr.op.has_explicit_response()
    }

    /// Returns whether the operation writes bytes to the memory of the peer.
    pub fn is_write(&self) -> bool {
        matches!(
            self.wr.op,
            SendOp::Write | SendOp::WriteImm | SendOp::AtomicWrite
        )
    }

    /// Returns whether the operation accesses a word of the peer atomically.
    pub fn is_word(&self) -> bool {
        self.wr.op.is_atomic() || self.wr.op == SendOp::AtomicWrite
    }

    /// Returns the payload of the operation, or the data that it reads.
    pub fn payload(&self) -> Vec<u8> {
        crate::pattern::message(self.wr.wr_id, self.wr.length as usize)
    }
}

/// Returns `count` READs or WRITEs of `len` bytes, and the bytes of memory that the peer needs for
/// them.
pub fn transfers(op: SendOp, count: u64, len: u32) -> (Vec<Op>, usize) {
    let area = |index: u64| GUARD + index as usize * (len as usize + GUARD);
    let transfer = |index| Op {
        wr: SendWr {
            wr_id: index + 1,
            op,
            va: BASE + area(index) as u64,
            rkey: RKEY,
            length: len,
            ..SendWr::default()
        },
        area: area(index),
        sabotage: Sabotage::None,
    };
    ((0..count).map(transfer).collect(), area(count))
}

/// Draws the operations of node `node`, and the bytes of memory that its peer needs for them.
pub fn draw(rng: &mut Rng, scenario: &Scenario, node: u64) -> (Vec<Op>, usize) {
    let count = rng.range(1..=scenario.max_ops);
    let saboteur = if rng.chance(scenario.sabotage) {
        rng.range(0..=count - 1)
    } else {
        u64::MAX
    };
    let mut memory = COUNTER + WORD + GUARD;
    let ops = (0..count)
        .map(|index| {
            let mut op = draw_one(rng, scenario, node << 32 | index);
            if index == saboteur {
                op.sabotage = sabotage(rng, scenario, &op);
                match op.sabotage {
                    Sabotage::BadKey => op.wr.rkey = Rkey::new(1),
                    Sabotage::BadAddress => op.wr.va = u64::MAX - 10,
                    Sabotage::Unaligned => op.wr.va = 4,
                    _ => {}
                }
            }
            if op.is_rdma() {
                op.area = memory;
                if op.wr.op == SendOp::FetchAdd {
                    op.area = COUNTER;
                } else if op.is_word() {
                    op.area = memory.next_multiple_of(WORD);
                }
                if op.sabotage != Sabotage::BadAddress {
                    op.wr.va = op.wr.va.wrapping_add(BASE + op.area as u64);
                }
                memory = memory.max(op.area + op.wr.length as usize + GUARD);
            }
            op
        })
        .collect();
    (ops, memory)
}

/// Draws the sizes of the receive work requests for the operations of a peer.
pub fn recv_sizes(rng: &mut Rng, scenario: &Scenario, peer_ops: &[Op]) -> Vec<u32> {
    let longest = peer_ops.iter().map(|op| op.wr.length).max().unwrap_or(0);
    peer_ops
        .iter()
        .filter(|op| op.takes_recv())
        .map(|op| match scenario.transport {
            Transport::Rc if op.sabotage == Sabotage::TooLong => op.wr.length - 1,
            Transport::Rc => op.wr.length + rng.range(0..=64) as u32,
            // Any message may get any receive request.
            Transport::Uc => longest,
            Transport::Ud => longest + GRH_LEN,
        })
        .collect()
}

fn draw_one(rng: &mut Rng, scenario: &Scenario, id: u64) -> Op {
    let op = rng.pick(match scenario.transport {
        Transport::Rc => &[
            SendOp::Send,
            SendOp::SendImm,
            SendOp::Write,
            SendOp::WriteImm,
            SendOp::Read,
            SendOp::SendInv,
            SendOp::CompareSwap,
            SendOp::FetchAdd,
            SendOp::FetchAdd,
            SendOp::AtomicWrite,
            SendOp::Flush,
            SendOp::LocalInv,
            SendOp::BindMw,
        ][..],
        Transport::Uc => &[
            SendOp::Send,
            SendOp::SendImm,
            SendOp::Write,
            SendOp::WriteImm,
            SendOp::LocalInv,
            SendOp::BindMw,
        ],
        Transport::Ud => &[SendOp::Send, SendOp::SendImm],
    });
    let length = length(rng, scenario);
    // Messages of UC and UD may be lost, so those that arrive must be recognizable by immediate
    // data or by enough payload.
    let op = match op {
        SendOp::Send if scenario.transport != Transport::Rc && length < 8 => SendOp::SendImm,
        op => op,
    };
    let length = match op {
        SendOp::CompareSwap | SendOp::FetchAdd | SendOp::AtomicWrite => WORD as u32,
        SendOp::LocalInv | SendOp::BindMw => 0,
        _ => length,
    };
    let mut wr = SendWr {
        wr_id: id,
        op,
        length,
        imm: (id as u32).to_be_bytes(),
        signalled: rng.chance(500),
        solicited: rng.chance(300),
        fence: rng.chance(100),
        // In half of the cases, the value equals that of the word; see `prepare`.
        compare: id ^ u64::from(rng.chance(500)),
        swap_add: !id,
        rkey: RKEY,
        ..SendWr::default()
    };
    let feth = Feth::new(1, u8::from(rng.chance(500))).unwrap_or_default();
    if op == SendOp::Flush {
        wr.set_feth(feth);
    }
    if scenario.transport == Transport::Ud {
        let dest_qpn = Qpn::new(scenario.qpn(1 - (id >> 32)));
        wr.set_datagram(dest_qpn, Qkey::new(0x1111));
    }
    Op {
        wr,
        area: 0,
        sabotage: Sabotage::None,
    }
}

fn length(rng: &mut Rng, scenario: &Scenario) -> u32 {
    let mtu = u64::from(scenario.mtu);
    let length = match rng.range(0..=99) {
        0..=9 => 0,
        10..=34 => rng.range(1..=64),
        35..=49 => mtu - 1 + rng.range(0..=2),
        50..=79 => rng.range(0..=mtu * 4),
        80..=96 => rng.range(0..=mtu * 20),
        97..=98 => rng.range(0..=mtu * 100),
        // A READ of several parts.
        _ if scenario.mtu <= 512 && rng.chance(300) => rng.range(mtu * 1000..=mtu * 2100),
        _ => rng.range(0..=mtu * 40),
    };
    let length = if scenario.transport == Transport::Ud {
        length.min(mtu)
    } else {
        length
    };
    length as u32
}

fn sabotage(rng: &mut Rng, scenario: &Scenario, op: &Op) -> Sabotage {
    let local = Sabotage::Local {
        offset: rng.range(0..=u64::from(op.wr.length)) as u32,
        attempt: match op.wr.op {
            SendOp::Send | SendOp::SendImm | SendOp::Write | SendOp::WriteImm => {
                rng.pick(&[1, 1, 2, 3])
            }
            _ => 1,
        },
    };
    let choice = match op.wr.op {
        SendOp::Write | SendOp::WriteImm | SendOp::Read => {
            rng.pick(&[Sabotage::BadKey, Sabotage::BadAddress, local])
        }
        SendOp::Send | SendOp::SendImm | SendOp::SendInv => rng.pick(&[Sabotage::TooLong, local]),
        SendOp::CompareSwap | SendOp::FetchAdd | SendOp::AtomicWrite => {
            rng.pick(&[Sabotage::BadKey, Sabotage::Unaligned, local])
        }
        SendOp::Flush => Sabotage::BadKey,
        SendOp::LocalInv | SendOp::BindMw | SendOp::RegMr => return local,
    };
    // An empty message needs no memory. If earlier messages may be lost, the receive request that a
    // message gets is not known.
    match choice {
        Sabotage::BadAddress if op.wr.length < 16 => Sabotage::BadKey,
        Sabotage::TooLong if op.wr.length == 0 || scenario.transport != Transport::Rc => {
            Sabotage::None
        }
        Sabotage::Local { offset, .. } if offset >= op.wr.length => Sabotage::None,
        choice => choice,
    }
}
