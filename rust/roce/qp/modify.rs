// SPDX-License-Identifier: GPL-2.0

//! Planning of a modification, which checks everything and changes nothing.
//!
//! A verb that modifies a queue pair must change all or nothing. So [`modify`] is a pure function
//! that returns the new state and attributes. The driver checks the address vector, and then
//! commits the result under the locks of the queue pair.

use super::{
    attr::{
        AttrMask,
        Attrs,
        Limits, //
    },
    state::State,
    table::{
        self,
        TransitionError, //
    },
    ErrnoKind,
    QpType, //
};

/// `IB_MIG_MIGRATED`: the state of a queue pair without a second path.
const MIGRATED: u32 = 0;

/// The reason for refusing a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// The driver does not support these attributes.
    Unsupported(AttrMask),
    /// The table of transitions does not allow the modification.
    Transition(TransitionError),
    /// The value of this attribute is out of range, or `CUR_STATE` is not the current state.
    Value(AttrMask),
    /// The send queue has not drained: only moves to RESET and ERR are possible.
    Draining,
}

impl ModifyError {
    /// Returns the errno of the error.
    pub const fn errno_kind(self) -> ErrnoKind {
        match self {
            ModifyError::Unsupported(_) => ErrnoKind::Unsupported,
            ModifyError::Transition(_) | ModifyError::Value(_) | ModifyError::Draining => {
                ErrnoKind::Invalid
            }
        }
    }
}

impl From<TransitionError> for ModifyError {
    fn from(error: TransitionError) -> Self {
        ModifyError::Transition(error)
    }
}

/// Plans a modification of a queue pair in `state` with the attributes `stored`.
///
/// Returns the next state and attributes. `mask` selects attributes, and `value` returns the value
/// of each in `struct ib_qp_attr`; the caller checks the address vector. A move to RESET resets all
/// attributes.
///
/// # Errors
///
/// A [`ModifyError`] for the first rule that is broken.
pub fn modify(
    ty: QpType,
    state: State,
    stored: &Attrs,
    mask: AttrMask,
    value: impl Fn(AttrMask) -> u32,
    limits: &Limits,
) -> Result<(State, Attrs), ModifyError> {
    let unsupported = mask.and(AttrMask::NOT_CARRIED);
    if !unsupported.is_empty() {
        return Err(ModifyError::Unsupported(unsupported));
    }

    if mask.contains(AttrMask::CUR_STATE) && value(AttrMask::CUR_STATE) != state.as_ib() {
        return Err(ModifyError::Value(AttrMask::CUR_STATE));
    }
    let next = if mask.contains(AttrMask::STATE) {
        State::from_ib(value(AttrMask::STATE)).ok_or(ModifyError::Value(AttrMask::STATE))?
    } else {
        state
    };
    table::check(ty, state, next, mask)?;
    if limits.draining && state == State::Sqd && !matches!(next, State::Reset | State::Err) {
        return Err(ModifyError::Draining);
    }

    let mut attrs = match next {
        State::Reset => Attrs::RESET,
        // `sqd_notify` is valid for one move to SQD.
        State::Sqd if state != State::Sqd => Attrs {
            sqd_notify: false,
            ..*stored
        },
        _ => *stored,
    };
    attrs
        .set(mask, &value, limits)
        .map_err(ModifyError::Value)?;
    let migration = AttrMask::PATH_MIG_STATE;
    if mask.contains(migration) && value(migration) != MIGRATED {
        return Err(ModifyError::Value(migration));
    }
    Ok((next, attrs))
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_modify))]
mod tests {
    use super::*;
    use crate::qp::Mtu;
    use crate::testutil::*;

    const LIMITS: Limits = Limits {
        mtu: Mtu::B1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 32,
        draining: false,
    };

    /// Returns a value that is in range for RC.
    fn good(attribute: AttrMask) -> u32 {
        match attribute {
            AttrMask::EN_SQD_ASYNC_NOTIFY | AttrMask::PORT => 1,
            AttrMask::ACCESS_FLAGS => 0xf,
            AttrMask::QKEY => 0x1111_1111,
            AttrMask::PATH_MTU => 3,
            AttrMask::TIMEOUT | AttrMask::MIN_RNR_TIMER => 31,
            AttrMask::RETRY_CNT | AttrMask::RNR_RETRY => 7,
            AttrMask::RQ_PSN => 0x00ff_ffff,
            AttrMask::SQ_PSN => 0x0012_3456,
            AttrMask::MAX_QP_RD_ATOMIC => 16,
            AttrMask::MAX_DEST_RD_ATOMIC => 32,
            AttrMask::DEST_QPN => 0x00ab_cdef,
            _ => 0,
        }
    }

    /// Moves to the next state with every attribute that the transition allows.
    fn go(
        ty: QpType,
        (state, attrs): (State, Attrs),
        next: State,
        value: impl Fn(AttrMask) -> u32,
    ) -> Result<(State, Attrs), ModifyError> {
        let rule = table::find(state, next).map_or(table::Rule::NONE, |t| t.rule(ty));
        let mask = rule
            .required
            .or(rule.optional.without(AttrMask::NOT_CARRIED))
            .or(AttrMask::STATE);
        let value = |attribute| match attribute {
            AttrMask::STATE => next.as_ib(),
            AttrMask::CUR_STATE => state.as_ib(),
            _ => value(attribute),
        };
        modify(ty, state, &attrs, mask, value, &LIMITS)
    }

    fn up_to(
        ty: QpType,
        last: State,
        value: impl Fn(AttrMask) -> u32,
    ) -> Result<(State, Attrs), ModifyError> {
        let mut at = (State::Reset, Attrs::RESET);
        for next in [State::Init, State::Rtr, State::Rts, State::Sqd] {
            at = go(ty, at, next, &value)?;
            if next == last {
                break;
            }
        }
        Ok(at)
    }

    #[test]
    fn query_returns_values_set() -> Result<(), ModifyError> {
        let (state, attrs) = up_to(QpType::Rc, State::Sqd, good)?;
        assert_eq!(state, State::Sqd);
        let expected = Attrs {
            path_mtu: Mtu::B1024,
            qkey: Qkey::new(0),
            rq_psn: Psn::new(0x00ff_ffff),
            sq_psn: Psn::new(0x0012_3456),
            dest_qpn: Qpn::new(0x00ab_cdef),
            access: attrs.access,
            pkey_index: 0,
            sqd_notify: true,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 32,
            min_rnr_timer: 31,
            port_num: 1,
            timeout: 31,
            retry_cnt: 7,
            rnr_retry: 7,
        };
        assert_eq!(attrs, expected);
        assert_eq!(attrs.access.bits(), 0xf);
        attrs.for_each(|attribute, value| {
            let wanted = match attribute {
                AttrMask::QKEY => 0,
                _ => good(attribute),
            };
            assert_eq!((attribute, value), (attribute, wanted));
        });
        Ok(())
    }

    #[test]
    fn every_type_can_be_brought_up_and_reset() -> Result<(), ModifyError> {
        for ty in QpType::ALL {
            for last in [State::Init, State::Rtr, State::Rts, State::Sqd] {
                let at = up_to(ty, last, good)?;
                assert_eq!(at.0, last);
                assert_eq!(go(ty, at, State::Err, good).map(|at| at.0), Ok(State::Err));
                let reset = go(ty, at, State::Reset, good);
                assert_eq!(reset, Ok((State::Reset, Attrs::RESET)));
            }
        }
        Ok(())
    }

    #[test]
    fn single_bad_value_is_refused() {
        // Each is the only value that is out of range for RC.
        let bad = [
            (AttrMask::PATH_MTU, 4),
            (AttrMask::PATH_MTU, 0),
            (AttrMask::PATH_MTU, 6),
            (AttrMask::PATH_MIG_STATE, 1),
            (AttrMask::RQ_PSN, 1 << 24),
            (AttrMask::SQ_PSN, 1 << 24),
            (AttrMask::DEST_QPN, 1 << 24),
            (AttrMask::ACCESS_FLAGS, 1 << 5),
            (AttrMask::PKEY_INDEX, 1),
            (AttrMask::MAX_QP_RD_ATOMIC, 17),
            (AttrMask::MAX_DEST_RD_ATOMIC, 33),
            (AttrMask::MIN_RNR_TIMER, 32),
            (AttrMask::PORT, 0),
            (AttrMask::PORT, 2),
            (AttrMask::TIMEOUT, 32),
            (AttrMask::RETRY_CNT, 8),
            (AttrMask::RNR_RETRY, 8),
        ];
        for (bit, value) in bad {
            let values = |attribute| {
                if attribute == bit {
                    value
                } else {
                    good(attribute)
                }
            };
            let error = up_to(QpType::Rc, State::Rts, values).map(|at| at.0);
            assert_eq!(error, Err(ModifyError::Value(bit)));
        }
    }

    #[test]
    fn current_and_next_state_are_checked() {
        let mask = AttrMask::STATE.or(AttrMask::CUR_STATE);
        let plan = |current, next| {
            let value = |attribute| match attribute {
                AttrMask::STATE => next,
                _ => current,
            };
            modify(QpType::Ud, State::Rts, &Attrs::RESET, mask, value, &LIMITS)
        };
        let bad = |attribute| Err(ModifyError::Value(attribute));
        assert!(plan(3, 3).is_ok());
        assert_eq!(plan(4, 3), bad(AttrMask::CUR_STATE));
        assert_eq!(plan(99, 3), bad(AttrMask::CUR_STATE));
        assert_eq!(plan(3, 7), bad(AttrMask::STATE));
        let none = Err(ModifyError::Transition(TransitionError::NoTransition));
        assert_eq!(plan(3, 1), none);
    }

    #[test]
    fn modify_without_state_changes_only_attributes() {
        let plan = |state| {
            let mask = AttrMask::QKEY;
            modify(QpType::Ud, state, &Attrs::RESET, mask, good, &LIMITS)
        };
        assert_eq!(plan(State::Init).map(|at| at.0), Ok(State::Init));
        assert_eq!(plan(State::Rts).map(|at| at.1.qkey.get()), Ok(0x1111_1111));
        let none = Err(ModifyError::Transition(TransitionError::NoTransition));
        assert_eq!(plan(State::Rtr), none);
    }

    #[test]
    fn unsupported_attributes_are_refused() {
        for attribute in [AttrMask::ALT_PATH, AttrMask::CAP, AttrMask::RATE_LIMIT] {
            let mask = AttrMask::STATE.or(attribute);
            let error = modify(QpType::Rc, State::Rts, &Attrs::RESET, mask, good, &LIMITS);
            assert_eq!(error, Err(ModifyError::Unsupported(attribute)));
            assert_eq!(
                error.map_err(ModifyError::errno_kind),
                Err(ErrnoKind::Unsupported)
            );
        }
    }

    #[test]
    fn sq_drained_event_is_raised_only_if_requested() {
        let stored = Attrs {
            sqd_notify: true,
            ..Attrs::RESET
        };
        let value = |attribute| match attribute {
            AttrMask::STATE => State::Sqd.as_ib(),
            _ => good(attribute),
        };
        let notify = |state, mask| {
            modify(QpType::Rc, state, &stored, mask, value, &LIMITS).map(|at| at.1.sqd_notify)
        };
        let both = AttrMask::STATE.or(AttrMask::EN_SQD_ASYNC_NOTIFY);
        assert_eq!(notify(State::Rts, AttrMask::STATE), Ok(false));
        assert_eq!(notify(State::Rts, both), Ok(true));
        assert_eq!(notify(State::Sqd, AttrMask::STATE), Ok(true));
    }

    #[test]
    fn draining_qp_can_only_go_to_err_or_reset() {
        let limits = Limits {
            draining: true,
            ..LIMITS
        };
        for (next, allowed) in [
            (State::Rts, false),
            (State::Sqd, false),
            (State::Err, true),
            (State::Reset, true),
        ] {
            let value = |_| next.as_ib();
            let mask = AttrMask::STATE;
            let plan = modify(QpType::Rc, State::Sqd, &Attrs::RESET, mask, value, &limits);
            assert_eq!(plan.is_ok(), allowed);
        }
    }
}
