// SPDX-License-Identifier: GPL-2.0

//! The page about states, transitions and attributes of queue pairs.

use crate::rst;
use roce::qp::{
    table::{
        find,
        Rule,
        TRANSITIONS, //
    },
    AttrMask,
    QpType,
    State, //
};

/// Renders the page.
pub fn render() -> String {
    let mut page = rst::start("States of a queue pair");
    page += &rst::paragraph(
        "A queue pair changes its state, and most of its attributes, only through the modify verb. \
         The table in rust/roce/qp/table.rs lists the transitions, and the attributes that each \
         transition requires or allows. The verb uses this table, a test compares it with \
         ib_modify_qp_is_ok() of the RDMA core, and this page is generated from it.",
    );
    page += &transitions();
    page += &attributes();
    for ty in QpType::ALL {
        page += &rules(ty);
    }
    page
}

fn transitions() -> String {
    let rows: Vec<[String; 8]> = State::ALL
        .iter()
        .map(|from| {
            let mut row: [String; 8] = std::array::from_fn(|_| String::new());
            row[0] = from.name().to_owned();
            for (cell, to) in row[1..].iter_mut().zip(State::ALL) {
                *cell = if find(*from, to).is_some() {
                    "yes"
                } else {
                    "\\-"
                }
                .to_owned();
            }
            row
        })
        .collect();
    let names = State::ALL.map(State::name);
    let head = std::array::from_fn(|i| if i == 0 { "from / to" } else { names[i - 1] });

    rst::section("Transitions")
        + &rst::paragraph(
            "The transitions are the same for every service type. A modify without a state is a \
             transition from the current state to itself. Errors move a queue pair to ERR, or \
             send errors of all types but RC to SQE, without a verb. A move to RESET resets all \
             attributes.",
        )
        + &rst::table(head, &rows)
}

fn attributes() -> String {
    let rows: Vec<[String; 3]> = AttrMask::NAMES
        .iter()
        .map(|(attribute, name)| {
            let types: Vec<&str> = QpType::ALL
                .iter()
                .filter(|ty| takes(**ty, *attribute))
                .map(|ty| ty.name())
                .collect();
            [
                format!("IB_QP_{name}"),
                format!("{:#x}", attribute.bits()),
                match *attribute {
                    AttrMask::STATE => "always".to_owned(),
                    _ if AttrMask::NOT_CARRIED.contains(*attribute) => "EOPNOTSUPP".to_owned(),
                    _ => types.join(", "),
                },
            ]
        })
        .collect();

    rst::section("Attributes")
        + &rst::paragraph(
            "The last column lists the service types that take the attribute in some transition. \
             EOPNOTSUPP means that the driver refuses the attribute. The core allows \
             IB_QP_ALT_PATH in some transitions, which the tables below mark with an asterisk, \
             IB_QP_RATE_LIMIT in all of them, and IB_QP_CAP in none.",
        )
        + &rst::table(["attribute", "bit", "taken by"], &rows)
}

/// Returns whether any transition of `ty` requires or allows `attribute`.
fn takes(ty: QpType, attribute: AttrMask) -> bool {
    TRANSITIONS.iter().any(|transition| {
        let rule = transition.rule(ty);
        rule.required.or(rule.optional).contains(attribute)
    })
}

fn rules(ty: QpType) -> String {
    let mut rows = Vec::new();
    for transition in TRANSITIONS {
        let rule = transition.rule(ty);
        if rule == Rule::NONE {
            continue;
        }
        let name = format!("{} to {}", transition.from.name(), transition.to.name());
        // An empty first column would be taken for a continuation, so the name is repeated.
        for (kind, mask) in [("required", rule.required), ("optional", rule.optional)] {
            if !mask.is_empty() {
                rows.push([name.clone(), kind.to_owned(), list(mask)]);
            }
        }
    }

    rst::section(ty.name())
        + &rst::paragraph("Transitions that are not listed take no attribute but IB_QP_STATE.")
        + &rst::table(["transition", "attributes", "IB_QP\\_..."], &rows)
}

/// Lists the names in a set, those that are not offered with an asterisk.
fn list(mask: AttrMask) -> String {
    let names: Vec<String> = AttrMask::NAMES
        .iter()
        .filter(|(attribute, _)| mask.contains(*attribute))
        .map(|(attribute, name)| {
            let asterisk = AttrMask::NOT_CARRIED.contains(*attribute);
            format!("{name}{}", if asterisk { "\\*" } else { "" })
        })
        .collect();
    names.join(", ")
}
