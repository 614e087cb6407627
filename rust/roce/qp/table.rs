// SPDX-License-Identifier: GPL-2.0

//! The table of transitions of a queue pair (IBTA volume 1, section 10.3.1 and the tables of Modify
//! QP).
//!
//! It agrees with `ib_modify_qp_is_ok()` of the RDMA core: a test compares the two over all states
//! and types, and over masks with one attribute more or less than those of a rule.

use super::{
    attr::AttrMask,
    state::State,
    QpType, //
};

/// A transition, and its rule for each service type.
#[derive(Debug)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after; the same as `from` where only attributes change.
    pub to: State,
    /// The rules of the types that require or allow any attribute. The other types allow none.
    rules: &'static [(&'static [QpType], Rule)],
}

/// The attributes that a transition requires and allows, besides [`AttrMask::STATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Attributes without which the transition fails.
    pub required: AttrMask,
    /// Attributes that may be set, too.
    pub optional: AttrMask,
}

/// The reason why the table does not allow a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionError {
    /// There is no transition between the two states.
    NoTransition,
    /// These attributes are required and not set.
    Missing(AttrMask),
    /// These attributes are set and not allowed.
    NotAllowed(AttrMask),
}

/// Writes a [`Transition`] per entry of `From => To { Types: required(…) optional(…); }`.
macro_rules! transitions {
    ($($from:ident => $to:ident {
        $($($ty:ident)|+: $(required($($required:ident)*))? $(optional($($optional:ident)*))?;)*
    })*) => {
        &[$(Transition {
            from: State::$from,
            to: State::$to,
            rules: &[$((
                &[$(QpType::$ty),+],
                Rule {
                    required: AttrMask::NONE$($(.or(AttrMask::$required))*)?,
                    optional: AttrMask::NONE$($(.or(AttrMask::$optional))*)?,
                },
            ),)*],
        },)*]
    };
}

/// Every transition that a modification can make, in the order of the states.
pub const TRANSITIONS: &[Transition] = transitions! {
    Reset => Reset {}
    Reset => Init {
        Rc | Uc: required(PKEY_INDEX PORT ACCESS_FLAGS);
        Ud: required(PKEY_INDEX PORT QKEY);
        Gsi: required(PKEY_INDEX QKEY);
        RawPacket: required(PORT);
    }

    Init => Reset {}
    Init => Init {
        Rc | Uc: optional(PKEY_INDEX PORT ACCESS_FLAGS);
        Ud: optional(PKEY_INDEX PORT QKEY);
        Gsi: optional(PKEY_INDEX QKEY);
    }
    Init => Rtr {
        Rc: required(AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER)
            optional(ALT_PATH ACCESS_FLAGS PKEY_INDEX);
        Uc: required(AV PATH_MTU DEST_QPN RQ_PSN) optional(ALT_PATH ACCESS_FLAGS PKEY_INDEX);
        Ud | Gsi: optional(PKEY_INDEX QKEY);
    }
    Init => Err {}

    Rtr => Reset {}
    Rtr => Rts {
        Rc: required(TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC)
            optional(CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE);
        Uc: required(SQ_PSN) optional(CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE);
        Ud | Gsi: required(SQ_PSN) optional(CUR_STATE QKEY);
    }
    Rtr => Err {}

    Rts => Reset {}
    Rts => Rts {
        Rc: optional(CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE MIN_RNR_TIMER);
        Uc: optional(CUR_STATE ACCESS_FLAGS ALT_PATH PATH_MIG_STATE);
        Ud | Gsi: optional(CUR_STATE QKEY);
    }
    Rts => Sqd {
        Rc | Uc | Ud | Gsi: optional(EN_SQD_ASYNC_NOTIFY);
    }
    Rts => Err {}

    Sqd => Reset {}
    Sqd => Rts {
        Rc: optional(CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE);
        Uc: optional(CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE);
        Ud | Gsi: optional(CUR_STATE QKEY);
    }
    Sqd => Sqd {
        Rc: optional(PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC
                     ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE);
        Uc: optional(AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE);
        Ud | Gsi: optional(PKEY_INDEX QKEY);
    }
    Sqd => Err {}

    Sqe => Reset {}
    Sqe => Rts {
        Uc: optional(CUR_STATE ACCESS_FLAGS);
        Ud | Gsi: optional(CUR_STATE QKEY);
    }
    Sqe => Err {}

    Err => Reset {}
    Err => Err {}
};

impl Transition {
    /// Returns the rule for a service type.
    pub fn rule(&self, ty: QpType) -> Rule {
        self.rules
            .iter()
            .find(|(types, _)| types.contains(&ty))
            .map_or(Rule::NONE, |(_, rule)| *rule)
    }
}

impl Rule {
    /// The rule of a transition that allows no attribute.
    pub const NONE: Rule = Rule {
        required: AttrMask::NONE,
        optional: AttrMask::NONE,
    };

    /// Checks that `mask` contains all required attributes, and only allowed ones.
    ///
    /// The next state may always be given, and so may a rate limit, as in the RDMA core.
    pub fn check(&self, mask: AttrMask) -> Result<(), TransitionError> {
        let missing = self.required.without(mask);
        if !missing.is_empty() {
            return Err(TransitionError::Missing(missing));
        }
        let excess = mask
            .without(self.required)
            .without(self.optional)
            .without(AttrMask::STATE)
            .without(AttrMask::RATE_LIMIT);
        if !excess.is_empty() {
            return Err(TransitionError::NotAllowed(excess));
        }
        Ok(())
    }
}

/// Returns the transition between two states, if there is one.
pub fn find(current: State, next: State) -> Option<&'static Transition> {
    TRANSITIONS
        .iter()
        .find(|transition| transition.from == current && transition.to == next)
}

/// Checks a modification against the table.
///
/// # Errors
///
/// See [`TransitionError`].
pub fn check(
    ty: QpType,
    current: State,
    next: State,
    mask: AttrMask,
) -> Result<(), TransitionError> {
    find(current, next)
        .ok_or(TransitionError::NoTransition)?
        .rule(ty)
        .check(mask)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_table))]
mod tests {
    use super::*;

    #[test]
    fn transitions_and_rules_are_unique() {
        for (at, transition) in TRANSITIONS.iter().enumerate() {
            let same =
                |other: &&Transition| (other.from, other.to) == (transition.from, transition.to);
            assert_eq!(TRANSITIONS.iter().position(|t| same(&t)), Some(at));
            for ty in QpType::ALL {
                let rules = transition.rules.iter();
                assert!(rules.filter(|(types, _)| types.contains(&ty)).count() <= 1);
            }
        }
    }

    #[test]
    fn required_and_optional_are_disjoint() {
        for transition in TRANSITIONS {
            for ty in QpType::ALL {
                let rule = transition.rule(ty);
                assert!(rule.required.and(rule.optional).is_empty());
            }
        }
    }

    #[test]
    fn transitions_to_err_and_reset() {
        for state in State::ALL {
            assert!(find(state, State::Reset).is_some());
            assert_eq!(find(state, State::Err).is_some(), state != State::Reset);
        }
    }

    #[test]
    fn errors_name_attributes() {
        let mask = AttrMask::STATE.or(AttrMask::PORT).or(AttrMask::AV);
        let missing = AttrMask::PKEY_INDEX.or(AttrMask::QKEY);
        assert_eq!(
            check(QpType::Ud, State::Reset, State::Init, mask),
            Err(TransitionError::Missing(missing))
        );
        assert_eq!(
            check(QpType::Ud, State::Reset, State::Init, mask.or(missing)),
            Err(TransitionError::NotAllowed(AttrMask::AV))
        );
        assert_eq!(
            check(QpType::Ud, State::Init, State::Rts, AttrMask::STATE),
            Err(TransitionError::NoTransition)
        );
    }

    #[test]
    fn rc_sqe_to_rts_allows_no_attributes() {
        let rts = |mask| check(QpType::Rc, State::Sqe, State::Rts, mask);
        assert_eq!(rts(AttrMask::STATE), Ok(()));
        assert_eq!(
            rts(AttrMask::CUR_STATE),
            Err(TransitionError::NotAllowed(AttrMask::CUR_STATE))
        );
    }
}
