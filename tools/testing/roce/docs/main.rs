// SPDX-License-Identifier: GPL-2.0

//! Renders tables of the protocol core into the documentation, so that the two cannot differ.
//!
//! Without an argument the pages go to standard output. `--write` writes the files that are part of
//! the source; `--check` compares with them and fails if one is out of date.

use std::{
    env,
    fs,
    io,
    path::PathBuf,
    process::ExitCode, //
};

mod qp_states;
mod rst;

/// A page: the name of its file and the function that renders it.
type Page = (&'static str, fn() -> String);

const PAGES: &[Page] = &[("qp-states.rst", qp_states::render)];

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let result = match (args.next().as_deref(), args.next()) {
        (None, _) => {
            PAGES.iter().for_each(|(_, render)| print!("{}", render()));
            Ok(true)
        }
        (Some("--write"), None) => write().map(|()| true),
        (Some("--check"), None) => check(),
        _ => {
            eprintln!("usage: roce-docs [--write | --check]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("roce-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> io::Result<()> {
    for (name, render) in PAGES {
        fs::write(path(name), render())?;
    }
    Ok(())
}

/// Returns whether every page is up to date.
fn check() -> io::Result<bool> {
    let mut good = true;
    for (name, render) in PAGES {
        let path = path(name);
        if fs::read_to_string(&path)? != render() {
            eprintln!("{}: out of date, run roce-docs --write", path.display());
            good = false;
        }
    }
    Ok(good)
}

fn path(name: &str) -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "../../../../Documentation/infiniband/ferroce",
        name,
    ]
    .iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_is_up_to_date() {
        assert!(check().unwrap());
    }
}
