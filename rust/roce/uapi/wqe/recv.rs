// SPDX-License-Identifier: GPL-2.0

//! Validation of receive WQEs.

use super::{
    sge_at,
    sum_sges,
    RecvWqe,
    Sge,
    WqeError,
    WqeErrorKind,
    MAX_MESSAGE,
    RECV_WQE_LEN, //
};
use zerocopy::FromBytes;

/// A validated receive work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// Cookie of the program, returned in the completion.
    pub wr_id: u64,
    /// Elements in the list of SGEs: [`recv_sge`].
    pub num_sge: u32,
    /// Bytes that all SGEs together can take, at most [`MAX_MESSAGE`].
    pub length: u32,
}

/// Validates a private copy of a receive WQE.
///
/// The sum of the buffers is clamped to [`MAX_MESSAGE`], and not refused beyond it: more room than
/// the longest message needs is harmless.
///
/// # Errors
///
/// [`WqeErrorKind::SgeCount`] or [`WqeErrorKind::Truncated`].
pub fn parse_recv(bytes: &[u8], max_sge: u32) -> Result<RecvWr, WqeError> {
    let Ok((wqe, tail)) = RecvWqe::ref_from_prefix(bytes) else {
        return Err(WqeError {
            wr_id: 0,
            kind: WqeErrorKind::Truncated,
        });
    };
    let wr_id = wqe.wr_id.get();
    let num_sge = wqe.dma.num_sge.get();
    let total = sum_sges(tail, num_sge, max_sge).map_err(|kind| WqeError { wr_id, kind })?;
    Ok(RecvWr {
        wr_id,
        num_sge,
        length: u32::try_from(total).unwrap_or(MAX_MESSAGE).min(MAX_MESSAGE),
    })
}

/// Returns SGE `index` of a copied receive WQE.
///
/// `None` means that the copy ends before it; indices below [`RecvWr::num_sge`] are always there.
#[inline]
pub fn recv_sge(bytes: &[u8], index: u32) -> Option<Sge> {
    sge_at(bytes.get(RECV_WQE_LEN..)?, index)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_uapi_recv))]
mod tests {
    use super::{
        super::SGE_LEN,
        *, //
    };

    #[test]
    fn receives_clamp_their_room() {
        let mut bytes = [0; RECV_WQE_LEN + 2 * SGE_LEN];
        bytes[..8].copy_from_slice(&9u64.to_ne_bytes());
        bytes[28..32].copy_from_slice(&2u32.to_ne_bytes());
        bytes[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[64..68].copy_from_slice(&u32::MAX.to_ne_bytes());
        let wr = parse_recv(&bytes, 2);
        assert_eq!(wr.map(|wr| wr.wr_id), Ok(9));
        assert_eq!(wr.map(|wr| wr.length), Ok(MAX_MESSAGE));
        assert_eq!(recv_sge(&bytes, 1).map(|sge| sge.length), Some(u32::MAX));
        assert_eq!(recv_sge(&bytes, 2), None);
        assert_eq!(
            parse_recv(&bytes, 1).map_err(|e| e.kind),
            Err(WqeErrorKind::SgeCount)
        );
        let short = parse_recv(&bytes[..71], 2).map_err(|e| (e.wr_id, e.kind));
        assert_eq!(short, Err((9, WqeErrorKind::Truncated)));
    }
}
