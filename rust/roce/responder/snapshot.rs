// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a receive half, to debug stalls.

use core::ffi::CStr;

use super::{
    message::Message,
    resources::Records,
    Pending,
    Responder, //
};
use crate::psn::Psn;

/// The state of a receive half, for diagnostics only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvSnapshot {
    /// The stage of the half.
    pub stage: RecvStage,
    /// The PSN to execute next.
    pub epsn: Psn,
    /// The PSN of the last executed SEND or WRITE.
    pub acked: Psn,
    /// The number of completed messages. After 2^32 - 1, it continues at 2^24.
    pub msn: u32,
    /// True if a NAK or RNR NAK was sent for the packet at `epsn`, which has not arrived since.
    pub nak_sent: bool,
    /// The buffer length of the held receive request in bytes, if there is one.
    pub held: Option<u32>,
}

/// The stage of a receive half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvStage {
    /// Waiting for a message.
    Idle,
    /// Waiting for the rest of a message.
    Message,
    /// Copying payload, or waiting for its memory.
    Placing,
    /// Executing an atomic operation, an ATOMIC WRITE or a FLUSH, or waiting for its memory.
    Executing,
    /// Responding to a READ.
    Responding,
    /// In ERR, or about to move there.
    Failed,
}

impl RecvStage {
    /// Returns the name of the stage.
    pub const fn name(self) -> &'static CStr {
        match self {
            RecvStage::Idle => c"idle",
            RecvStage::Message => c"message",
            RecvStage::Placing => c"placing",
            RecvStage::Executing => c"executing",
            RecvStage::Responding => c"responding",
            RecvStage::Failed => c"failed",
        }
    }
}

impl<S: Records> Responder<S> {
    /// Returns a snapshot of the half.
    pub fn snapshot(&self) -> RecvSnapshot {
        let stage = match self.pending {
            _ if self.failed => RecvStage::Failed,
            Pending::Place(_) => RecvStage::Placing,
            Pending::Execute { .. } => RecvStage::Executing,
            Pending::Read { .. } => RecvStage::Responding,
            Pending::None if self.read_in_progress() => RecvStage::Responding,
            Pending::None if self.message != Message::None => RecvStage::Message,
            Pending::None => RecvStage::Idle,
        };
        RecvSnapshot {
            stage,
            epsn: self.sequence.epsn(),
            acked: self.sequence.acked(),
            msn: self.sequence.msn(),
            nak_sent: self.sequence.nak().is_some(),
            held: self.held,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_snapshot))]
mod tests {
    use super::*;
    use crate::testutil::*;

    #[test]
    fn snapshot_shows_partial_message() {
        let [first, last] = frames(Transport::Rc, &[wr(SendOp::Send, 2 * MTU)]);
        let mut responder = responder();
        assert_eq!(responder.snapshot().stage, RecvStage::Idle);

        let size = 4 * MTU;
        let mut rq = Recvs::new(1, size);
        responder.on_request(&first.packet(), &mut rq);
        assert_eq!(responder.snapshot().stage, RecvStage::Placing);
        responder.finish(Ok(()));
        let half = responder.snapshot();
        assert_eq!((half.stage, half.held), (RecvStage::Message, Some(size)));
        assert_eq!((half.epsn.get(), half.acked.get(), half.msn), (1, 0, 0));

        responder.on_request(&last.packet(), &mut rq);
        responder.finish(Ok(()));
        let whole = responder.snapshot();
        assert_eq!((whole.stage, whole.held), (RecvStage::Idle, None));
        assert_eq!((whole.epsn.get(), whole.msn, whole.nak_sent), (2, 1, false));
    }

    #[test]
    fn snapshot_shows_failure() {
        let [frame] = frames(Transport::Rc, &[wr(SendOp::Send, 1)]);
        let mut responder = responder();
        let mut rq = Recvs::new(1, MTU);
        responder.on_request(&frame.packet(), &mut rq);
        responder.finish(Err(MemError::Protection));
        assert_eq!(responder.snapshot().stage.name(), c"failed");
    }

    #[test]
    fn snapshot_shows_read() {
        let mut rx = responder();
        assert!(matches!(request(&mut rx, &read(1)), Verdict::Read(_)));
        assert_eq!(rx.snapshot().stage, RecvStage::Responding);
        assert_eq!(rx.start_read(Ok(())), None);
        assert_eq!(rx.snapshot().stage, RecvStage::Responding);
        rx.response_sent();
        assert_eq!(rx.snapshot().stage, RecvStage::Idle);
    }
}
