// SPDX-License-Identifier: GPL-2.0

//! The values that a function returns instead of its own.

use std::collections::HashSet;

use syn::{
    parse_quote,
    Expr,
    GenericArgument,
    PathArguments,
    ReturnType,
    Type, //
};

/// Returns the values for a return type; `None` stands for a plain return. `defaults` names the
/// types that have a default, and `this` is the type of the `impl`.
pub(crate) fn of(
    output: &ReturnType,
    defaults: &HashSet<String>,
    this: Option<&str>,
) -> Vec<Option<Expr>> {
    match output {
        ReturnType::Default => vec![None],
        ReturnType::Type(_, ty) => of_type(ty, defaults, this).into_iter().map(Some).collect(),
    }
}

fn of_type(ty: &Type, defaults: &HashSet<String>, this: Option<&str>) -> Vec<Expr> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec![parse_quote!(())],
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return vec![];
            };
            let arguments = arguments(&last.arguments);
            let name = last.ident.to_string();
            let name = match (name.as_str(), this) {
                ("Self", Some(this)) => this,
                (name, _) => name,
            };
            match (name, &arguments[..]) {
                ("bool", []) => vec![parse_quote!(true), parse_quote!(false)],
                ("u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64", []) => {
                    vec![parse_quote!(0), parse_quote!(1)]
                }
                ("Option", [inner]) => {
                    let some = of_type(inner, defaults, this);
                    let some = some.into_iter().map(|value| parse_quote!(Some(#value)));
                    std::iter::once(parse_quote!(None)).chain(some).collect()
                }
                ("Result", [inner, ..]) => {
                    let ok = of_type(inner, defaults, this);
                    ok.into_iter()
                        .map(|value| parse_quote!(Ok(#value)))
                        .collect()
                }
                (name, []) if defaults.contains(name) => {
                    vec![parse_quote!(core::default::Default::default())]
                }
                _ => vec![],
            }
        }
        _ => vec![],
    }
}

fn arguments(arguments: &PathArguments) -> Vec<Type> {
    match arguments {
        PathArguments::AngleBracketed(list) => list
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty.clone()),
                _ => None,
            })
            .collect(),
        _ => vec![],
    }
}
