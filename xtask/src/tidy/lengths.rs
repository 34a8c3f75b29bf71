//! How long a hand-written file may be.

use super::Finding;
use crate::repo::{Repo, Role};

const WANTED: usize = 500;
const LONGEST: usize = 800;
const LONGEST_TABLE_OR_TEST: usize = 1_500;

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &repo.files {
        let lines = text.lines().count();
        let hand_written = [".rs", ".js", ".mjs", ".py", ".sh"].iter().any(|end| path.ends_with(end));
        match repo.role(path) {
            Role::Source | Role::Example | Role::BuildScript => {
                if lines > LONGEST {
                    findings.push(Finding::fault(path, 0, format!("{lines} lines; {LONGEST} is the most")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_found() {
        let lines = |count: usize, first: &str| format!("{first}\n{}", "x\n".repeat(count - 1));
        let files = [
            ("crates/a/src/fine.rs", lines(500, "//! x")),
            ("crates/a/src/getting_long.rs", lines(501, "//! x")),
            ("crates/a/src/as_long_as_can_be.rs", lines(800, "//! x")),
            ("crates/a/src/too_long.rs", lines(801, "//! Length: no reason is good enough.")),
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
                "crates/a/src/as_long_as_can_be.rs: 800 lines; 500 wanted",
                "crates/a/src/getting_long.rs: 501 lines; 500 wanted",
                "crates/a/src/too_long.rs: 801 lines; 800 is the most",
                "crates/a/tests/laws.rs: 1501 lines; 1500 is the most for tables and tests",
            ],
        );
    }
}
