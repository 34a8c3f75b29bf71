//! Code in colours, one line at a time.

use crate::Role;
use crate::markdown::Run;

/// Where a line of code begins: in which language, and whether within a string or a comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Highlighter;

impl Highlighter {
    /// The start of code in a language, by its name, an alias or a file's extension.
    pub(crate) fn new(_language: &str) -> Self {
        Self
    }

    /// The next line, which must be clean.
    pub(crate) fn line(&mut self, text: &str) -> Vec<Run> {
        vec![Run::new(text, Role::Code)]
    }
}
