// SPDX-License-Identifier: GPL-2.0

//! The changes of single expressions.

use syn::{
    BinOp,
    UnOp, //
};

/// Returns the operators that replace a binary operator.
pub(crate) fn binary(op: &BinOp) -> Vec<BinOp> {
    let words: &[&str] = match op {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["==", ">", "<="],
        BinOp::Gt(_) => &["==", "<", ">="],
        BinOp::Le(_) => &[">", "<"],
        BinOp::Ge(_) => &["<", ">"],
        BinOp::Add(_) => &["-", "*"],
        BinOp::Sub(_) => &["+", "/"],
        BinOp::Mul(_) => &["+", "/"],
        BinOp::Div(_) => &["%", "*"],
        BinOp::Rem(_) => &["/", "+"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) => &["|", "^"],
        BinOp::BitOr(_) => &["&", "^"],
        BinOp::BitXor(_) => &["|", "&"],
        BinOp::AddAssign(_) => &["-=", "*="],
        BinOp::SubAssign(_) => &["+=", "/="],
        BinOp::BitAndAssign(_) => &["|=", "^="],
        BinOp::BitOrAssign(_) => &["&=", "^="],
        BinOp::BitXorAssign(_) => &["|=", "&="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    };
    words
        .iter()
        .filter_map(|word| syn::parse_str(word).ok())
        .collect()
}

/// Returns whether a unary operator is left out.
pub(crate) fn unary(op: &UnOp) -> bool {
    matches!(op, UnOp::Not(_) | UnOp::Neg(_))
}

/// Returns the method that replaces another one.
///
/// `roce` has no unchecked arithmetic, so that the operators above are only a part of it.
pub(crate) fn method(name: &str, arguments: usize) -> Option<&'static str> {
    Some(match (name, arguments) {
        ("wrapping_add", 1) => "wrapping_sub",
        ("wrapping_sub", 1) => "wrapping_add",
        ("checked_add", 1) => "checked_sub",
        ("checked_sub", 1) => "checked_add",
        ("saturating_add", 1) => "saturating_sub",
        ("saturating_sub", 1) => "saturating_add",
        ("min", 1) => "max",
        ("max", 1) => "min",
        ("is_some", 0) => "is_none",
        ("is_none", 0) => "is_some",
        ("is_some_and", 1) => "is_none_or",
        ("is_none_or", 1) => "is_some_and",
        ("is_before", 1) => "is_after",
        ("is_after", 1) => "is_before",
        _ => return None,
    })
}
