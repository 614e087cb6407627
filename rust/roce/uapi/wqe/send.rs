// SPDX-License-Identifier: GPL-2.0

//! Validation of send WQEs.

use super::{
    send_op,
    sum_sges,
    AtomicArgs,
    BindArgs,
    DmaInfo,
    FlushArgs,
    RdmaArgs,
    SendWqe,
    UdArgs,
    SEND_FENCE,
    SEND_INLINE,
    SEND_SIGNALED,
    SEND_SOLICITED,
    WORD_LEN, //
};
use crate::{
    ids::{
        Qkey,
        Qpn,
        Rkey, //
    },
    opcode::Transport,
    wire::{
        Feth,
        MAX_MESSAGE_LEN, //
    },
    wr::{
        SendOp,
        SendWr,
        Status, //
    }, //
};
use core::num::NonZeroU32;
use zerocopy::{
    FromBytes,
    Immutable,
    KnownLayout,
    Unaligned, //
};

/// The limits of the send WQEs of a queue pair, fixed when it was created, and its current Q_Key.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Most SGEs in one WQE, as reported to the program.
    pub max_sge: u32,
    /// Most bytes of inline data in one WQE, as reported to the program.
    pub max_inline: u32,
    /// The queue pair's own Q_Key. Only used for UD.
    pub qkey: Qkey,
    /// True for a kernel consumer: only those may register memory, and they cannot bind windows.
    pub kernel: bool,
    /// True for raw packets, which have no address. UD only.
    pub raw: bool,
}

/// The location of the payload of a send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// In memory regions that the first `count` elements of the tail name: [`sges`](super::sges).
    Sges {
        /// 0 to [`SendLimits::max_sge`].
        count: u16,
    },
    /// In the first `len` bytes of the tail itself.
    Inline {
        /// 0 to [`SendLimits::max_inline`] bytes.
        len: u16,
    },
}

/// Validates a private copy of a send WQE, and of its tail.
///
/// `signalled` in the result is the flag of the WQE; a queue pair that was created to signal
/// everything sets it.
///
/// # Errors
///
/// The status that the request completes with. It is [`Status::LocLen`] for more inline data than
/// the queue pair was created for, a message or a range over [`MAX_MESSAGE_LEN`], or an atomic
/// operation whose buffers are not as long as a word, and [`Status::LocQpOp`] for any other
/// violation.
#[inline]
pub fn parse_send(
    wqe: &SendWqe,
    tail: &[u8],
    transport: Transport,
    limits: &SendLimits,
) -> Result<(SendWr, Payload), Status> {
    let op = send_op(wqe.opcode.get(), limits.kernel).ok_or(Status::LocQpOp)?;
    if !op.is_on(transport) || (limits.raw && op != SendOp::Send) {
        return Err(Status::LocQpOp);
    }

    let flags = wqe.send_flags.get();
    let (payload, length) = payload(op, wqe, tail, limits)?;
    let mut wr = SendWr {
        wr_id: wqe.wr_id.get(),
        op,
        signalled: flags & SEND_SIGNALED != 0,
        solicited: flags & SEND_SOLICITED != 0,
        fence: flags & SEND_FENCE != 0,
        length,
        imm: wqe.ex,
        ..SendWr::default()
    };
    match op {
        SendOp::Send | SendOp::SendImm => {
            if transport == Transport::Ud && !limits.raw {
                let ud: &UdArgs = args(wqe)?;
                if ud.ah_num.get() == 0 {
                    return Err(Status::LocQpOp);
                }
                let qkey = effective_qkey(Qkey::new(ud.remote_qkey.get()), limits.qkey);
                wr.set_datagram(Qpn::new(ud.remote_qpn.get()), qkey);
            }
        }
        SendOp::Write | SendOp::WriteImm | SendOp::Read | SendOp::AtomicWrite => {
            // `iova` in the scratch area repeats the address, but the extended verbs of librxe do
            // not set it.
            let rdma: &RdmaArgs = args(wqe)?;
            wr.va = rdma.remote_addr.get();
            wr.rkey = Rkey::new(rdma.rkey.get());
        }
        SendOp::CompareSwap | SendOp::FetchAdd => {
            let atomic: &AtomicArgs = args(wqe)?;
            wr.va = atomic.remote_addr.get();
            wr.rkey = Rkey::new(atomic.rkey.get());
            if op == SendOp::CompareSwap {
                wr.compare = atomic.compare_add.get();
                wr.swap_add = atomic.swap.get();
            } else {
                wr.swap_add = atomic.compare_add.get();
            }
        }
        SendOp::Flush => {
            let flush: &FlushArgs = args(wqe)?;
            wr.va = flush.remote_addr.get();
            wr.rkey = Rkey::new(flush.rkey.get());
            wr.set_feth(Feth::new(flush.placement, flush.level).ok_or(Status::LocQpOp)?);
        }
        SendOp::SendInv | SendOp::LocalInv => wr.rkey = Rkey::new(u32::from_ne_bytes(wqe.ex)),
        SendOp::RegMr | SendOp::BindMw => {
            let bind: &BindArgs = args(wqe)?;
            wr.rkey = Rkey::new(bind.rkey.get());
            wr.set_local(&bind.into());
        }
    }
    Ok((wr, payload))
}

/// Returns the payload of a request, and the length of its message or range in bytes.
#[inline]
fn payload(
    op: SendOp,
    wqe: &SendWqe,
    tail: &[u8],
    limits: &SendLimits,
) -> Result<(Payload, u32), Status> {
    const NONE: Payload = Payload::Inline { len: 0 };
    // CAST: A small constant.
    const WORD: u32 = WORD_LEN as u32;

    let is_inline = wqe.send_flags.get() & SEND_INLINE != 0;
    match op {
        SendOp::LocalInv | SendOp::RegMr | SendOp::BindMw => Ok((NONE, 0)),
        SendOp::Flush => match wqe.dma.length.get() {
            length @ 0..=MAX_MESSAGE_LEN => Ok((NONE, length)),
            _ => Err(Status::LocLen),
        },
        // The word is in the tail, without a flag.
        SendOp::AtomicWrite if wqe.dma.length.get() != WORD => Err(Status::LocLen),
        SendOp::AtomicWrite => inline_payload(&wqe.dma, tail, WORD),
        SendOp::Read | SendOp::CompareSwap | SendOp::FetchAdd if is_inline => Err(Status::LocQpOp),
        SendOp::CompareSwap | SendOp::FetchAdd => {
            match sge_payload(&wqe.dma, tail, limits.max_sge)? {
                (payload, WORD) => Ok((payload, WORD)),
                _ => Err(Status::LocLen),
            }
        }
        _ if is_inline => inline_payload(&wqe.dma, tail, limits.max_inline),
        _ => sge_payload(&wqe.dma, tail, limits.max_sge),
    }
}

fn inline_payload(dma: &DmaInfo, tail: &[u8], max_inline: u32) -> Result<(Payload, u32), Status> {
    let length = dma.length.get();
    let len = match u16::try_from(length) {
        Ok(len) if length <= max_inline => len,
        _ => return Err(Status::LocLen),
    };
    if tail.len() < usize::from(len) {
        return Err(Status::LocQpOp);
    }
    Ok((Payload::Inline { len }, length))
}

#[inline]
fn sge_payload(dma: &DmaInfo, tail: &[u8], max_sge: u32) -> Result<(Payload, u32), Status> {
    let count = dma.num_sge.get();
    let total = sum_sges(tail, count, max_sge).ok_or(Status::LocQpOp)?;
    let count = u16::try_from(count).map_err(|_| Status::LocQpOp)?;
    match u32::try_from(total) {
        Ok(length) if length <= MAX_MESSAGE_LEN => Ok((Payload::Sges { count }, length)),
        _ => Err(Status::LocLen),
    }
}

/// Returns the number of the address handle of a copied UD send WQE.
#[inline]
pub fn ah_num(wqe: &SendWqe) -> Option<NonZeroU32> {
    NonZeroU32::new(args::<UdArgs>(wqe).ok()?.ah_num.get())
}

/// Returns the arguments of a WQE as the type that its operation has.
#[inline]
fn args<T: FromBytes + KnownLayout + Immutable + Unaligned>(wqe: &SendWqe) -> Result<&T, Status> {
    match T::ref_from_prefix(&wqe.args) {
        Ok((args, _)) => Ok(args),
        Err(_) => Err(Status::LocQpOp),
    }
}

/// Returns the Q_Key on the wire for a work request with `asked`.
///
/// A Q_Key with the high bit set is controlled: an unprivileged program may not choose it. The
/// Q_Key of the queue pair, `own`, replaces it, which only a privileged modify can make a
/// controlled one. The rule also applies to kernel consumers.
#[inline]
pub fn effective_qkey(asked: Qkey, own: Qkey) -> Qkey {
    const CONTROLLED: u32 = 1 << 31;

    if asked.get() & CONTROLLED != 0 {
        own
    } else {
        asked
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_uapi_wqe))]
mod tests {
    use super::{
        super::{
            sges,
            RawSge,
            SEND_WQE_LEN,
            SGE_LEN, //
        },
        *, //
    };
    use crate::wr::LocalArgs;
    use zerocopy::{
        byteorder::native_endian::{
            U32,
            U64, //
        },
        FromZeros,
        IntoBytes, //
    };

    const LIMITS: SendLimits = SendLimits {
        max_sge: 4,
        max_inline: 64,
        qkey: Qkey::new(0x8001_0000),
        kernel: false,
        raw: false,
    };

    /// Returns a copied WQE with four SGEs of 8 bytes, of which the header uses `num_sge`.
    fn send_bytes(opcode: u32, flags: u32, num_sge: u32, length: u32) -> [u8; 272] {
        let mut wqe = SendWqe::new_zeroed();
        wqe.wr_id = U64::new(7);
        wqe.opcode = U32::new(opcode);
        wqe.send_flags = U32::new(flags);
        wqe.ex = [1, 2, 3, 4];
        wqe.args[..8].copy_from_slice(&0x1122_3344_5566_7788u64.to_ne_bytes());
        wqe.args[8..12].copy_from_slice(&0xabcdu32.to_ne_bytes());
        wqe.dma.num_sge = U32::new(num_sge);
        wqe.dma.length = U32::new(length);
        let mut bytes = [0; 272];
        bytes[..SEND_WQE_LEN].copy_from_slice(wqe.as_bytes());
        for i in 0..4 {
            let start = SEND_WQE_LEN + i * SGE_LEN;
            let sge = RawSge {
                addr: U64::new(0x1000 * i as u64),
                length: U32::new(8),
                lkey: U32::new(i as u32),
            };
            bytes[start..start + SGE_LEN].copy_from_slice(sge.as_bytes());
        }
        bytes
    }

    fn set_sge_length(bytes: &mut [u8; 272], index: usize, length: u32) {
        let at = SEND_WQE_LEN + index * SGE_LEN + 8;
        bytes[at..at + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Returns the header of a copied WQE, and its tail.
    fn parts(bytes: &[u8]) -> (SendWqe, &[u8]) {
        SendWqe::read_from_prefix(bytes).unwrap_or((SendWqe::new_zeroed(), &[]))
    }

    type Parsed = (SendWr, Payload);

    fn parse(bytes: &[u8], transport: Transport, limits: &SendLimits) -> Result<Parsed, Status> {
        let (wqe, tail) = parts(bytes);
        parse_send(&wqe, tail, transport, limits)
    }

    fn error(bytes: &[u8], transport: Transport) -> Option<Status> {
        parse(bytes, transport, &LIMITS).err()
    }

    #[test]
    fn write_takes_raddr_from_wqe_and_sums_sges() -> Result<(), Status> {
        let bytes = send_bytes(0, SEND_SIGNALED | SEND_FENCE, 3, 0xffff_ffff);
        let (wr, payload) = parse(&bytes, Transport::Rc, &LIMITS)?;
        assert!(matches!(wr.op, SendOp::Write));
        assert_eq!(wr.wr_id, 7);
        assert_eq!(wr.va, 0x1122_3344_5566_7788);
        assert_eq!(wr.rkey.get(), 0xabcd);
        assert_eq!(wr.length, 24);
        assert!(wr.signalled && wr.fence && !wr.solicited);
        assert_eq!(payload, Payload::Sges { count: 3 });
        let last = sges(parts(&bytes).1, 3).and_then(|sges| sges.last());
        assert_eq!(last.map(|sge| sge.addr.get()), Some(0x2000));
        assert!(sges(parts(&bytes).1, 5).is_none());
        assert!(sges(parts(&bytes).1, u16::MAX.into()).is_none());
        Ok(())
    }

    #[test]
    fn inline_length_is_authoritative_and_bounded() -> Result<(), Status> {
        let bytes = send_bytes(3, SEND_INLINE, 9, 64);
        let (wr, payload) = parse(&bytes, Transport::Uc, &LIMITS)?;
        assert_eq!(wr.length, 64);
        assert_eq!(wr.imm, [1, 2, 3, 4]);
        assert_eq!(payload, Payload::Inline { len: 64 });
        let long = send_bytes(3, SEND_INLINE, 0, 65);
        assert_eq!(error(&long, Transport::Uc), Some(Status::LocLen));
        Ok(())
    }

    #[test]
    fn each_flag_has_one_effect() {
        for (flags, expected) in [
            (0, [false; 3]),
            (SEND_SIGNALED, [true, false, false]),
            (SEND_SOLICITED, [false, true, false]),
            (SEND_FENCE, [false, false, true]),
        ] {
            let found = parse(&send_bytes(2, flags, 0, 0), Transport::Rc, &LIMITS);
            let found = found.map(|(wr, _)| [wr.signalled, wr.solicited, wr.fence]);
            assert_eq!(found, Ok(expected));
        }
    }

    #[test]
    fn arguments_have_their_places() -> Result<(), Status> {
        let word = |at: u8| u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8].map(|byte| at + byte));
        let half = |at: u8| u32::from_ne_bytes([1, 2, 3, 4].map(|byte| at + byte));
        // Each byte of the arguments is different.
        let parse = |opcode, num_sge| {
            let mut bytes = send_bytes(opcode, 0, num_sge, 8);
            for (byte, value) in bytes[24..144].iter_mut().zip(1..) {
                *byte = value;
            }
            if opcode == 14 {
                // The scope.
                (bytes[40], bytes[41]) = (2, 1);
            }
            parse(&bytes, Transport::Rc, &LIMITS).map(|(wr, _)| wr)
        };
        // The buffer of the result is missing.
        assert_eq!(parse(6, 0), Err(Status::LocLen));
        let add = parse(6, 1)?;
        let args = (add.va, add.swap_add, add.rkey.get());
        assert_eq!(args, (word(0), word(8), half(24)));

        let flush = parse(14, 0)?;
        assert_eq!((flush.va, flush.rkey.get()), (word(0), half(12)));

        let bind = parse(8, 0)?;
        assert_eq!(bind.rkey.get(), half(24));
        let mut expected = bind;
        expected.set_local(&LocalArgs {
            addr: word(0),
            length: word(8),
            mr_lkey: half(16),
            mw_rkey: half(20),
            access: half(28),
        });
        assert_eq!(bind, expected);
        Ok(())
    }

    #[test]
    fn local_operation_has_no_payload() -> Result<(), Status> {
        let (wr, payload) = parse(&send_bytes(7, 0, 1, 8), Transport::Rc, &LIMITS)?;
        assert_eq!((wr.length, payload), (0, Payload::Inline { len: 0 }));
        Ok(())
    }

    #[test]
    fn raw_packet_is_send_without_ah() {
        let mut raw = LIMITS;
        raw.raw = true;
        for opcode in 0..=14 {
            // No address handle: its number is zero.
            let mut wqe = SendWqe::new_zeroed();
            wqe.opcode = U32::new(opcode);
            let parsed = parse(wqe.as_bytes(), Transport::Ud, &raw);
            assert_eq!(parsed.is_ok(), opcode == 2);
            assert!(error(wqe.as_bytes(), Transport::Ud).is_some());
        }
    }

    #[test]
    fn opcodes_are_checked_per_transport() {
        for opcode in (0..=9).chain([14, 15]) {
            let mut bytes = send_bytes(opcode, 0, 1, 8);
            bytes[36] = 1;
            bytes[40] = 1;
            assert_eq!(error(&bytes, Transport::Rc), None);
            assert_eq!(
                error(&bytes, Transport::Uc).is_none(),
                matches!(opcode, 0..=3 | 7 | 8)
            );
            assert_eq!(
                error(&bytes, Transport::Ud).is_none(),
                matches!(opcode, 2 | 3)
            );
        }
        // Operations of other hardware, those of the kernel (registration is 0x20), and garbage.
        for opcode in [10, 11, 12, 13, 0x20, 0xf0, u32::MAX] {
            let bytes = send_bytes(opcode, 0, 0, 0);
            assert_eq!(error(&bytes, Transport::Rc), Some(Status::LocQpOp));
        }
        let read = send_bytes(4, SEND_INLINE, 0, 0);
        assert_eq!(error(&read, Transport::Rc), Some(Status::LocQpOp));
    }

    #[test]
    fn kernel_qp_accepts_reg_mr_but_not_bind_mw() {
        let limits = SendLimits {
            kernel: true,
            ..LIMITS
        };
        let error = |opcode| {
            let bytes = send_bytes(opcode, 0, 0, 0);
            parse(&bytes, Transport::Rc, &limits).err()
        };
        assert_eq!(error(0x20), None);
        assert_eq!(error(8), Some(Status::LocQpOp));
        let mut bytes = send_bytes(0x20, 0, 0, 0);
        bytes[48..52].copy_from_slice(&3u32.to_ne_bytes());
        let reg = parse(&bytes, Transport::Rc, &limits).map(|(wr, _)| (wr.va, wr.rkey));
        assert_eq!(reg, Ok((0x1122_3344_5566_7788, Rkey::new(3))));
    }

    #[test]
    fn atomics_need_8_byte_buffer() -> Result<(), Status> {
        let mut bytes = send_bytes(5, 0, 1, 0);
        bytes[32..40].copy_from_slice(&1u64.to_ne_bytes());
        bytes[40..48].copy_from_slice(&2u64.to_ne_bytes());
        bytes[48..52].copy_from_slice(&3u32.to_ne_bytes());
        let (wr, payload) = parse(&bytes, Transport::Rc, &LIMITS)?;
        assert_eq!(payload, Payload::Sges { count: 1 });
        assert_eq!((wr.op, wr.length), (SendOp::CompareSwap, 8));
        assert_eq!((wr.compare, wr.swap_add, wr.rkey), (1, 2, Rkey::new(3)));
        let mut bytes = send_bytes(6, 0, 2, 0);
        for (first, second) in [(3, 5), (0, 8), (8, 1), (4, 3), (0, 0)] {
            set_sge_length(&mut bytes, 0, first);
            set_sge_length(&mut bytes, 1, second);
            assert_eq!(error(&bytes, Transport::Rc).is_some(), first + second != 8);
        }
        let inline = send_bytes(6, SEND_INLINE, 0, 8);
        assert_eq!(error(&inline, Transport::Rc), Some(Status::LocQpOp));
        Ok(())
    }

    #[test]
    fn atomic_write_operand_is_in_tail() -> Result<(), Status> {
        let bytes = send_bytes(15, 0, 0, 8);
        let none = SendLimits {
            max_sge: 0,
            max_inline: 0,
            ..LIMITS
        };
        assert_eq!(parts(&bytes).0.tail_len(&none), none.max_tail_len());
        assert!(parse(&bytes, Transport::Rc, &none).is_ok());
        let (wr, payload) = parse(&bytes, Transport::Rc, &LIMITS)?;
        assert_eq!((wr.op, wr.length), (SendOp::AtomicWrite, 8));
        assert_eq!(payload, Payload::Inline { len: 8 });
        assert_eq!(parts(&bytes).0.tail_len(&LIMITS), 8);
        for length in [7, 9] {
            let other = send_bytes(15, 0, 0, length);
            assert_eq!(error(&other, Transport::Rc), Some(Status::LocLen));
        }
        assert_eq!(
            error(&bytes[..SEND_WQE_LEN + 7], Transport::Rc),
            Some(Status::LocQpOp)
        );
        Ok(())
    }

    #[test]
    fn flush_takes_length_from_wqe() -> Result<(), Status> {
        let mut bytes = send_bytes(14, 0, 0, 4096);
        bytes[36..40].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(error(&bytes, Transport::Rc), Some(Status::LocQpOp));
        bytes[40] = 1;
        let (wr, payload) = parse(&bytes, Transport::Rc, &LIMITS)?;
        assert_eq!(payload, Payload::Inline { len: 0 });
        assert_eq!((wr.length, wr.rkey), (4096, Rkey::new(3)));
        assert!(wr.feth().global() && !wr.feth().whole());
        let long = send_bytes(14, 0, 0, MAX_MESSAGE_LEN + 1);
        assert_eq!(error(&long, Transport::Rc), Some(Status::LocLen));
        Ok(())
    }

    #[test]
    fn rkey_to_invalidate_is_in_host_order() -> Result<(), Status> {
        for opcode in [7, 9] {
            let bytes = send_bytes(opcode, 0, 0, 0);
            let (wr, _) = parse(&bytes, Transport::Rc, &LIMITS)?;
            assert_eq!(wr.rkey.get(), u32::from_ne_bytes([1, 2, 3, 4]));
        }
        Ok(())
    }

    #[test]
    fn sge_count_and_sum_are_bounded() {
        let bytes = send_bytes(2, 0, 5, 0);
        assert_eq!(error(&bytes, Transport::Rc), Some(Status::LocQpOp));

        let mut bytes = send_bytes(2, 0, 2, 0);
        set_sge_length(&mut bytes, 0, 1 << 31);
        assert_eq!(error(&bytes, Transport::Rc), Some(Status::LocLen));
        set_sge_length(&mut bytes, 1, 0);
        assert_eq!(error(&bytes, Transport::Rc), None);
        set_sge_length(&mut bytes, 1, u32::MAX);
        assert_eq!(error(&bytes, Transport::Rc), Some(Status::LocLen));
    }

    #[test]
    fn truncated_tail_is_refused() {
        let bytes = send_bytes(2, 0, 4, 0);
        for len in SEND_WQE_LEN..bytes.len() {
            assert_eq!(error(&bytes[..len], Transport::Rc), Some(Status::LocQpOp));
        }
        assert_eq!(error(&bytes, Transport::Rc), None);
    }

    #[test]
    fn ud_needs_ah_and_controlled_qkey_is_replaced() {
        let mut bytes = send_bytes(2, 0, 1, 0);
        assert_eq!(error(&bytes, Transport::Ud), Some(Status::LocQpOp));
        assert_eq!(ah_num(&parts(&bytes).0), None);
        bytes[36..40].copy_from_slice(&5u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&0x0100_0011u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&0x1111_1111u32.to_ne_bytes());
        let wr = parse(&bytes, Transport::Ud, &LIMITS).map(|(wr, _)| wr);
        assert_eq!(ah_num(&parts(&bytes).0).map(NonZeroU32::get), Some(5));
        assert_eq!(wr.map(|wr| wr.dest_qpn().get()), Ok(0x11));
        assert_eq!(wr.map(|wr| wr.qkey().get()), Ok(0x1111_1111));

        bytes[28..32].copy_from_slice(&0x8000_0001u32.to_ne_bytes());
        let wr = parse(&bytes, Transport::Ud, &LIMITS).map(|(wr, _)| wr);
        assert_eq!(wr.map(|wr| wr.qkey().get()), Ok(0x8001_0000));
    }

    #[test]
    fn tail_length_is_capped_by_limits() {
        let bytes = send_bytes(2, 0, u32::MAX, 0);
        assert_eq!(parts(&bytes).0.tail_len(&LIMITS), 4 * SGE_LEN);
        let bytes = send_bytes(2, SEND_INLINE, 0, u32::MAX);
        assert_eq!(parts(&bytes).0.tail_len(&LIMITS), 64);
    }
}
