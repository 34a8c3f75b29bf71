//! Code in colours, one line at a time: words, strings, comments and numbers, by a table of languages.
//!
//! It knows no grammar. What it carries from line to line is which string or comment is open, so that a line costs
//! what the line is long.

mod lexer;
mod table;
#[cfg(test)]
mod tests;

use crate::Role;
use crate::styled::Run;
use table::{LANGUAGES, Language};

/// Where a line of code begins: in which language, and within what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Highlighter {
    /// `None` for one that is not known.
    language: Option<&'static Language>,
    inside: LineState,
}

/// The construct that is open at the start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LineState {
    #[default]
    Nothing,
    /// One of the language's strings, by its place in the table.
    Text(usize),
    /// One of its comments, so many deep.
    Comment(usize, usize),
    /// A tag of a markup language.
    Tag,
}

impl Highlighter {
    /// The start of code in a language, by its name, an alias, a file's extension or a file's name.
    pub(crate) fn new(language: &str) -> Self {
        let name = language.trim().trim_start_matches('.').to_ascii_lowercase();
        let known = |language: &&Language| language.names.split(' ').any(|other| other == name);
        let language = if name.is_empty() { None } else { LANGUAGES.iter().find(known) };
        Self { language, inside: LineState::Nothing }
    }

    /// The next line, which must be clean.
    pub(crate) fn line(&mut self, text: &str) -> Vec<Run> {
        match self.language {
            Some(language) => lexer::line(language, &mut self.inside, text),
            None if text.is_empty() => Vec::new(),
            None => vec![Run::new(text, Role::Code)],
        }
    }
}
