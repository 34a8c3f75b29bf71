//! Patterns of command lines, paths, hosts and names.

use std::path::{Component, Path, PathBuf};

use crate::RuleError;
use crate::shell::{Unit, Word};

/// What a pattern wants at one place of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternUnit {
    Unit(Unit),
    /// `*`: any units, also none.
    Any,
}

/// A pattern of a simple command: words with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPattern {
    wants: Vec<PatternUnit>,
    /// Ends in a word `*`, which may be missing together with the space before it.
    open: bool,
}

impl CommandPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let text = text.strip_suffix(":*").map_or_else(|| text.to_owned(), |text| format!("{text} *"));
        let (mut wants, mut quote, mut chars) = (Vec::new(), None, text.chars().peekable());
        while let Some(char) = chars.next() {
            match (quote, char) {
                (Some('\''), '\'') | (Some('"'), '"') => quote = None,
                (Some('"'), '\\') if chars.peek().is_some_and(|next| "\"\\$`".contains(*next)) => {
                    wants.extend(chars.next().map(|char| PatternUnit::Unit(Unit::Char(char))));
                }
                (Some('"'), '$' | '`') => return Err(RuleError::NotOneCommand(char)),
                (Some(_), char) => wants.push(PatternUnit::Unit(Unit::Char(char))),
                (None, '\'' | '"') => quote = Some(char),
                (None, '\\') => {
                    let escaped = chars.next().ok_or(RuleError::OpenQuote)?;
                    wants.push(PatternUnit::Unit(Unit::Char(escaped)));
                }
                (None, '*') => wants.push(PatternUnit::Any),
                (None, ' ' | '\t') => {
                    if wants.last() != Some(&PatternUnit::Unit(Unit::Space)) {
                        wants.push(PatternUnit::Unit(Unit::Space));
                    }
                }
                (None, ';' | '|' | '&' | '<' | '>' | '(' | ')' | '$' | '`' | '\n' | '\r') => {
                    return Err(RuleError::NotOneCommand(char));
                }
                (None, '~') if matches!(wants.last(), None | Some(PatternUnit::Unit(Unit::Space))) => {
                    wants.push(PatternUnit::Unit(Unit::Home));
                }
                (None, char) => wants.push(PatternUnit::Unit(Unit::Char(char))),
            }
        }
        if quote.is_some() {
            return Err(RuleError::OpenQuote);
        }
        let open = wants.ends_with(&[PatternUnit::Unit(Unit::Space), PatternUnit::Any]);
        Ok(Self { wants, open })
    }

    /// Whether there is no `*` in it.
    pub(crate) fn is_exact(&self) -> bool {
        !self.wants.contains(&PatternUnit::Any)
    }

    pub(crate) fn matches(&self, units: &[Unit]) -> bool {
        let fits = |wants: &[PatternUnit]| {
            fits(
                wants,
                units,
                |want, unit| matches!(want, PatternUnit::Unit(one) if one == unit && *one != Unit::Unknown),
                |want| *want == PatternUnit::Any,
            )
        };
        fits(&self.wants)
            || (self.open && fits(self.wants.get(..self.wants.len().saturating_sub(2)).unwrap_or_default()))
    }
}

/// The units of some words.
pub(crate) fn units(words: &[Word]) -> Vec<Unit> {
    let mut units = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            units.push(Unit::Space);
        }
        units.extend_from_slice(&word.units);
    }
    units
}

/// Whether a pattern fits a text as a whole. Takes no longer than their lengths multiplied.
fn fits<W, T>(wants: &[W], text: &[T], is: impl Fn(&W, &T) -> bool, any: impl Fn(&W) -> bool) -> bool {
    let (mut want, mut at) = (0, 0);
    // Where the last `*` stood, and how much of the text it took.
    let mut last: Option<(usize, usize)> = None;
    while let Some(one) = text.get(at) {
        match wants.get(want) {
            Some(star) if any(star) => {
                last = Some((want, at));
                want += 1;
            }
            Some(wanted) if is(wanted, one) => {
                want += 1;
                at += 1;
            }
            _ => {
                let Some((star, taken)) = last else { return false };
                last = Some((star, taken + 1));
                want = star + 1;
                at = taken + 1;
            }
        }
    }
    wants.get(want..).unwrap_or_default().iter().all(any)
}

/// Whether a text with `*` fits a whole name.
pub(crate) fn fits_name(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    fits(&pattern, &name, |want, char| want == char, |want| *want == '*')
}

/// A pattern of paths: `*` within a name, `**` for any directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    root: Root,
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    /// The directory of the session.
    Workspace,
    Home,
    Top,
}

impl PathPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let (root, rest) = match (text.strip_prefix("~/"), text.strip_prefix('/')) {
            (Some(rest), _) => (Root::Home, rest),
            // `//` begins absolute paths in rules of other agents.
            (None, Some(rest)) => (Root::Top, rest.trim_start_matches('/')),
            (None, None) => (Root::Workspace, text.strip_prefix("./").unwrap_or(text)),
        };
        let mut names: Vec<String> =
            rest.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect();
        if names.iter().any(|name| name == "..") {
            return Err(RuleError::ParentDirectory);
        }
        if text.ends_with('/') || (names.is_empty() && root != Root::Workspace) {
            names.push("**".to_owned());
        }
        if names.is_empty() {
            return Err(RuleError::Empty);
        }
        names.dedup_by(|one, other| one == "**" && other == "**");
        Ok(Self { root, names })
    }

    /// The same files below this directory; `None` where the pattern has a place of its own. A `*` in the name of the directory fits more than
    /// that.
    pub(crate) fn below(&self, directory: &Path) -> Option<Self> {
        if self.root != Root::Workspace {
            return None;
        }
        let above = directory.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        });
        let names = above.map(str::to_owned).chain(self.names.iter().cloned()).collect();
        Some(Self { root: Root::Top, names })
    }

    pub(crate) fn is_exact(&self) -> bool {
        !self.names.iter().any(|name| name.contains('*'))
    }

    /// `path` is absolute and without `..`.
    pub(crate) fn matches(&self, path: &Path, cwd: &Path, home: Option<&Path>) -> bool {
        let root = match self.root {
            Root::Workspace => Some(cwd),
            Root::Home => home,
            Root::Top => Some(Path::new("/")),
        };
        let Some(below) = root.and_then(|root| path.strip_prefix(root).ok()) else { return false };
        let names: Option<Vec<&str>> = below.iter().map(std::ffi::OsStr::to_str).collect();
        let Some(names) = names else { return false };
        fits(&self.names, &names, |want, name| fits_name(want, name), |want| want == "**")
    }
}

/// A path joined to a directory and without `.` and `..`, as it is written: links are not followed.
pub(crate) fn joined(base: &Path, path: &Path) -> PathBuf {
    let mut whole = PathBuf::from("/");
    for component in base.join(path).components() {
        match component {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole
}
