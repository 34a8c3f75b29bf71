//! The house rules that a program can check. Each rule is a function from the checkout to its findings; the tests
//! of each show a bad sample.

mod arrows;
mod comments;
mod crates;
mod cycles;
mod documents;
mod errors;
mod fronts;
mod hygiene;
mod lengths;
mod named_tests;
mod names;
mod tests_rules;
mod vocabulary;

use crate::repo::{self, Repo};
use anyhow::{Result, bail};
use std::fmt;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// Worth knowing; never fails.
    Note,
    /// Breaks a house rule.
    Fault,
}

/// One place that a rule complains about. `line` counts from 1; 0 means the whole file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) weight: Weight,
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl Finding {
    fn fault(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { weight: Weight::Fault, path: path.to_owned(), line, message: message.into() }
    }

    fn note(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { weight: Weight::Note, ..Self::fault(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Rule = fn(&Repo) -> Vec<Finding>;

/// Every rule with the name it is reported under; `docs/development.md` explains them in the same order.
const RULES: &[(&str, Rule)] = &[
    ("lengths", lengths::check),
    ("arrows", arrows::check),
    ("crates", crates::check),
    ("cycles", cycles::check),
    ("vendors", vocabulary::vendors),
    ("sql", vocabulary::sql),
    ("json-rpc", vocabulary::json_rpc),
    ("print", vocabulary::print),
    ("fronts", fronts::check),
    ("errors", errors::check),
    ("unfinished", vocabulary::unfinished),
    ("lints", vocabulary::lints),
    ("pure", vocabulary::pure),
    ("tests", tests_rules::check),
    ("test names", tests_rules::names),
    ("types", names::types),
    ("retired", names::retired),
    ("comments", comments::check),
    ("machine", hygiene::check),
    ("documents", documents::check),
    ("named tests", named_tests::check),
];

/// `cargo xtask tidy`: prints what it found, true when nothing is a fault.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let notes = match arguments {
        [] => false,
        [flag] if flag == "--notes" => true,
        other => bail!("tidy takes only --notes, not {other:?}"),
    };
    let repo = Repo::load(&repo::root()?)?;
    let (mut faults, mut quiet) = (0, 0);
    for (name, rule) in RULES {
        let mut findings = rule(&repo);
        findings.sort();
        findings.dedup();
        for finding in findings {
            match finding.weight {
                Weight::Fault => {
                    faults += 1;
                    println!("{name}: {finding}");
                }
                Weight::Note if notes => println!("note: {name}: {finding}"),
                Weight::Note => quiet += 1,
            }
        }
    }
    let hint = if quiet > 0 { format!(", {quiet} notes (--notes shows them)") } else { String::new() };
    println!("tidy: {} rules over {} files, {faults} faults{hint}", RULES.len(), repo.files.len());
    Ok(faults == 0)
}

/// Runs one rule over files in memory and compares what it prints, line by line.
#[cfg(test)]
#[track_caller]
fn expect(rule: Rule, files: &[(&str, &str)], wanted: &[&str]) {
    let repo = Repo::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    let mut findings = rule(&repo);
    findings.sort_by(|a, b| (&a.path, a.line, &a.message).cmp(&(&b.path, b.line, &b.message)));
    let found: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert_eq!(found, wanted);
}
