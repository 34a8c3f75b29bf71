//! A documentation comment says more than the name below it.

use super::Finding;
use crate::repo::Repo;

/// Words that add nothing to a name.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "as", "at", "by", "for", "from", "in", "is", "it", "its", "of", "on", "one", "ones",
    "or", "that", "the", "this", "to", "with",
];
/// Comments on arguments are the help that the command prints.
const HELP: &str = "crates/cli/src/args";

/// One-line comments whose words are all in the name of the item. Items that the public documentation shows are free: the
/// compiler asks for a comment on each.
pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in repo.files.iter().filter(|(path, _)| path.ends_with(".rs") && !path.starts_with(HELP))
    {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(comment) = doc(line) else { continue };
            let is_one_line = (index == 0 || doc(lines[index - 1]).is_none())
                && lines.get(index + 1).is_none_or(|next| doc(next).is_none());
            if !is_one_line {
                continue;
            }
            let below = lines[index + 1..].iter().find(|line| !line.trim_start().starts_with("#["));
            if let Some(name) = below.and_then(|line| item(line))
                && restates(comment, name)
                && !is_public(&lines, index, below.is_some_and(|line| line.trim_start().starts_with("pub ")))
            {
                let message = format!("the comment only restates {name}; say more or remove it");
                findings.push(Finding::fault(path, index + 1, message));
            }
        }
    }
    findings
}

fn doc(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///")
}

/// The name that a line declares: of an item, a field or a variant.
fn item(line: &str) -> Option<&str> {
    const BEFORE: &[&str] = &[
        "async", "const", "enum", "fn", "mod", "pub", "static", "struct", "trait", "type", "union", "unsafe",
    ];
    let is_word = |next: char| next.is_alphanumeric() || next == '_';
    let mut rest = line.trim_start();
    loop {
        let end = rest.find(|next| !is_word(next)).unwrap_or(rest.len());
        let word = &rest[..end];
        if !BEFORE.contains(&word) {
            return (!word.is_empty()).then_some(word);
        }
        rest = rest[end..].trim_start();
        if let Some((_, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            rest = after.trim_start();
        }
    }
}

fn restates(comment: &str, name: &str) -> bool {
    let of_name = words(name);
    let mut said = words(comment);
    let has_words = !said.is_empty();
    said.retain(|word| !STOP_WORDS.contains(&word.as_str()));
    has_words && said.iter().all(|word| of_name.contains(word))
}

/// The words of a text or of a name in either case, in lower case and singular.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|next: char| !next.is_ascii_alphanumeric()).filter(|run| !run.is_empty()) {
        let mut word = String::new();
        let mut before = None;
        for next in run.chars() {
            if next.is_ascii_uppercase() && before.is_some_and(|last: char| last.is_ascii_lowercase()) {
                words.push(singular(std::mem::take(&mut word)));
            }
            word.push(next.to_ascii_lowercase());
            before = Some(next);
        }
        words.push(singular(word));
    }
    words
}

fn singular(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

/// True when the line or one that it is nested in is declared `pub`.
fn is_public(lines: &[&str], index: usize, item_is_public: bool) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = indent(lines[index]);
    let outer = lines[..index].iter().rev().filter(|line| {
        let text = line.trim_start();
        let opens = !text.is_empty() && !text.starts_with("//") && !text.starts_with(['#', ')', ']', '}']);
        let is_outer = opens && indent(line) < depth;
        if is_outer {
            depth = indent(line);
        }
        is_outer
    });
    item_is_public || { outer }.any(|line| line.trim_start().starts_with("pub "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn comment_that_restates_a_name_is_found() {
        let code = "/// The lines.\nstruct Lines {\n    /// Its `node`.\n    #[serde(default)]\n    pub(crate) node: u8,\n}\n/// Reads a file.\nfn read_files() {}\n/// It.\nconst X: u8 = 1;\n";
        expect(
            check,
            &[("crates/a/src/lib.rs", code)],
            &[
                "crates/a/src/lib.rs:1: the comment only restates Lines; say more or remove it",
                "crates/a/src/lib.rs:3: the comment only restates node; say more or remove it",
                "crates/a/src/lib.rs:7: the comment only restates read_files; say more or remove it",
                "crates/a/src/lib.rs:9: the comment only restates X; say more or remove it",
            ],
        );
    }

    #[test]
    fn comment_that_adds_words_or_is_public_passes() {
        let code = "/// The lines of a file.\nstruct Lines;\n/// The node.\n/// Not its parent.\nstruct Node;\n/// ***\nfn is_rule() {}\npub enum E {\n    /// All.\n    All,\n    Failed {\n        /// Why.\n        why: u8,\n    },\n}\n/// The id.\npub struct Id;\n";
        expect(
            check,
            &[("crates/a/src/lib.rs", code), ("crates/cli/src/args.rs", "/// Models\nstruct Model;\n")],
            &[],
        );
    }
}
