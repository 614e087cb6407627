// SPDX-License-Identifier: GPL-2.0

//! Runs the tests against each mutant.

use std::{
    fs,
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{
        Command,
        Stdio, //
    },
    time::Instant, //
};

/// A test that needs more seconds of processor time has an endless loop: the mutant is killed.
///
/// The time on the clock says nothing on a machine that does other things, too.
const LIMIT: &str = "LIMIT";

/// The limit of a test that does not name one.
const USUAL_LIMIT: &str = "2";

/// A test program.
struct Test<'a> {
    environment: Vec<(&'a str, &'a str)>,
    program: &'a str,
    arguments: Vec<&'a str>,
    limit: &'a str,
}

/// Runs every `step`th mutant from the `first` on.
pub(crate) fn judge(
    list: &str,
    out: &str,
    (first, step): (&str, &str),
    tests: &[&str],
) -> Result<(), String> {
    let number = |word: &str| {
        word.parse::<usize>()
            .map_err(|error| format!("{word}: {error}"))
    };
    let (first, step) = (number(first)?, number(step)?);
    let tests: Vec<Test<'_>> = tests.iter().filter_map(|test| parse(test)).collect();
    let list = fs::read_to_string(list).map_err(|error| format!("{list}: {error}"))?;
    let mutants: Vec<&str> = list.lines().skip(first).step_by(step.max(1)).collect();
    let mut verdicts = fs::File::create(out).map_err(|error| format!("{out}: {error}"))?;

    for test in &tests {
        if let Some(verdict) = verdict_of(test, None)? {
            return Err(format!("{} without a mutant: {verdict}", test.program));
        }
    }
    let started = Instant::now();
    let mut killed = 0;
    for (index, line) in mutants.iter().enumerate() {
        let mutant = line.split('\t').next().unwrap_or_default();
        let mut verdict = "SURVIVED".to_string();
        for test in &tests {
            if let Some(how) = verdict_of(test, Some(mutant))? {
                let name = test.program.rsplit('/').next().unwrap_or_default();
                verdict = format!("{how} {}", name.split('-').next().unwrap_or_default());
                killed += 1;
                break;
            }
        }
        writeln!(verdicts, "{verdict}\t{line}").map_err(|error| format!("{out}: {error}"))?;
        if (index + 1) % 50 == 0 || index + 1 == mutants.len() {
            println!(
                "{} of {} mutants: {killed} killed, {:.0} s",
                index + 1,
                mutants.len(),
                started.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}

/// Takes `NAME=VALUE... PROGRAM ARGUMENT...` apart.
fn parse(test: &str) -> Option<Test<'_>> {
    let mut words = test.split_whitespace().peekable();
    let mut environment = Vec::new();
    while let Some(pair) = words.peek().and_then(|word| word.split_once('=')) {
        environment.push(pair);
        words.next();
    }
    let limit = environment.iter().find(|(name, _)| *name == LIMIT);
    Some(Test {
        limit: limit.map_or(USUAL_LIMIT, |(_, seconds)| seconds),
        program: words.next()?,
        arguments: words.collect(),
        environment,
    })
}

/// Returns how the test noticed the mutant, if it did.
fn verdict_of(test: &Test<'_>, mutant: Option<&str>) -> Result<Option<&'static str>, String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -t $0; exec \"$@\"", test.limit, test.program])
        .args(&test.arguments)
        .envs(test.environment.iter().copied())
        .env_remove("ROCE_MUTANT")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(mutant) = mutant {
        command.env("ROCE_MUTANT", mutant);
    }
    let status = command.status();
    let status = status.map_err(|error| format!("{}: {error}", test.program))?;
    Ok(match status.signal() {
        _ if status.success() => None,
        // SIGXCPU or, behind it, SIGKILL.
        Some(24 | 9) => Some("timeout"),
        _ => Some("killed"),
    })
}
