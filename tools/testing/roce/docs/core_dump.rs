// SPDX-License-Identifier: GPL-2.0

//! Compares the table of transitions with the one of `ib_modify_qp_is_ok()` in the RDMA core.
//!
//! The KUnit suite in drivers/infiniband/sw/ferroce/modify_qp_kunit.rs queries the core and prints
//! the results. Its output is part of the source as ib_modify_qp_is_ok.txt, so that the comparison
//! needs no kernel.

use roce::qp::{
    check,
    table::{
        find,
        Rule, //
    },
    AttrMask,
    QpType,
    State, //
};

const DUMP: &str = include_str!("ib_modify_qp_is_ok.txt");

/// A transition of a service type that the core accepts.
type Entry = (QpType, State, State, Rule);

/// Reads lines of type, state, next state, required and optional attributes.
fn parse() -> Vec<Entry> {
    DUMP.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| entry(line).unwrap_or_else(|| panic!("what is {line:?}?")))
        .collect()
}

fn entry(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [ty, current, next, required, optional] = words[..] else {
        return None;
    };
    let state = |name| State::ALL.into_iter().find(|state| state.name() == name);
    let rule = Rule {
        required: mask(required)?,
        optional: mask(optional)?,
    };
    let ty = QpType::ALL.into_iter().find(|known| known.name() == ty)?;
    Some((ty, state(current)?, state(next)?, rule))
}

fn mask(names: &str) -> Option<AttrMask> {
    if names == "-" {
        return Some(AttrMask::NONE);
    }
    names.split('|').try_fold(AttrMask::NONE, |mask, name| {
        Some(mask.or(AttrMask::from_name(name)?))
    })
}

/// Returns whether `ib_modify_qp_is_ok()` accepts an attribute mask under a rule.
fn core_accepts(rule: Option<Rule>, mask: AttrMask) -> bool {
    rule.is_some_and(|rule| {
        let allowed = rule.required.or(rule.optional);
        let always = AttrMask::STATE.or(AttrMask::RATE_LIMIT);
        mask.contains(rule.required) && mask.without(allowed.or(always)).is_empty()
    })
}

fn each_pair() -> impl Iterator<Item = (QpType, State, State)> {
    QpType::ALL.into_iter().flat_map(|ty| {
        State::ALL
            .into_iter()
            .flat_map(move |from| State::ALL.into_iter().map(move |to| (ty, from, to)))
    })
}

#[test]
fn table_matches_core_rules() {
    let dump = parse();
    for (ty, current, next) in each_pair() {
        let core: Vec<Rule> = dump
            .iter()
            .filter(|entry| (entry.0, entry.1, entry.2) == (ty, current, next))
            .map(|entry| entry.3)
            .collect();
        assert!(core.len() <= 1, "{ty:?} {current:?} {next:?} twice");
        let ours = find(current, next).map(|transition| transition.rule(ty));
        assert_eq!(ours, core.first().copied(), "{ty:?} {current:?} {next:?}");
    }
}

#[test]
fn check_accepts_same_masks_as_core() {
    let dump = parse();
    for (ty, current, next) in each_pair() {
        let rule = dump
            .iter()
            .find(|entry| (entry.0, entry.1, entry.2) == (ty, current, next))
            .map(|entry| entry.3);
        let required = rule.map_or(0, |rule| rule.required.bits());
        let allowed = required | rule.map_or(0, |rule| rule.optional.bits());
        for base in [0, required, allowed] {
            for (a, b) in (0..32).flat_map(|a| (0..32).map(move |b| (a, b))) {
                let mask = AttrMask::from_bits(base ^ (1 << a) ^ (1 << b));
                let ours = check(ty, current, next, mask).is_ok();
                assert_eq!(
                    ours,
                    core_accepts(rule, mask),
                    "{ty:?} {current:?} {next:?} {mask}"
                );
            }
        }
    }
}
