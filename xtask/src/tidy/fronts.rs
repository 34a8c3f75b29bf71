//! What only some rooms may say: words of the command line, the name of the database's store, our own program.

use super::Finding;
use crate::repo::{Repo, Role, crate_of};
use crate::rust_source::has_word;

/// Rooms that word things for people at a command line, or are never shipped.
const FRONTS: &[&str] = &["cli", "xtask", "testkit"];
/// Names in code, and the rooms that may say them.
const OWNED: &[(&str, &[&str])] = &[
    ("SqliteStore", &["store", "host"]),
    // Another name for the same.
    ("LocalStore", &["host"]),
    ("current_exe", &["host", "workspace"]),
];

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &repo.rust {
        let Some(room) = crate_of(path) else { continue };
        if file.role != Role::Source || matches!(room, "xtask" | "testkit") {
            continue;
        }
        for (line, code) in file.source.lines().filter(|(line, _)| !file.is_test(*line)) {
            for (name, rooms) in OWNED {
                if has_word(code, name) && !rooms.contains(&room) {
                    findings.push(Finding::fault(
                        path,
                        line,
                        format!("{name} belongs to {}", rooms.join(", ")),
                    ));
                }
            }
        }
        if FRONTS.contains(&room) {
            continue;
        }
        for literal in &file.source.literals {
            if !file.is_test(literal.line) && (names_option(&literal.text) || names_command(&literal.text)) {
                findings.push(Finding::fault(
                    path,
                    literal.line,
                    "a library names a command or an option of the command line; a front does".to_owned(),
                ));
            }
        }
    }
    findings
}

/// Whether a text for people has an option in it: what is an option and nothing else is one of another program.
fn names_option(text: &str) -> bool {
    text.match_indices("--").any(|(at, _)| {
        let behind = text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase());
        behind && at > 0 && text[..at].ends_with([' ', '`', '('])
    })
}

fn names_command(text: &str) -> bool {
    text.match_indices("`quipu ")
        .any(|(at, word)| text[at + word.len()..].starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn words_of_the_command_line_are_found_in_libraries() {
        let said = |text: &str| format!("fn a() -> &'static str {{\n    \"{text}\"\n}}\n");
        let told = "a library names a command or an option of the command line; a front does";
        let (command, option) = (said("see `quipu models`"), said("name it with --store"));
        expect(
            check,
            &[
                ("crates/engine/src/a.rs", &command),
                ("crates/store/src/b.rs", &option),
                ("crates/cli/src/c.rs", &command),
                ("crates/workspace/src/d.rs", &said("--pid")),
                ("crates/engine/tests/it/e.rs", &option),
            ],
            &[&format!("crates/engine/src/a.rs:2: {told}"), &format!("crates/store/src/b.rs:2: {told}")],
        );
    }

    #[test]
    fn names_with_an_owner_are_found_elsewhere() {
        let store = "fn a() {\n    SqliteStore::open();\n}\n";
        let alias = "use quipu_host::LocalStore;\n";
        expect(
            check,
            &[
                ("crates/cli/src/c.rs", alias),
                ("crates/host/src/d.rs", alias),
                ("crates/store/src/a.rs", store),
                ("crates/tui/src/b.rs", store),
            ],
            &[
                "crates/cli/src/c.rs:1: LocalStore belongs to host",
                "crates/tui/src/b.rs:2: SqliteStore belongs to store, host",
            ],
        );
    }
}
