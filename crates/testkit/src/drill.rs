//! Drills with processes that are killed at work.

#![expect(clippy::expect_used, clippy::panic, reason = "what is wrong in a test is a panic here")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// Runs a program until it has printed so many lines `accepted N`, kills it, and gives every `N` that it printed, also between the last
/// of these lines and its end.
///
/// # Panics
/// It does not start, ends by itself before that, or prints something else behind `accepted`.
pub fn accepted_until_killed(program: &mut Command, wanted: u32) -> Vec<u32> {
    let program = program.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = program.spawn().expect("the program starts");
    let output = child.stdout.take().expect("its output is a pipe");
    let number = |line: String| {
        let number = line.strip_prefix("accepted ")?.parse::<u32>();
        Some(number.unwrap_or_else(|error| panic!("{line}: {error}")))
    };
    let mut accepted = Vec::new();
    // Short lines are written whole.
    let mut numbers = BufReader::new(output).lines().map_while(Result::ok).filter_map(number);
    for _ in 0..wanted {
        accepted.push(numbers.next().expect("the program works until it is killed"));
    }
    child.kill().expect("the program is killed");
    child.wait().expect("the program ends");
    // What it said before it died counts as well.
    accepted.extend(numbers);
    accepted
}
