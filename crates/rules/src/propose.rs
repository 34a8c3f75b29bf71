//! The rule that a question offers for a command: its program and its command, and any arguments.

use crate::shell::Word;

/// Programs whose first word says what they do.
const WITH_COMMANDS: &[&str] = &[
    "git",
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "go",
    "make",
    "just",
    "uv",
    "poetry",
    "pip",
    "dotnet",
    "gradle",
    "mvn",
    "rustup",
    "gh",
    "bundle",
    "mix",
    "swift",
    "zig",
    "helm",
    "terraform",
    "composer",
    "rake",
    "tox",
    "nox",
    "hatch",
    "cabal",
    "stack",
];
/// Commands that run what their arguments name.
const RUNNERS: &[&str] =
    &["exec", "dlx", "x", "run", "create", "init", "install", "alias", "extension", "tool"];
/// Programs that read, check or test.
const READERS: &[&str] = &[
    "ls", "cat", "head", "tail", "wc", "grep", "rg", "diff", "tree", "stat", "file", "du", "df", "uniq",
    "cut", "jq", "which", "date", "id", "uname", "ps", "pytest", "jest", "vitest", "eslint", "tsc", "ruff",
    "mypy", "rustfmt", "gofmt",
];

/// `None` where none is offered: for programs that run others or code, and those that are not known.
pub(crate) fn proposal(words: &[Word]) -> Option<String> {
    let mut words = words.iter();
    let program = words.next().and_then(Word::text)?;
    if READERS.contains(&program.as_str()) {
        return Some(format!("bash({program} *)"));
    }
    if !WITH_COMMANDS.contains(&program.as_str()) {
        return None;
    }
    let mut name = || {
        let word = words.next().and_then(Word::text)?;
        let is_plain = word.starts_with(|char: char| char.is_ascii_lowercase())
            && word.len() <= 40
            && word.chars().all(|char| char.is_ascii_alphanumeric() || "-_:".contains(char));
        is_plain.then_some(word)
    };
    let command = name()?;
    let runs_scripts = matches!(program.as_str(), "npm" | "pnpm" | "yarn") && command == "run";
    if runs_scripts {
        let script = name()?;
        return Some(format!("bash({program} run {script} *)"));
    }
    let runs_itself = matches!(program.as_str(), "cargo" | "go") && command == "run";
    if RUNNERS.contains(&command.as_str()) && !runs_itself {
        return None;
    }
    Some(format!("bash({program} {command} *)"))
}
