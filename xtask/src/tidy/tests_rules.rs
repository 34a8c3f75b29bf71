//! Tests neither sleep to wait for something nor are switched off, and their names say what they show.

use super::Finding;
use crate::repo::Repo;

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &repo.rust {
        for (line, code) in file.source.lines() {
            if code.contains("#[ignore") {
                findings.push(Finding::fault(path, line, "a test is switched off; mend it or remove it"));
            }
            if file.is_test(line) && calls_sleep(code) {
                findings.push(Finding::fault(path, line, "a test sleeps; wait for the event itself"));
            }
        }
    }
    findings
}

/// Letters of the name of a test at most.
const LONGEST_NAME: usize = 60;
/// First words of names that have no subject.
const NO_SUBJECT: &[&str] = &[
    "all",
    "and",
    "as",
    "everything",
    "he",
    "how",
    "if",
    "it",
    "its",
    "nobody",
    "not",
    "only",
    "she",
    "that",
    "there",
    "these",
    "they",
    "this",
    "those",
    "what",
    "whatever",
    "when",
    "where",
    "wherever",
    "which",
    "while",
    "who",
    "whoever",
    "whose",
];

/// A test is named by its subject, the condition and what is expected.
pub(crate) fn names(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &repo.rust {
        let mut attribute = 0;
        for (line, code) in file.source.lines() {
            let code = code.trim_start();
            if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
                attribute = line;
            }
            let Some(name) = function(code).filter(|_| attribute > 0 && line <= attribute + 5) else {
                continue;
            };
            attribute = 0;
            let first = name.split('_').next().unwrap_or_default();
            if name.len() > LONGEST_NAME {
                let message = format!("the name of test {name} has more than {LONGEST_NAME} letters");
                findings.push(Finding::fault(path, line, message));
            }
            if NO_SUBJECT.contains(&first) {
                let message = format!("the name of test {name} does not begin with its subject");
                findings.push(Finding::fault(path, line, message));
            }
        }
    }
    findings
}

/// The function that the line declares.
fn function(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub ").unwrap_or(code);
    let code = code.strip_prefix("async ").unwrap_or(code).strip_prefix("fn ")?;
    code.split(|next: char| !next.is_alphanumeric() && next != '_').next()
}

/// A call of a free function named `sleep..`; a method of that name belongs to a clock the test drives.
fn calls_sleep(code: &str) -> bool {
    ["sleep(", "sleep_until(", "sleep_ms("].iter().any(|call| {
        code.match_indices(call).any(|(at, _)| {
            let before = &code[..at];
            !before.ends_with(|last: char| last.is_alphanumeric() || last == '_' || last == '.')
                && !before.trim_end().ends_with("fn")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn sleeping_and_ignored_tests_are_found() {
        let inline = "fn wait() { tokio::time::sleep(d); }\n#[cfg(test)]\nmod tests {\n    fn a() { std::thread::sleep(d) }\n    fn b() { clock.sleep(d); fn sleep() {} }\n    // thread::sleep(d)\n}\n";
        expect(
            check,
            &[
                ("crates/a/src/lib.rs", inline),
                (
                    "crates/a/tests/it.rs",
                    "#[test]\n#[ignore = \"slow\"]\nfn a() { sleep(d).await; run(\"sleep(1)\") }",
                ),
            ],
            &[
                "crates/a/src/lib.rs:4: a test sleeps; wait for the event itself",
                "crates/a/tests/it.rs:2: a test is switched off; mend it or remove it",
                "crates/a/tests/it.rs:3: a test sleeps; wait for the event itself",
            ],
        );
    }

    #[test]
    fn test_names_without_a_subject_or_too_long_are_found() {
        let long = "a".repeat(61);
        let code = format!(
            "#[test]\nfn what_is_here_works() {{}}\n#[tokio::test(flavor = \"current_thread\")]\n#[cfg(unix)]\nasync fn {long}() {{}}\n#[test]\nfn reader_stops_at_the_end() {{}}\nfn it_helps() {{}}\n"
        );
        expect(
            names,
            &[("crates/a/src/lib.rs", &code)],
            &[
                "crates/a/src/lib.rs:2: the name of test what_is_here_works does not begin with its subject",
                &format!("crates/a/src/lib.rs:5: the name of test {long} has more than 60 letters"),
            ],
        );
    }
}
