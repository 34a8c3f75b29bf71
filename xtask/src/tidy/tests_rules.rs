//! Tests neither sleep to wait for something nor are switched off.

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
}
