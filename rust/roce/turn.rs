// SPDX-License-Identifier: GPL-2.0

//! Who sends the next requests of a connection (RC) that waits for its peer.
//!
//! Usually who takes the response does, at once. If the peer is on the same host, the response is
//! where the request was sent: whoever sent first does all the work of both sides from then on, and
//! who posts can only wait. With one queue pair that is as it should be, the two work at the same
//! time. But when one process waits for several queue pairs, all of them may come to be the work of
//! one CPU. So who finds that it posts faster than its queue pairs can send asks, for one of them
//! after the other, that another CPU goes on: its own, or if it is that which works already, one
//! that the scheduler finds for the work item.
//!
//! ```text
//!             ask                 response on another CPU
//!   Response -----> Asked { cpu } -----------------------> Poster
//!      ^                |         response on that CPU
//!      |                +--------------------------------> WorkItem
//!      |                                                    |
//!      +---------- the half is run by somebody -------------+
//! ```
//!
//! Whoever runs the half takes the turn, asked for or not. Nothing depends on that it is taken:
//! with each that is given away the work item is queued.

/// Whose turn it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// That of whoever takes the response.
    #[default]
    Response,
    /// The same, once more: who posts on this CPU has asked for another one.
    Asked {
        /// Number of the CPU.
        cpu: u32,
    },
    /// That of who posts next, or else of the work item.
    Poster,
    /// That of the work item.
    WorkItem,
}

/// What who has taken a response does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Runs the half: sends what may be sent by now, and completes what is over.
    Run,
    /// Queues the work item.
    Leave,
    /// Nothing: the work item is queued, or about to be.
    Left,
}

impl Turn {
    /// The number of [`Turn::Asked`] for CPU 0.
    const ASKED: u32 = 3;

    /// Somebody on a CPU has taken a response; returns whose turn it is from now on, and what he
    /// does next.
    #[inline]
    pub fn on_response(self, here: u32) -> (Turn, Next) {
        match self {
            Turn::Response => (self, Next::Run),
            Turn::Asked { cpu } if cpu == here => (Turn::WorkItem, Next::Leave),
            Turn::Asked { .. } => (Turn::Poster, Next::Leave),
            Turn::Poster | Turn::WorkItem => (self, Next::Left),
        }
    }

    /// Returns a number for it, to be kept in an atomic.
    #[inline]
    pub const fn to_raw(self) -> u32 {
        match self {
            Turn::Response => 0,
            Turn::Poster => 1,
            Turn::WorkItem => 2,
            Turn::Asked { cpu } => Self::ASKED.saturating_add(cpu),
        }
    }

    /// Returns the turn of a number from [`Turn::to_raw`].
    #[inline]
    pub const fn from_raw(raw: u32) -> Turn {
        match raw {
            0 => Turn::Response,
            1 => Turn::Poster,
            2 => Turn::WorkItem,
            asked => Turn::Asked {
                cpu: asked.saturating_sub(Self::ASKED),
            },
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_turn))]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_given_away_once() {
        let (turn, next) = Turn::Response.on_response(0);
        assert_eq!((turn, next), (Turn::Response, Next::Run));

        let asked = Turn::Asked { cpu: 1 };
        assert_eq!(asked.on_response(0), (Turn::Poster, Next::Leave));
        assert_eq!(asked.on_response(1), (Turn::WorkItem, Next::Leave));
        for turn in [Turn::Poster, Turn::WorkItem] {
            // Responses that come before somebody has taken it.
            assert_eq!(turn.on_response(0), (turn, Next::Left));
        }
    }

    #[test]
    fn a_turn_is_its_number() {
        let cpus = [0, 1, 4095];
        for turn in [Turn::Response, Turn::Poster, Turn::WorkItem]
            .into_iter()
            .chain(cpus.map(|cpu| Turn::Asked { cpu }))
        {
            assert_eq!(Turn::from_raw(turn.to_raw()), turn);
        }
    }
}
