// SPDX-License-Identifier: GPL-2.0

//! Taking back the READ responses of a train that a full queue has refused (RC).

use super::{
    read::Stream,
    resources::Records,
    Responder, //
};

/// A position in the sequence of READ responses; see [`Responder::checkpoint_responses`].
#[derive(Clone, Copy)]
pub struct ResponseCheckpoint {
    stream: Option<Stream>,
    /// The number of records saved before.
    saved: usize,
}

impl<S: Records> Responder<S> {
    /// Returns the position of the next response.
    #[inline]
    pub fn checkpoint_responses(&self) -> ResponseCheckpoint {
        ResponseCheckpoint {
            stream: self.stream,
            saved: self.resources.saved(),
        }
    }

    /// Returns whether another new READ may be executed before the responses since `checkpoint` can
    /// no longer be taken back, because only the last READs are remembered.
    #[inline]
    pub fn may_read_since(&self, checkpoint: &ResponseCheckpoint) -> bool {
        self.resources.saved().wrapping_sub(checkpoint.saved) < self.resources.capacity()
    }

    /// Takes back all responses since `checkpoint`: they were reported as sent, and are not.
    ///
    /// Since then, no request may have been executed except new READs that
    /// [`Responder::may_read_since`] allowed.
    #[cold]
    pub fn take_back_responses(&mut self, checkpoint: ResponseCheckpoint) {
        self.stream = checkpoint.stream;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_resp_checkpoint))]
mod tests {
    use super::*;
    use crate::responder::{
        Verdict,
        MAX_RD_ATOMIC, //
    };
    use crate::testutil::*;

    #[test]
    fn responses_taken_back_are_sent_again() {
        let mut rx = responder();
        assert!(matches!(
            request(&mut rx, &read(2 * MTU + 1)),
            Verdict::Read(_)
        ));
        assert_eq!(rx.start_read(Ok(())), None);
        let whole = [
            (Opcode::RcReadResponseFirst, 0),
            (Opcode::RcReadResponseMiddle, 1),
            (Opcode::RcReadResponseLast, 2),
        ];
        let checkpoint = rx.checkpoint_responses();
        rx.response_sent();
        rx.take_back_responses(checkpoint);
        check_responses(&mut rx, &whole);
        rx.take_back_responses(checkpoint);
        rx.response_sent();
        let checkpoint = rx.checkpoint_responses();
        check_responses(&mut rx, &whole[1..]);
        rx.take_back_responses(checkpoint);
        assert!(rx.read_in_progress());
        check_responses(&mut rx, &whole[1..]);
    }

    #[test]
    fn responses_to_several_reads_are_taken_back() {
        let mut rx = responder();
        let mut transmit = read(MTU + 1);
        let expected = [
            (Opcode::RcReadResponseFirst, 0, 1),
            (Opcode::RcReadResponseLast, 1, 1),
            (Opcode::RcReadResponseOnly, 2, 2),
            (Opcode::RcReadResponseOnly, 3, 3),
        ];
        let mut checkpoint = None;
        for (psn, len) in [(0, MTU + 1), (2, 1), (3, 0)] {
            transmit.psn = Psn::new(psn);
            transmit.reth = transmit.reth.map(|reth| Reth { len, ..reth });
            assert!(matches!(request(&mut rx, &transmit), Verdict::Read(_)));
            assert_eq!(rx.start_read(Ok(())), None);
            checkpoint = checkpoint.or(Some(rx.checkpoint_responses()));
            while rx.poll_response().is_some() {
                rx.response_sent();
            }
        }
        rx.take_back_responses(checkpoint.unwrap());
        for (opcode, psn, msn) in expected {
            let segment = rx.poll_response().unwrap();
            assert_eq!((segment.opcode, segment.psn.get()), (opcode, psn));
            assert_eq!(segment.aeth.map(|aeth| aeth.msn), Some(msn));
            rx.response_sent();
        }
        assert!(!rx.is_busy());
        assert_eq!(rx.epsn().get(), 4);
    }

    /// The peer may have more READs outstanding than are remembered.
    #[test]
    fn last_reads_are_taken_back() {
        // CAST: 16.
        let last = MAX_RD_ATOMIC as u32;
        let mut rx = responder();
        let mut transmit = read(1);
        let mut execute = |rx: &mut Responder, psn: u32| {
            transmit.psn = Psn::new(psn);
            assert!(matches!(request(rx, &transmit), Verdict::Read(_)));
            assert_eq!(rx.start_read(Ok(())), None);
        };
        execute(&mut rx, 0);
        let checkpoint = rx.checkpoint_responses();
        rx.response_sent();
        for psn in 1..=last {
            assert!(rx.may_read_since(&checkpoint));
            execute(&mut rx, psn);
            rx.response_sent();
        }
        assert!(!rx.may_read_since(&checkpoint));
        rx.take_back_responses(checkpoint);
        for psn in 0..=last {
            let segment = rx.poll_response();
            assert_eq!(segment.map(|segment| segment.psn.get()), Some(psn));
            rx.response_sent();
        }
        assert!(!rx.is_busy());
    }
}
