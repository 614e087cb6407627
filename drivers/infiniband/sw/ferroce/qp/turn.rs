// SPDX-License-Identifier: GPL-2.0

//! What who posts and who takes responses tell each other.

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    barrier::{
        smp_mb,
        Full, //
    }, //
};
use roce::turn::{
    Next,
    Turn, //
};

/// Whether the send half waits for its peer, and who goes on when that has responded. Written under
/// the lock of the half, but for [`Turns::ask`], and read without.
pub(super) struct Turns {
    stalled: Atomic<bool>,
    /// A [`Turn`].
    turn: Atomic<u32>,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Self {
            stalled: Atomic::new(false),
            turn: Atomic::new(Turn::Response.to_raw()),
        }
    }

    /// Says whether what is posted now has to wait, see [`Requester::is_stalled`]. Returns whether
    /// it had to until now and has not any longer: then there may be requests of those who were
    /// told so.
    ///
    /// [`Requester::is_stalled`]: roce::requester::Requester::is_stalled
    #[inline]
    pub(super) fn set_stalled(&self, stalled: bool) -> bool {
        let was = self.stalled.load(Relaxed);

        if was != stalled {
            self.stalled.store(stalled, Relaxed);
        }
        let ends = was && !stalled;
        if ends {
            // Pairs with that of `is_stalled`: either the request is found from now on, or who has
            // posted it finds out that nobody waits.
            smp_mb(Full);
        }
        ends
    }

    /// Returns whether the half finds by itself what the caller has put into the send queue: once a
    /// response has come, or is overdue. Nothing of it could be sent before.
    #[inline]
    pub(super) fn is_stalled(&self) -> bool {
        smp_mb(Full);
        self.stalled.load(Relaxed)
    }

    /// Who posts on a CPU asks for another one. A hint.
    pub(super) fn ask(&self, cpu: u32) {
        let asked = Turn::Asked { cpu };
        // If somebody else has asked, or it was given away, so be it.
        let _ = self
            .turn
            .cmpxchg(Turn::Response.to_raw(), asked.to_raw(), Relaxed);
    }

    /// Returns whether it is the turn of who posts. A hint.
    #[inline]
    pub(super) fn is_posters(&self) -> bool {
        self.get() == Turn::Poster
    }

    /// A response was taken on a CPU; returns what to do next.
    #[inline]
    pub(super) fn on_response(&self, cpu: u32) -> Next {
        let turn = self.get();
        let (then, next) = turn.on_response(cpu);
        if then != turn {
            self.turn.store(then.to_raw(), Relaxed);
        }
        next
    }

    /// Somebody runs the half, whoever it is.
    #[inline]
    pub(super) fn taken(&self) {
        if self.get() != Turn::Response {
            self.turn.store(Turn::Response.to_raw(), Relaxed);
        }
    }

    #[inline]
    fn get(&self) -> Turn {
        Turn::from_raw(self.turn.load(Relaxed))
    }
}
