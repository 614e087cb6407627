// SPDX-License-Identifier: GPL-2.0

//! Validation of receive WQEs.

use super::{
    sges,
    sum_sges,
    RawSge,
    RecvWqe,
    RECV_WQE_LEN, //
};
use crate::wire::MAX_MESSAGE_LEN;
use zerocopy::FromBytes;

/// A validated receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// Cookie of the program, returned in the completion.
    pub wr_id: u64,
    /// Elements in the list of SGEs: [`recv_sges`].
    pub num_sge: u32,
    /// Total length of all SGEs in bytes, at most [`MAX_MESSAGE_LEN`].
    pub length: u32,
}

/// Validates a private copy of a receive WQE.
///
/// The total length of the buffers is clamped to [`MAX_MESSAGE_LEN`]. It is not refused if it is
/// larger, because more room than the longest message needs is harmless.
///
/// # Errors
///
/// The [`RecvWr::wr_id`] if there are more than `max_sge` SGEs, or if the copy is shorter than the
/// WQE; zero if it is too short to have one.
pub fn parse_recv(bytes: &[u8], max_sge: u32) -> Result<RecvWr, u64> {
    let (wqe, tail) = RecvWqe::ref_from_prefix(bytes).map_err(|_| 0u64)?;
    let wr_id = wqe.wr_id.get();
    let num_sge = wqe.dma.num_sge.get();
    let total = sum_sges(tail, num_sge, max_sge).ok_or(wr_id)?;
    Ok(RecvWr {
        wr_id,
        num_sge,
        length: u32::try_from(total)
            .unwrap_or(MAX_MESSAGE_LEN)
            .min(MAX_MESSAGE_LEN),
    })
}

/// Returns the scatter list of a copied receive WQE, or `None` if the copy is too short.
///
/// It has `num_sge` elements, which is [`RecvWr::num_sge`].
#[inline]
pub fn recv_sges(bytes: &[u8], num_sge: u32) -> Option<&[RawSge]> {
    sges(bytes.get(RECV_WQE_LEN..)?, num_sge)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_uapi_recv))]
mod tests {
    use super::{
        super::SGE_LEN,
        *, //
    };

    #[test]
    fn recv_wqe_length_is_clamped() {
        let mut bytes = [0; RECV_WQE_LEN + 2 * SGE_LEN];
        bytes[..8].copy_from_slice(&9u64.to_ne_bytes());
        bytes[28..32].copy_from_slice(&2u32.to_ne_bytes());
        bytes[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[64..68].copy_from_slice(&u32::MAX.to_ne_bytes());
        let wr = parse_recv(&bytes, 2);
        assert_eq!(wr.map(|wr| wr.wr_id), Ok(9));
        assert_eq!(wr.map(|wr| wr.length), Ok(MAX_MESSAGE_LEN));
        let last = recv_sges(&bytes, 2).and_then(|sges| sges.last());
        assert_eq!(last.map(|sge| sge.length.get()), Some(u32::MAX));
        assert!(recv_sges(&bytes, 3).is_none());
        assert_eq!(parse_recv(&bytes, 1), Err(9));
        assert_eq!(parse_recv(&bytes[..71], 2), Err(9));
    }

    #[test]
    fn tail_of_recv_wqe_is_bounded() {
        for (num_sge, len) in [(0, 0), (1, SGE_LEN), (3, 2 * SGE_LEN)] {
            let mut bytes = [0; RECV_WQE_LEN];
            bytes[28..32].copy_from_slice(&u32::to_ne_bytes(num_sge));
            let wqe = RecvWqe::read_from_bytes(&bytes[..]);
            assert_eq!(wqe.map(|wqe| wqe.tail_len(2)).ok(), Some(len));
        }
    }

    #[test]
    fn recv_length_is_sum_of_sges() {
        let mut bytes = [0; RECV_WQE_LEN + 2 * SGE_LEN];
        bytes[28..32].copy_from_slice(&2u32.to_ne_bytes());
        bytes[48..52].copy_from_slice(&3u32.to_ne_bytes());
        bytes[64..68].copy_from_slice(&4u32.to_ne_bytes());
        assert_eq!(parse_recv(&bytes, 2).map(|wr| wr.length), Ok(7));
    }
}
