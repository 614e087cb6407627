// SPDX-License-Identifier: GPL-2.0

//! States of a queue pair.

/// State of a queue pair (IBTA volume 1, section 10.3.1).
///
/// The numbers are those of `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum State {
    /// Created or reset: no request can be posted, and no packet is received.
    #[default]
    Reset = 0,
    /// Receives can be posted; packets are dropped.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send, too.
    Rts = 3,
    /// Send queue drained: started requests are finished, no other is started.
    Sqd = 4,
    /// Send queue error: sends are flushed, receives continue. RC does not have this state.
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl State {
    /// Every state, in the order of their numbers.
    pub const ALL: [State; 7] = [
        State::Reset,
        State::Init,
        State::Rtr,
        State::Rts,
        State::Sqd,
        State::Sqe,
        State::Err,
    ];

    /// Returns the number in `enum ib_qp_state`.
    #[inline]
    pub const fn as_ib(self) -> u32 {
        self as u32
    }

    /// Converts a number of `enum ib_qp_state`.
    #[inline]
    pub const fn from_ib(ib: u32) -> Option<State> {
        match ib {
            0 => Some(State::Reset),
            1 => Some(State::Init),
            2 => Some(State::Rtr),
            3 => Some(State::Rts),
            4 => Some(State::Sqd),
            5 => Some(State::Sqe),
            6 => Some(State::Err),
            _ => None,
        }
    }

    /// Returns the usual abbreviation.
    pub const fn name(self) -> &'static str {
        match self {
            State::Reset => "RESET",
            State::Init => "INIT",
            State::Rtr => "RTR",
            State::Rts => "RTS",
            State::Sqd => "SQD",
            State::Sqe => "SQE",
            State::Err => "ERR",
        }
    }

    /// Returns whether send requests may be posted, if only to wait or to be flushed.
    #[inline]
    pub const fn takes_sends(self) -> bool {
        matches!(self, State::Rts | State::Sqd | State::Sqe | State::Err)
    }

    /// Returns whether receive requests may be posted, if only to be flushed.
    #[inline]
    pub const fn takes_receives(self) -> bool {
        !matches!(self, State::Reset)
    }

    /// Returns whether request packets are executed.
    #[inline]
    pub const fn is_receiving(self) -> bool {
        matches!(self, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Returns whether request packets are sent: all in RTS, those of started messages in SQD.
    #[inline]
    pub const fn is_sending(self) -> bool {
        matches!(self, State::Rts | State::Sqd)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_state))]
mod tests {
    use super::*;

    #[test]
    fn state_numbers_round_trip() {
        for (number, state) in (0u32..).zip(State::ALL) {
            assert_eq!(state.as_ib(), number);
            assert_eq!(State::from_ib(number), Some(state));
        }
        assert_eq!(State::from_ib(7), None);
        assert_eq!(State::from_ib(u32::MAX), None);
    }

    #[test]
    fn states_allow_posting_receiving_and_sending() {
        // Posting sends, posting receives, receiving and sending.
        let expected = [
            (State::Reset, [false, false, false, false]),
            (State::Init, [false, true, false, false]),
            (State::Rtr, [false, true, true, false]),
            (State::Rts, [true, true, true, true]),
            (State::Sqd, [true, true, true, true]),
            (State::Sqe, [true, true, true, false]),
            (State::Err, [true, true, false, false]),
        ];
        for (state, allowed) in expected {
            let found = [
                state.takes_sends(),
                state.takes_receives(),
                state.is_receiving(),
                state.is_sending(),
            ];
            assert_eq!(found, allowed);
        }
    }
}
