//! What the documents promise is there: links lead somewhere, each crate is explained, commands match CI's.

use super::Finding;
use crate::repo::{Repo, Role};
use crate::rust_source::has_word;

/// Documents that the project is not whole without.
const NEEDED: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/architecture.md",
    "docs/development.md",
];
const ARCHITECTURE: &str = "docs/architecture.md";
/// The command of the README that runs every test, which CI runs as well.
const TEST_COMMAND: &str = "cargo test --workspace";

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in NEEDED.iter().filter(|path| !repo.exists(path)) {
        findings.push(Finding::fault(path, 0, "is missing"));
    }
    for (path, text) in &repo.files {
        if path.ends_with(".md") && repo.role(path) != Role::Test && !path.contains("/prompts/") {
            findings.extend(broken_links(repo, path, text));
        }
    }
    if let Some(text) = repo.files.get(ARCHITECTURE) {
        for name in repo.crates().into_iter().filter(|name| !has_word(text, name)) {
            findings.push(Finding::fault(ARCHITECTURE, 0, format!("does not mention crates/{name}")));
        }
    }
    for path in ["README.md", ".ci/run"] {
        if repo.files.get(path).is_some_and(|text| !text.contains(TEST_COMMAND)) {
            findings.push(Finding::fault(path, 0, format!("does not say `{TEST_COMMAND}`")));
        }
    }
    findings
}

fn broken_links(repo: &Repo, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for target in targets(line) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let full = if file.is_empty() { path.to_owned() } else { join(path, file) };
            if !repo.exists(&full) {
                findings.push(Finding::fault(
                    path,
                    index + 1,
                    format!("links to {target}, which is not there"),
                ));
            } else if !heading.is_empty()
                && repo
                    .files
                    .get(&full)
                    .is_some_and(|text| full.ends_with(".md") && !has_heading(text, heading))
            {
                findings.push(Finding::fault(
                    path,
                    index + 1,
                    format!("links to {target}, a heading that is not there"),
                ));
            }
        }
    }
    findings
}

/// Targets of `[text](target)` and `[name]: target` that are paths of ours; code spans are skipped.
fn targets(line: &str) -> Vec<&str> {
    let inline =
        line.match_indices("](").filter(|(at, _)| line[..*at].matches('`').count().is_multiple_of(2));
    let mut found: Vec<&str> =
        inline.filter_map(|(at, open)| line[at + open.len()..].split([')', ' ']).next()).collect();
    if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
        found.extend(target.split_whitespace().next());
    }
    found.retain(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty());
    found
}

/// Resolves a link against the folder of the file that it stands in.
fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Headings as the usual renderers name them: lower case, spaces to hyphens, punctuation dropped.
fn has_heading(text: &str, wanted: &str) -> bool {
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|next| next.is_alphanumeric() || " -_".contains(*next));
        kept.map(|next| if next == ' ' { '-' } else { next }).eq(wanted.chars())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    const WHOLE: &[(&str, &str)] = &[
        ("README.md", "`cargo test --workspace`"),
        ("CHANGELOG.md", ""),
        ("LICENSE-MIT", ""),
        ("LICENSE-APACHE", ""),
        ("docs/architecture.md", ""),
        ("docs/development.md", ""),
    ];

    fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        [WHOLE, more].concat()
    }

    #[test]
    fn broken_links_are_found() {
        let page = "[a](../README.md) [b](missing.md) [c](https://x.org) [d](#two-words)\n`[e](no.md)`\n```\n[f](no.md)\n```\n[g]: gone/\n## Two words!\n[h](architecture.md#nowhere)\n";
        expect(
            check,
            &with(&[("docs/page.md", page), ("crates/a/tests/data/x.md", "[a](gone.md)")]),
            &[
                "docs/page.md:1: links to missing.md, which is not there",
                "docs/page.md:6: links to gone/, which is not there",
                "docs/page.md:8: links to architecture.md#nowhere, a heading that is not there",
            ],
        );
    }

    #[test]
    fn missing_documents_are_named() {
        expect(
            check,
            &with(&[("crates/knots/Cargo.toml", ""), (".ci/run", "cargo test")]),
            &[
                ".ci/run: does not say `cargo test --workspace`",
                "docs/architecture.md: does not mention crates/knots",
            ],
        );
        expect(check, &WHOLE[1..], &["README.md: is missing"]);
    }
}
