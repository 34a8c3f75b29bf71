//! Tests that documents name are there.

use std::collections::BTreeSet;

use super::Finding;
use crate::repo::{Repo, Role};

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let names = names(repo);
    let crates = repo.crates();
    let mut findings = Vec::new();
    for (path, text) in &repo.files {
        if !path.ends_with(".md") || repo.role(path) == Role::Test {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            // Text between two backticks is every second piece.
            for span in line.split('`').skip(1).step_by(2) {
                let Some((package, test)) = span.split_once(' ').filter(|(name, _)| crates.contains(name))
                else {
                    continue;
                };
                if is_path(test) && !test.split("::").all(|part| is_known(&names, part)) {
                    let text = format!("names the test `{package} {test}`, which is not there");
                    findings.push(Finding::fault(path, index + 1, text));
                }
            }
        }
    }
    findings
}

/// A path of modules and tests; `…` or nothing at its end stands for all of them.
fn is_path(text: &str) -> bool {
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_:…".contains(letter);
    text.contains("::") && text.chars().all(fits)
}

fn is_known(names: &BTreeSet<&str>, part: &str) -> bool {
    match part.strip_suffix('…') {
        Some(beginning) => names.range(beginning..).next().is_some_and(|name| name.starts_with(beginning)),
        None => part.is_empty() || names.contains(part),
    }
}

/// Functions, modules, files and folders.
fn names(repo: &Repo) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for path in repo.rust.keys() {
        names.extend(path.trim_end_matches(".rs").split('/'));
    }
    for (_, text) in repo.files.iter().filter(|(path, _)| repo.rust.contains_key(*path)) {
        for word in ["fn ", "mod "] {
            names.extend(text.split(word).skip(1).map(|rest| {
                let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                &rest[..end.unwrap_or(rest.len())]
            }));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn tests_that_are_not_there_are_found() {
        let page = "`a it::works` `a it::fails`, `a it::wo…` `a gone::…` `b it::fails` `a plain` `a it::`\n";
        let tests = "mod inner { fn works() {} }";
        expect(
            check,
            &[("docs/page.md", page), ("crates/a/Cargo.toml", ""), ("crates/a/tests/it.rs", tests)],
            &[
                "docs/page.md:1: names the test `a gone::…`, which is not there",
                "docs/page.md:1: names the test `a it::fails`, which is not there",
            ],
        );
    }
}
