//! What one place says: a file, the environment, or flags. What is wrong there is a problem, and the rest counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use quipu_providers::nearest;
use serde_json::Value;

use super::check::{CheckedValue, check, read_words};
use super::table::{KEYS, Key, ProjectUse, SCHEMA, variable};
use super::text::{Form, Node, SyntaxError, doubled, joined, line_of, parse};
use super::tools::closed;
use crate::bounded_file::{self, BoundedReadError};

/// Bytes of a file of settings at most.
const MOST_BYTES: u64 = 1 << 20;
/// Names that nobody knows, or that stand there twice, that are reported of one file.
const MOST_PROBLEMS: usize = 20;
/// Problems that are reported of one value.
const MOST_OF_ONE: usize = 10;
/// Characters of a foreign name that are shown.
const MOST_NAME: usize = 80;

/// Where a value comes from. A later one counts more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody says anything.
    BuiltIn,
    /// The user's file.
    User(PathBuf),
    /// The file of a project.
    Project(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl Source {
    /// Its word: `built-in`, `user`, `project`, `environment`, `flag`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::User(_) => "user",
            Self::Project(_) => "project",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::User(path) | Self::Project(path) => path.display().fmt(f),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Something wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file or the variable with the problem.
    pub source: Source,
    /// The line of the file, from 1.
    pub line: Option<usize>,
    /// The problem, without its place.
    pub kind: ProblemKind,
}

/// A problem with a file, a name or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file cannot be read: why.
    Unreadable(String),
    /// The file had settings, and is empty now, as it is while a program writes it.
    Emptied,
    /// The file is no JSON from this column of its line on.
    Syntax {
        /// The number of the column, in characters from 1.
        column: usize,
    },
    /// What should be an object is none: the whole of the file where the name is empty.
    NotAnObject(String),
    /// There is no setting of this name.
    Unknown {
        /// The name, as it is written.
        key: String,
        /// The setting that may be meant.
        nearest: Option<String>,
    },
    /// The value is none that the setting may have.
    Invalid {
        /// The setting.
        key: &'static str,
        /// What is wrong, for people.
        what: String,
    },
    /// The name stands there twice; the last one counts.
    Doubled(String),
    /// A project may not set it.
    Refused {
        /// The setting.
        key: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// The setting has another name now; its value is used.
    Renamed {
        /// The name in the file or the environment.
        formerly: String,
        /// The name of the setting, or its variable.
        now: String,
    },
    /// Nobody has accepted the file of the project as it is.
    Untrusted,
    /// There are more problems than are reported.
    More,
}

impl Problem {
    /// Whether nothing of the file can be used.
    pub fn is_of_the_whole(&self) -> bool {
        match &self.kind {
            ProblemKind::Unreadable(_) | ProblemKind::Emptied | ProblemKind::Syntax { .. } => true,
            ProblemKind::NotAnObject(name) => name.is_empty(),
            ProblemKind::Unknown { .. }
            | ProblemKind::Invalid { .. }
            | ProblemKind::Doubled(_)
            | ProblemKind::Refused { .. }
            | ProblemKind::Renamed { .. }
            | ProblemKind::Untrusted
            | ProblemKind::More => false,
        }
    }

    /// Whether it keeps a setting from being read: its value is wrong, or that of what it stands in.
    pub fn hides(&self, key: &str) -> bool {
        match &self.kind {
            ProblemKind::Invalid { key: wrong, .. } => *wrong == key,
            ProblemKind::NotAnObject(name) => {
                key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        match &self.kind {
            ProblemKind::Unreadable(why) => write!(f, "it cannot be read, so all of it is ignored: {why}"),
            ProblemKind::Emptied => f.write_str(
                "it is empty, so what it said last holds in this process; write {} to set nothing",
            ),
            ProblemKind::Syntax { column } => {
                write!(f, "it is not valid JSON from column {column} on, so all of it is ignored")
            }
            ProblemKind::NotAnObject(name) if name.is_empty() => {
                f.write_str("it must be a JSON object of settings")
            }
            ProblemKind::NotAnObject(name) => write!(f, "{name} must be an object; it is ignored"),
            ProblemKind::Unknown { key, nearest: Some(near) } => {
                write!(f, "there is no setting {key}. Did you mean {near}?")
            }
            ProblemKind::Unknown { key, nearest: None } => write!(f, "there is no setting {key}"),
            ProblemKind::Invalid { what, .. } => f.write_str(what),
            ProblemKind::Doubled(name) => {
                write!(f, "{name} occurs more than once; the last one counts")
            }
            ProblemKind::Refused { key, why } => {
                write!(f, "{key} is ignored: {why}, so only your own file may set it")
            }
            ProblemKind::Renamed { formerly, now } => {
                write!(f, "{formerly} is now called {now}. The old name still works; use the new one")
            }
            ProblemKind::Untrusted => {
                f.write_str("the settings of this project are ignored until you accept them")
            }
            ProblemKind::More => f.write_str("there are more problems"),
        }?;
        match (&self.source, self.line) {
            (Source::User(_) | Source::Project(_), Some(line)) => write!(f, " (line {line})"),
            _ => Ok(()),
        }
    }
}

/// What one place says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Layer {
    /// The values that can be used, by the names of their settings.
    pub(super) values: BTreeMap<&'static str, Value>,
    pub(super) problems: Vec<Problem>,
    /// All values are those that take the place of what a file may say that was never read.
    pub(super) is_closed: bool,
}

/// Bytes of a file; `None` where there is none.
pub(super) fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        _ => {}
    }
    bounded_file::read(path, MOST_BYTES).map(Some).map_err(|error| match error {
        BoundedReadError::Open(error) => reason(&error),
        error => error.in_words("1 MiB"),
    })
}

/// Why a file cannot be opened, without its path.
fn reason(error: &quipu_workspace::FileError) -> String {
    use std::error::Error as _;
    match error {
        quipu_workspace::FileError::NotAFile { .. } => "it is not a regular file".to_owned(),
        other => other.source().map_or_else(|| other.to_string(), ToString::to_string),
    }
}

impl Layer {
    /// What a file says.
    pub(super) fn of_file(source: &Source, bytes: Result<Option<Vec<u8>>, String>) -> Self {
        let unreadable = |why: String| Self {
            problems: vec![Problem {
                source: source.clone(),
                line: None,
                kind: ProblemKind::Unreadable(why),
            }],
            ..Self::default()
        };
        let (mut layer, text) = match bytes {
            Ok(Some(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => (Self::of_text(source, &text), Some(text)),
                Err(error) => {
                    let at = error.utf8_error().valid_up_to();
                    let layer = unreadable(format!("it is not text (UTF-8) from byte {at} on"));
                    (layer, Some(String::from_utf8_lossy(error.as_bytes()).into_owned()))
                }
            },
            Ok(None) => return Self::default(),
            Err(why) => (unreadable(why), None),
        };
        if layer.problems.iter().any(Problem::is_of_the_whole) && matches!(source, Source::User(_)) {
            layer.close_unread(source, text.as_deref());
        }
        layer
    }

    /// Closes what narrows tools or confines commands, as far as a file of which nothing can be used names it.
    fn close_unread(&mut self, source: &Source, text: Option<&str>) {
        let is_named =
            |key: &&Key| text.is_none_or(|text| key.name.split('.').all(|part| text.contains(part)));
        let (mut names, mut effects) = (Vec::new(), Vec::new());
        for key in KEYS.iter().filter(is_named) {
            let (Some(value), mut reported) = closed(key.name, None, vec![String::new()]) else { continue };
            self.values.insert(key.name, value);
            names.push(key.name);
            let what = reported.pop().unwrap_or_default();
            let effect = what.split_once(": ").map_or(what.clone(), |(_, effect)| effect.to_owned());
            if !effects.contains(&effect) {
                effects.push(effect);
            }
        }
        self.is_closed = true;
        if let Some(key) = names.first() {
            let what = format!("{} cannot be read: {}", names.join(", "), effects.join("; "));
            let kind = ProblemKind::Invalid { key, what };
            self.problems.push(Problem { source: source.clone(), line: None, kind });
        }
    }

    /// What a file says that is empty and was not.
    pub(super) fn emptied(source: Source) -> Self {
        let problem = Problem { source, line: None, kind: ProblemKind::Emptied };
        Self { problems: vec![problem], ..Self::default() }
    }

    /// What the text of a file says.
    fn of_text(source: &Source, text: &str) -> Self {
        let mut layer = Self::default();
        if !text.trim_start_matches('\u{feff}').trim().is_empty() {
            match parse(text) {
                Ok(root) => Walk { source, text, layer: &mut layer, many: 0 }.file(&root),
                Err(SyntaxError { at }) => {
                    let before = text.get(..at).unwrap_or(text);
                    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                    let (line, kind) = (Some(line_of(text, at)), ProblemKind::Syntax { column });
                    layer.problems.push(Problem { source: source.clone(), line, kind });
                }
            }
        }
        layer
    }

    /// What the environment says.
    pub(super) fn of_environment(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut layer = Self::default();
        let set = |name: &String| env(name).filter(|words| !words.is_empty());
        for key in KEYS {
            let mut name = key.variable();
            let mut words = set(&name);
            if let (None, Some(formerly)) = (&words, key.formerly.map(variable)) {
                words = set(&formerly);
                if words.is_some() {
                    let now = std::mem::replace(&mut name, formerly.clone());
                    let kind = ProblemKind::Renamed { formerly, now };
                    let source = Source::Environment(name.clone());
                    layer.problems.push(Problem { source, line: None, kind });
                }
            }
            let Some(words) = words else { continue };
            match read_words(key, &words) {
                Ok(value) => drop(layer.values.insert(key.name, value)),
                // Whatever says something asks for it.
                Err(_) if key.name == "screenReader" => {
                    drop(layer.values.insert(key.name, Value::Bool(true)));
                }
                Err(what) => {
                    let (value, reported) = closed(key.name, None, vec![what]);
                    layer.problems.extend(reported.into_iter().map(|what| {
                        let source = Source::Environment(name.clone());
                        Problem { source, line: None, kind: ProblemKind::Invalid { key: key.name, what } }
                    }));
                    if let Some(value) = value {
                        layer.values.insert(key.name, value);
                    }
                }
            }
        }
        layer
    }

    /// The same without what a project may not set.
    pub(super) fn of_project(mut self, source: &Source) -> Self {
        for key in KEYS {
            let ProjectUse::Refused(why) = key.project else { continue };
            if self.values.remove(key.name).is_some() {
                let kind = ProblemKind::Refused { key: key.name, why };
                self.problems.push(Problem { source: source.clone(), line: None, kind });
            }
        }
        self
    }

    /// What could be used before and cannot any more stays as it was.
    pub(super) fn keep_from(&mut self, before: &Self) {
        let is_lost = self.problems.iter().any(Problem::is_of_the_whole);
        if is_lost && !before.is_closed && !before.values.is_empty() {
            // What was closed is known.
            self.is_closed = false;
            self.problems.retain(|problem| !matches!(problem.kind, ProblemKind::Invalid { .. }));
            self.values.clear();
        }
        for (name, value) in &before.values {
            let hidden = is_lost || self.problems.iter().any(|problem| problem.hides(name));
            if hidden && !self.values.contains_key(name) {
                self.values.insert(name, value.clone());
            }
        }
    }
}

/// Goes through a file.
struct Walk<'a> {
    source: &'a Source,
    text: &'a str,
    layer: &'a mut Layer,
    many: usize,
}

impl Walk<'_> {
    fn problem(&mut self, at: usize, kind: ProblemKind) {
        let line = Some(line_of(self.text, at));
        self.layer.problems.push(Problem { source: self.source.clone(), line, kind });
    }

    /// The same for one of those that there may be any number of.
    fn one_of_many(&mut self, at: usize, kind: impl FnOnce() -> ProblemKind) {
        self.many += 1;
        match self.many {
            ..=MOST_PROBLEMS => self.problem(at, kind()),
            many if many == MOST_PROBLEMS + 1 => self.problem(at, ProblemKind::More),
            _ => {}
        }
    }

    fn file(&mut self, root: &Node) {
        self.section(root, "");
        let mut found = Vec::new();
        doubled(root, "", &mut found);
        for (path, at) in found {
            self.one_of_many(at, || ProblemKind::Doubled(shown(&path)));
        }
    }

    /// An object of settings, or of such objects.
    fn section(&mut self, node: &Node, path: &str) {
        let members = match &node.form {
            Form::Object(members) => members,
            Form::Null => return,
            _ => {
                self.problem(node.span.start, ProblemKind::NotAnObject(path.to_owned()));
                self.close(node.span.start, path);
                return;
            }
        };
        // Of members with one name the last one counts, whatever it is.
        let last: BTreeMap<&str, usize> =
            members.iter().enumerate().map(|(at, member)| (member.name.as_str(), at)).collect();
        for (at, member) in members.iter().enumerate() {
            let name = joined(path, &member.name);
            let counts = last.get(member.name.as_str()) == Some(&at);
            let is_within =
                |key: &Key| key.name.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.'));
            if !counts || name == SCHEMA {
                continue;
            } else if let Some(key) = Key::named(&name) {
                self.setting(key, &member.value);
            } else if let Some(key) = Key::formerly_named(&name)
                // A name that became that of a section is one unless it holds a list, as it did before.
                && (matches!(member.value.form, Form::List(_)) || !KEYS.iter().any(is_within))
            {
                self.problem(member.start, ProblemKind::Renamed { formerly: name, now: key.name.to_owned() });
                // The new name counts more, wherever it stands.
                if !members.iter().any(|other| joined(path, &other.name) == key.name) {
                    self.setting(key, &member.value);
                }
            } else if KEYS.iter().any(is_within) {
                self.section(&member.value, &name);
            } else {
                self.one_of_many(member.start, || ProblemKind::Unknown {
                    key: shown(&name),
                    nearest: near(&name),
                });
            }
        }
    }

    /// Closes what narrows tools or confines commands in a section that cannot be read. Each effect is reported once.
    fn close(&mut self, at: usize, path: &str) {
        let mut effects = BTreeSet::new();
        let is_within = |key: &&Key| key.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        for key in KEYS.iter().filter(is_within) {
            let what = format!("{path} must be an object");
            let (Some(value), mut reported) = closed(key.name, None, vec![what]) else { continue };
            self.layer.values.insert(key.name, value);
            let Some(what) = reported.pop() else { continue };
            if effects.insert(what.split_once(": ").map(|(_, effect)| effect.to_owned())) {
                self.problem(at, ProblemKind::Invalid { key: key.name, what });
            }
        }
    }

    fn setting(&mut self, key: &'static Key, node: &Node) {
        let at = node.span.start;
        let value = match node.value() {
            Ok(Value::Null) => return,
            Ok(value) => value,
            Err(why) => {
                let what = format!("{} {}", key.name, why.words());
                self.problem(at, ProblemKind::Invalid { key: key.name, what });
                return;
            }
        };
        let CheckedValue { value, problems } = check(key, &value);
        let left = if value.is_none() { "; it is ignored" } else { "" };
        for what in problems.into_iter().take(MOST_OF_ONE) {
            self.problem(at, ProblemKind::Invalid { key: key.name, what: format!("{what}{left}") });
        }
        if let Some(value) = value {
            self.layer.values.insert(key.name, value);
        }
    }
}

/// A foreign name, in so many characters.
fn shown(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-$[]".contains(c);
    let cut: String = name.chars().take(MOST_NAME).collect();
    let cut = if cut.len() < name.len() { format!("{cut}…") } else { cut };
    if name.chars().take(MOST_NAME).all(is_plain) && !name.is_empty() { cut } else { format!("{cut:?}") }
}

/// The setting that a name may mean.
pub(super) fn near(name: &str) -> Option<String> {
    if let Some(key) = Key::formerly_named(name) {
        return Some(key.name.to_owned());
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let sections =
        KEYS.iter().filter_map(|key| key.name.rsplit_once('.').map(|(section, _)| section.to_owned()));
    let all = KEYS.iter().map(|key| key.name.to_owned()).chain(sections);
    nearest(name, all).into_iter().next().or_else(|| {
        let leaf = nearest(&last(name), KEYS.iter().map(|key| last(key.name))).into_iter().next()?;
        KEYS.iter().find(|key| last(key.name) == leaf).map(|key| key.name.to_owned())
    })
}
