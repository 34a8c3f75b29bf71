//! Command lines as bash reads them, as far as that can be known without running them. What is not certain is no part but a
//! reason why nothing is known.

mod reader;

pub(crate) use reader::{is_misleading, parse};

/// Bytes of a command line that are read.
pub(crate) const COMMAND_LIMIT: usize = 32 << 10;
/// Parts of a command line that are judged.
pub(crate) const PARTS_LIMIT: usize = 256;
/// How deep substitutions, groups and unwrapped commands are followed.
pub(crate) const DEPTH_LIMIT: usize = 12;

/// What a word, or a pattern of words, is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// This character, whatever it was quoted with.
    Char(char),
    /// Between two words.
    Space,
    /// `~` that stands for a home directory.
    Home,
    /// Known only when it runs: a variable, a substitution, names of files. It may become several words.
    Unknown,
}

/// What stands between blanks: the name of a program, an argument, a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Word {
    pub(crate) units: Vec<Unit>,
    /// Where the first quote stands in it, if any does: then it is no word of the language.
    pub(crate) quoted: Option<usize>,
    /// Whether it may become several words, or none.
    pub(crate) splits: bool,
    /// Whether it stands for names of files, or for words made of braces.
    pub(crate) is_pattern: bool,
}

impl Word {
    pub(crate) fn of(text: &str) -> Self {
        Self { units: text.chars().map(Unit::Char).collect(), ..Self::default() }
    }

    pub(crate) fn unknown() -> Self {
        Self { units: vec![Unit::Unknown], splits: true, ..Self::default() }
    }

    /// Its text, where that is known.
    pub(crate) fn text(&self) -> Option<String> {
        let char = |unit: &Unit| match unit {
            Unit::Char(char) => Some(*char),
            Unit::Space => Some(' '),
            Unit::Home | Unit::Unknown => None,
        };
        self.units.iter().map(char).collect()
    }

    /// A quote begins here.
    fn quote(&mut self) {
        self.quoted.get_or_insert(self.units.len());
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.units.contains(&Unit::Unknown)
    }

    /// Whether it could be an option, or more than one word.
    pub(crate) fn may_be_option(&self) -> bool {
        matches!(self.units.first(), Some(Unit::Unknown | Unit::Char('-')))
    }

    /// A word of the language, such as `if`.
    pub(crate) fn is_reserved(&self, word: &str) -> bool {
        self.quoted.is_none() && self.text().is_some_and(|text| text == word)
    }
}

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SimpleCommand {
    /// Variables that are set before it, or alone.
    pub(crate) variables: Vec<(String, Word)>,
    pub(crate) words: Vec<Word>,
    /// As it was written.
    pub(crate) source: String,
}

/// What a redirection does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    Read,
    Write,
}

/// One part of a command line, in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Command(SimpleCommand),
    Redirection {
        usage: FileUse,
        path: Word,
        source: String,
    },
    /// A loop sets this variable.
    Variable(String),
}

/// Why a command line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(pub(crate) &'static str);
