// SPDX-License-Identifier: GPL-2.0

//! Compares the table of transitions in crate `roce` with the one of the RDMA core.
//!
//! The core does not export its table, only `ib_modify_qp_is_ok()`. The suite derives the rule of
//! the core for each service type and pair of states from the results.

use rdma::ib::{
    enums::{
        self,
        QpAttrMask,
        QpState, //
    },
    qp::modify_qp_is_ok, //
};
use roce::qp::{
    check,
    table::{
        find,
        Rule,
        TRANSITIONS, //
    },
    AttrMask,
    QpType,
    State, //
};

/// Returns whether the core accepts a modification.
fn core_accepts(ty: QpType, from: State, to: State, mask: AttrMask) -> bool {
    modify_qp_is_ok(
        QpState::from_raw(from.as_ib()),
        QpState::from_raw(to.as_ib()),
        enums::QpType::from_raw(ty.as_ib()),
        QpAttrMask::from_raw(mask.bits()),
    )
}

/// Returns every mask of one attribute, named or not.
fn single_bits() -> impl Iterator<Item = AttrMask> {
    (0..u32::BITS).map(|bit| AttrMask::from_bits(1 << bit))
}

/// Determines the rule of the core. Returns `None` if the core accepts no mask.
///
/// Given one mask that is accepted, an attribute in it is required if the mask fails without it,
/// and any other is allowed if the mask passes with it. To find such a mask, the required
/// attributes of every transition and every single attribute are tried.
fn probe(ty: QpType, from: State, to: State) -> Option<Rule> {
    let accepted = |mask: &AttrMask| core_accepts(ty, from, to, *mask);
    let seed = TRANSITIONS
        .iter()
        .map(|transition| transition.rule(ty).required)
        .chain(single_bits())
        .find(accepted)?;

    let mut rule = Rule::NONE;
    for bit in single_bits() {
        if !accepted(&seed.without(bit)) {
            rule.required = rule.required.or(bit);
        } else if accepted(&seed.or(bit)) {
            rule.optional = rule.optional.or(bit);
        }
    }
    // The core accepts these with every transition, so a rule does not contain them.
    let always = AttrMask::STATE.or(AttrMask::RATE_LIMIT);
    rule.optional = rule.optional.without(always);
    Some(rule)
}

/// Calls `f` with every service type and pair of states.
fn for_each_pair(mut f: impl FnMut(QpType, State, State)) {
    for ty in QpType::ALL {
        for from in State::ALL {
            for to in State::ALL {
                f(ty, from, to);
            }
        }
    }
}

#[kernel::macros::kunit_tests(ferroce_modify_qp)]
mod tests {
    use super::*;

    #[test]
    fn core_rules_match_table() {
        for_each_pair(|ty, from, to| {
            let rule = find(from, to).map(|transition| transition.rule(ty));
            assert_eq!(probe(ty, from, to), rule);
        });
    }

    #[test]
    fn core_and_table_agree_on_single_attributes() {
        for_each_pair(|ty, from, to| {
            let rule = find(from, to).map_or(Rule::NONE, |transition| transition.rule(ty));
            let all = rule.required.or(rule.optional);
            for base in [AttrMask::NONE, rule.required, all] {
                for bit in single_bits() {
                    for mask in [base.without(bit), base.or(bit)] {
                        let ours = check(ty, from, to, mask).is_ok();
                        assert_eq!(core_accepts(ty, from, to, mask), ours);
                    }
                }
            }
        });
    }
}
