// SPDX-License-Identifier: GPL-2.0

//! Mutation testing of crate `roce`: do the tests notice if the code is wrong?
//!
//! cargo-mutants compiles the crate once for each mutant. Here all mutants are compiled together,
//! and the environment variable `ROCE_MUTANT` selects one at run time, so that a mutant takes as
//! long as the tests do. `scripts/mutants` calls this program twice:
//!
//! - `mutants plant CRATE` rewrites the sources of a copy of the crate, and writes a list of the
//!   mutants to `CRATE/mutants.txt`.
//! - `mutants judge LIST OUT FIRST STEP TEST...` runs every `STEP`th mutant of the list from the
//!   `FIRST` on against the tests, and writes the verdict on each to `OUT`. A `TEST` is a program,
//!   with `NAME=VALUE` words of its environment before it and its arguments behind it.

mod judge;
mod operators;
mod plant;
mod values;

use std::{
    env,
    process::ExitCode, //
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["plant", root] => plant::plant(root),
        ["judge", list, out, first, step, ref tests @ ..] if !tests.is_empty() => {
            judge::judge(list, out, (first, step), tests)
        }
        _ => Err("usage: mutants plant CRATE | judge LIST OUT FIRST STEP TEST...".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}
