//! How long a hand-written file may be.

use super::Finding;
use crate::repo::{Repo, Role};

const WANTED: usize = 500;
const NEEDS_REASON: usize = 800;
const LONGEST: usize = 1_000;
const LONGEST_TABLE_OR_TEST: usize = 1_500;
/// What the first comment says when a file is longer than it should be, followed by the reason.
const REASON: &str = "Length:";

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &repo.files {
        let lines = text.lines().count();
        let hand_written = [".rs", ".js", ".mjs", ".py", ".sh"].iter().any(|end| path.ends_with(end));
        match repo.role(path) {
            Role::Source | Role::Example | Role::BuildScript => {
                if lines > LONGEST {
                    findings.push(Finding::fault(path, 0, format!("{lines} lines; {LONGEST} is the most")));
                } else if lines > NEEDS_REASON && !first_comment(text).contains(REASON) {
                    findings.push(Finding::fault(
                        path,
                        0,
                        format!("{lines} lines; above {NEEDS_REASON} its first comment says why after \"{REASON}\""),
                    ));
                } else if lines > WANTED {
                    findings.push(Finding::note(path, 0, format!("{lines} lines; {WANTED} wanted")));
                }
            }
            Role::Data | Role::Test if hand_written && lines > LONGEST_TABLE_OR_TEST => {
                let message =
                    format!("{lines} lines; {LONGEST_TABLE_OR_TEST} is the most for tables and tests");
                findings.push(Finding::fault(path, 0, message));
            }
            Role::Data | Role::Test | Role::Other => {}
        }
    }
    findings
}

fn first_comment(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("//") || line.starts_with('#')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let lines = |count: usize, first: &str| format!("{first}\n{}", "x\n".repeat(count - 1));
        let files = [
            ("crates/a/src/fine.rs", lines(500, "//! x")),
            ("crates/a/src/getting_long.rs", lines(501, "//! x")),
            ("crates/a/src/long.rs", lines(801, "//! x")),
            ("crates/a/src/long_with_reason.rs", lines(801, "//! Length: one state machine.")),
            ("crates/a/src/too_long.rs", lines(1_001, "//! Length: no reason is good enough.")),
            ("crates/a/src/wire_table.rs", lines(1_500, "//! x")),
            ("crates/a/tests/laws.rs", lines(1_501, "//! x")),
            ("crates/a/tests/recording.json", lines(9_000, "[")),
            ("docs/long.md", lines(2_000, "# x")),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        super::super::expect(
            check,
            &files,
            &[
                "crates/a/src/getting_long.rs: 501 lines; 500 wanted",
                "crates/a/src/long.rs: 801 lines; above 800 its first comment says why after \"Length:\"",
                "crates/a/src/long_with_reason.rs: 801 lines; 500 wanted",
                "crates/a/src/too_long.rs: 1001 lines; 1000 is the most",
                "crates/a/tests/laws.rs: 1501 lines; 1500 is the most for tables and tests",
            ],
        );
    }
}
