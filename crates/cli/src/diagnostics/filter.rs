//! What is traced: `debug`, or `quipu=debug,quipu_store=trace`.

use tracing::Metadata;
use tracing::level_filters::LevelFilter;

/// How the names of our crates begin. Others are never traced: nobody has looked at what they print.
const OURS: &str = "quipu";

/// Levels by the beginnings of module paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    /// The longest first, so that the first that fits counts.
    targets: Vec<(String, LevelFilter)>,
}

/// A list that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FilterError {
    #[error("{word:?} is not a level; levels are off, error, warn, info, debug and trace")]
    NoLevel { word: String },
    #[error(
        "{target:?} cannot be traced; only Quipu's own crates can, such as quipu=debug or quipu_store=trace"
    )]
    NotOurs { target: String },
}

fn level(word: &str) -> Result<LevelFilter, FilterError> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return Err(FilterError::NoLevel { word: word.chars().take(80).collect() }),
    })
}

impl Filter {
    /// Reads a level, or a list of `TARGET=LEVEL` and levels with commas between them.
    pub(super) fn parse(text: &str) -> Result<Self, FilterError> {
        let mut targets = Vec::new();
        for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            match directive.split_once('=') {
                None => targets.push((OURS.to_owned(), level(directive)?)),
                Some((target, word)) => {
                    let target = target.trim();
                    if !target.starts_with(OURS) {
                        return Err(FilterError::NotOurs { target: target.chars().take(80).collect() });
                    }
                    targets.push((target.to_owned(), level(word.trim())?));
                }
            }
        }
        // The later of two for the same counts.
        targets.reverse();
        targets.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
        Ok(Self { targets })
    }

    /// The most that anything is traced at.
    pub(super) fn most(&self) -> LevelFilter {
        self.targets.iter().map(|(_, level)| *level).max().unwrap_or(LevelFilter::OFF)
    }

    pub(super) fn enables(&self, metadata: &Metadata<'_>) -> bool {
        let found = self.targets.iter().find(|(target, _)| metadata.target().starts_with(target.as_str()));
        found.is_some_and(|(_, level)| metadata.level() <= level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_lists_are_read() {
        let check = |text: &str, expect: &[(&str, LevelFilter)]| {
            let expect = expect.iter().map(|(target, level)| ((*target).to_owned(), *level)).collect();
            assert_eq!(Filter::parse(text), Ok(Filter { targets: expect }), "{text}");
        };
        check("", &[]);
        check("debug", &[("quipu", LevelFilter::DEBUG)]);
        check(" WARN , ", &[("quipu", LevelFilter::WARN)]);
        check(
            "quipu=debug, quipu_store = trace",
            &[("quipu_store", LevelFilter::TRACE), ("quipu", LevelFilter::DEBUG)],
        );
        check("info,quipu=error", &[("quipu", LevelFilter::ERROR), ("quipu", LevelFilter::INFO)]);
    }

    #[test]
    fn wrong_directives_name_what_is_valid() {
        let told = |text: &str| Filter::parse(text).unwrap_err().to_string();
        assert_eq!(
            told("debgu"),
            "\"debgu\" is not a level; levels are off, error, warn, info, debug and trace"
        );
        assert!(told("quipu=loud").starts_with("\"loud\" is not a level"));
        assert!(told("hyper=debug").starts_with("\"hyper\" cannot be traced"));
        assert!(told(&"x".repeat(100_000)).len() < 300);
    }
}
