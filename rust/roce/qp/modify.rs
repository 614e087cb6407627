// SPDX-License-Identifier: GPL-2.0

//! Planning of a modification: everything is checked, nothing is changed.
//!
//! A verb that modifies a queue pair must change all or nothing. So [`modify`] is a pure function
//! from what there is and what is asked for to what will be; the shell checks the address vector,
//! which is its own, and then commits the result under the locks of the queue pair.

use super::{
    attr::{
        Access,
        AttrMask,
        Attrs,
        Mtu,
        Request, //
    },
    state::State,
    table::{
        self,
        TransitionError, //
    },
    ErrnoKind,
    QpType, //
};
use crate::{
    ids::{
        Qkey,
        Qpn, //
    },
    psn::Psn, //
};

/// Largest value of a field of 24 bits.
const MAX_24_BITS: u32 = 0x00ff_ffff;
/// Largest code of a timer.
const MAX_TIMER_CODE: u8 = 31;
/// Largest retry count.
const MAX_RETRIES: u8 = 7;
/// The one port of the device.
const PORT: u32 = 1;
/// The one P_Key of the port.
const PKEY_INDEX: u16 = 0;
/// `IB_MIG_MIGRATED`: the state of a queue pair without a second path.
const MIGRATED: u32 = 0;

/// What the device, the port and the send queue allow at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Active MTU of the port.
    pub mtu: Mtu,
    /// Most RDMA READs that a queue pair may have outstanding at its peer.
    pub max_rd_atomic: u8,
    /// Most RDMA READs that a peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// The queue pair is in SQD, and what it had begun to send is not finished.
    pub draining: bool,
}

/// Why a modification was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// These attributes are not offered by this driver.
    Unsupported(AttrMask),
    /// The table of transitions does not allow it.
    Transition(TransitionError),
    /// The value of this attribute is out of its range, or for `CUR_STATE` not the truth.
    Value(AttrMask),
    /// The send queue has to drain first, or the queue pair has to be given up.
    Draining,
}

impl ModifyError {
    /// Returns which errno it turns into.
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
/// Returns the state and the attributes that follow. `mask` selects what of `request` counts; the
/// address vector, if selected, is checked by the caller. Going to RESET forgets all attributes.
///
/// # Errors
///
/// A [`ModifyError`] for the first rule that is broken.
pub fn modify(
    ty: QpType,
    state: State,
    stored: &Attrs,
    request: &Request,
    mask: AttrMask,
    limits: &Limits,
) -> Result<(State, Attrs), ModifyError> {
    let unsupported = mask.and(AttrMask::NOT_CARRIED);
    if !unsupported.is_empty() {
        return Err(ModifyError::Unsupported(unsupported));
    }

    let next = next_state(state, request, mask)?;
    table::check(ty, state, next, mask)?;
    if limits.draining && state == State::Sqd && !matches!(next, State::Reset | State::Err) {
        return Err(ModifyError::Draining);
    }

    let mut attrs = match next {
        State::Reset => Attrs::RESET,
        // Whether to tell is said anew each time.
        State::Sqd if state != State::Sqd => Attrs {
            sqd_notify: false,
            ..*stored
        },
        _ => *stored,
    };
    merge(&mut attrs, request, mask, limits)?;
    attrs.state = next;
    Ok((next, attrs))
}

/// Returns the state to go to: the current one unless another is given.
fn next_state(state: State, request: &Request, mask: AttrMask) -> Result<State, ModifyError> {
    if mask.contains(AttrMask::CUR_STATE) && request.cur_qp_state != state.as_ib() {
        return Err(ModifyError::Value(AttrMask::CUR_STATE));
    }
    if !mask.contains(AttrMask::STATE) {
        return Ok(state);
    }
    State::try_from(request.qp_state).map_err(|_| ModifyError::Value(AttrMask::STATE))
}

/// Checks every selected value and takes it over. On an error `attrs` is to be thrown away.
fn merge(
    attrs: &mut Attrs,
    request: &Request,
    mask: AttrMask,
    limits: &Limits,
) -> Result<(), ModifyError> {
    // Takes over `$value`, an `Option` that is `None` if it is out of range, if `$bit` is selected.
    macro_rules! set {
        ($($field:ident, $bit:ident: $value:expr;)*) => {
            $(if mask.contains(AttrMask::$bit) {
                attrs.$field = $value.ok_or(ModifyError::Value(AttrMask::$bit))?;
            })*
        };
    }

    set! {
        sqd_notify, EN_SQD_ASYNC_NOTIFY: Some(request.en_sqd_async_notify != 0);
        access, ACCESS_FLAGS: Access::from_bits(request.qp_access_flags);
        pkey_index, PKEY_INDEX: at_most(request.pkey_index, PKEY_INDEX);
        port_num, PORT: Some(request.port_num).filter(|port| *port == PORT);
        qkey, QKEY: Some(Qkey::new(request.qkey));
        path_mtu, PATH_MTU: Mtu::from_ib(request.path_mtu).filter(|mtu| *mtu <= limits.mtu);
        timeout, TIMEOUT: at_most(request.timeout, MAX_TIMER_CODE);
        retry_cnt, RETRY_CNT: at_most(request.retry_cnt, MAX_RETRIES);
        rnr_retry, RNR_RETRY: at_most(request.rnr_retry, MAX_RETRIES);
        rq_psn, RQ_PSN: at_most(request.rq_psn, MAX_24_BITS).map(Psn::new);
        sq_psn, SQ_PSN: at_most(request.sq_psn, MAX_24_BITS).map(Psn::new);
        max_rd_atomic, MAX_QP_RD_ATOMIC: at_most(request.max_rd_atomic, limits.max_rd_atomic);
        max_dest_rd_atomic, MAX_DEST_RD_ATOMIC:
            at_most(request.max_dest_rd_atomic, limits.max_dest_rd_atomic);
        min_rnr_timer, MIN_RNR_TIMER: at_most(request.min_rnr_timer, MAX_TIMER_CODE);
        dest_qpn, DEST_QPN: at_most(request.dest_qp_num, MAX_24_BITS).map(Qpn::new);
    }
    if mask.contains(AttrMask::PATH_MIG_STATE) && request.path_mig_state != MIGRATED {
        return Err(ModifyError::Value(AttrMask::PATH_MIG_STATE));
    }
    Ok(())
}

/// Returns `value` unless it is above `max`.
fn at_most<T: PartialOrd>(value: T, max: T) -> Option<T> {
    if value <= max {
        Some(value)
    } else {
        None
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::macros::kunit_tests(roce_qp_modify))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        mtu: Mtu::B1024,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 32,
        draining: false,
    };

    const GOOD: Request = Request {
        qp_state: 0,
        cur_qp_state: 0,
        path_mtu: 3,
        path_mig_state: 0,
        qkey: 0x1111_1111,
        rq_psn: 0x00ff_ffff,
        sq_psn: 0x0012_3456,
        dest_qp_num: 0x00ab_cdef,
        qp_access_flags: 0xf,
        pkey_index: 0,
        en_sqd_async_notify: 1,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 32,
        min_rnr_timer: 31,
        port_num: 1,
        timeout: 31,
        retry_cnt: 7,
        rnr_retry: 7,
    };

    /// Makes the transition with everything that is required and everything that is allowed and
    /// carried.
    fn go(
        ty: QpType,
        (state, attrs): (State, Attrs),
        next: State,
        request: Request,
    ) -> Result<(State, Attrs), ModifyError> {
        let rule = table::find(state, next).map_or(table::Rule::NONE, |t| t.rule(ty));
        let mask = rule
            .required
            .or(rule.optional.without(AttrMask::NOT_CARRIED))
            .or(AttrMask::STATE);
        let request = Request {
            qp_state: next.as_ib(),
            cur_qp_state: state.as_ib(),
            ..request
        };
        modify(ty, state, &attrs, &request, mask, &LIMITS)
    }

    fn up_to(ty: QpType, last: State, request: Request) -> Result<(State, Attrs), ModifyError> {
        let mut at = (State::Reset, Attrs::RESET);
        for next in [State::Init, State::Rtr, State::Rts, State::Sqd] {
            at = go(ty, at, next, request)?;
            if next == last {
                break;
            }
        }
        Ok(at)
    }

    #[test]
    fn what_was_set_is_what_a_query_returns() -> Result<(), ModifyError> {
        let (state, attrs) = up_to(QpType::Rc, State::Sqd, GOOD)?;
        assert_eq!(state, State::Sqd);
        let expected = Attrs {
            state: State::Sqd,
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
        Ok(())
    }

    #[test]
    fn every_type_comes_up_and_goes_back() -> Result<(), ModifyError> {
        for ty in QpType::ALL {
            for last in [State::Init, State::Rtr, State::Rts, State::Sqd] {
                let at = up_to(ty, last, GOOD)?;
                assert_eq!(at.0, last);
                assert_eq!(go(ty, at, State::Err, GOOD).map(|at| at.0), Ok(State::Err));
                let reset = go(ty, at, State::Reset, GOOD);
                assert_eq!(reset, Ok((State::Reset, Attrs::RESET)));
            }
        }
        Ok(())
    }

    #[test]
    fn one_bad_value_is_enough() {
        type Spoil = fn(&mut Request);

        // Each puts exactly one attribute of RC out of its range.
        let bad: [(AttrMask, Spoil); 17] = [
            (AttrMask::PATH_MTU, |r| r.path_mtu = 4),
            (AttrMask::PATH_MTU, |r| r.path_mtu = 0),
            (AttrMask::PATH_MTU, |r| r.path_mtu = 6),
            (AttrMask::PATH_MIG_STATE, |r| r.path_mig_state = 1),
            (AttrMask::RQ_PSN, |r| r.rq_psn = 1 << 24),
            (AttrMask::SQ_PSN, |r| r.sq_psn = 1 << 24),
            (AttrMask::DEST_QPN, |r| r.dest_qp_num = 1 << 24),
            (AttrMask::ACCESS_FLAGS, |r| r.qp_access_flags = 1 << 5),
            (AttrMask::PKEY_INDEX, |r| r.pkey_index = 1),
            (AttrMask::MAX_QP_RD_ATOMIC, |r| r.max_rd_atomic = 17),
            (AttrMask::MAX_DEST_RD_ATOMIC, |r| r.max_dest_rd_atomic = 33),
            (AttrMask::MIN_RNR_TIMER, |r| r.min_rnr_timer = 32),
            (AttrMask::PORT, |r| r.port_num = 0),
            (AttrMask::PORT, |r| r.port_num = 2),
            (AttrMask::TIMEOUT, |r| r.timeout = 32),
            (AttrMask::RETRY_CNT, |r| r.retry_cnt = 8),
            (AttrMask::RNR_RETRY, |r| r.rnr_retry = 8),
        ];
        for (attribute, spoil) in bad {
            let mut request = GOOD;
            spoil(&mut request);
            let error = up_to(QpType::Rc, State::Rts, request).map(|at| at.0);
            assert_eq!(error, Err(ModifyError::Value(attribute)));
        }
    }

    #[test]
    fn states_are_checked() {
        let rts = AttrMask::STATE.or(AttrMask::CUR_STATE);
        let plan = |request| {
            modify(
                QpType::Ud,
                State::Rts,
                &Attrs::RESET,
                &request,
                rts,
                &LIMITS,
            )
        };
        let ask = |current: u32, next| Request {
            qp_state: next,
            cur_qp_state: current,
            ..GOOD
        };
        assert!(plan(ask(3, 3)).is_ok());
        assert_eq!(
            plan(ask(4, 3)),
            Err(ModifyError::Value(AttrMask::CUR_STATE))
        );
        assert_eq!(
            plan(ask(99, 3)),
            Err(ModifyError::Value(AttrMask::CUR_STATE))
        );
        assert_eq!(plan(ask(3, 7)), Err(ModifyError::Value(AttrMask::STATE)));
        let none = Err(ModifyError::Transition(TransitionError::NoTransition));
        assert_eq!(plan(ask(3, 1)), none);
    }

    #[test]
    fn without_a_state_only_attributes_change() {
        let plan = |state| {
            let mask = AttrMask::QKEY;
            modify(QpType::Ud, state, &Attrs::RESET, &GOOD, mask, &LIMITS)
        };
        assert_eq!(plan(State::Init).map(|at| at.0), Ok(State::Init));
        assert_eq!(plan(State::Rts).map(|at| at.1.qkey.get()), Ok(0x1111_1111));
        let none = Err(ModifyError::Transition(TransitionError::NoTransition));
        assert_eq!(plan(State::Rtr), none);
    }

    #[test]
    fn what_is_not_offered_says_so() {
        for attribute in [AttrMask::ALT_PATH, AttrMask::CAP, AttrMask::RATE_LIMIT] {
            let mask = AttrMask::STATE.or(attribute);
            let error = modify(QpType::Rc, State::Rts, &Attrs::RESET, &GOOD, mask, &LIMITS);
            assert_eq!(error, Err(ModifyError::Unsupported(attribute)));
            assert_eq!(
                error.map_err(ModifyError::errno_kind),
                Err(ErrnoKind::Unsupported)
            );
        }
    }

    #[test]
    fn a_drain_is_told_of_only_if_that_was_asked_for() {
        let stored = Attrs {
            sqd_notify: true,
            ..Attrs::RESET
        };
        let request = Request {
            qp_state: State::Sqd.as_ib(),
            ..GOOD
        };
        let told = |state, mask| {
            let plan = modify(QpType::Rc, state, &stored, &request, mask, &LIMITS);
            plan.map(|at| at.1.sqd_notify)
        };
        let ask = AttrMask::STATE.or(AttrMask::EN_SQD_ASYNC_NOTIFY);
        assert_eq!(told(State::Rts, AttrMask::STATE), Ok(false));
        assert_eq!(told(State::Rts, ask), Ok(true));
        assert_eq!(told(State::Sqd, AttrMask::STATE), Ok(true));
    }

    #[test]
    fn a_draining_queue_can_only_be_given_up() {
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
            let request = Request {
                qp_state: next.as_ib(),
                ..GOOD
            };
            let mask = AttrMask::STATE;
            let plan = modify(
                QpType::Rc,
                State::Sqd,
                &Attrs::RESET,
                &request,
                mask,
                &limits,
            );
            assert_eq!(plan.is_ok(), allowed);
        }
    }
}
