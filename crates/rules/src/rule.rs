//! One rule: its text, and what it is about.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::HostPattern;
use crate::pattern::{CommandPattern, PathPattern, fits_name};

/// Bytes of the text of a rule.
pub const RULE_LIMIT: usize = 1024;

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// No question.
    Allow,
    /// A person is asked, also where nobody would be.
    Ask,
    /// It does not happen.
    Deny,
}

impl Effect {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It has no name, or nothing between its parentheses.
    #[error("a rule is `TOOL` or `TOOL(PATTERN)`, such as `bash(git status *)`")]
    Empty,
    /// It is longer than [`RULE_LIMIT`].
    #[error("the rule is longer than {RULE_LIMIT} bytes")]
    TooLong,
    /// It has characters that cannot be seen.
    #[error("the rule has characters that cannot be seen")]
    Unprintable,
    /// The name of the tool is none.
    #[error("`{0}` is not the name of a tool (letters, digits, `_`, `-`, `.` and `*`)")]
    BadTool(String),
    /// It has a parenthesis that is not closed, or text behind it.
    #[error("the parenthesis of the rule is not closed at its end")]
    OpenParenthesis,
    /// A pattern of a command has this sign outside of quotes.
    #[error(
        "`{0}` cannot be in a rule: a rule is about one command; put it in single quotes if it is meant literally"
    )]
    NotOneCommand(char),
    /// A quote is not closed.
    #[error("a quote in the rule is not closed")]
    OpenQuote,
    /// A pattern of a path has `..`.
    #[error("a path in a rule cannot have `..`")]
    ParentDirectory,
    /// A pattern of a host is none.
    #[error(
        "`{0}` is not a host: write a name, `*.example.com`, `*` or an address, with `:PORT` for one port"
    )]
    BadHost(String),
}

/// What a rule is about, beside the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Everything,
    Command(CommandPattern),
    Path(PathPattern),
    Host(HostPattern),
}

/// A rule: a tool, and which of its commands, paths or hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    text: String,
    pub(crate) tool: String,
    pub(crate) subject: Subject,
}

/// The tool of commands.
pub(crate) const BASH: &str = "bash";
/// The name for what commands reach through the proxy.
pub(crate) const NETWORK: &str = "network";

impl Rule {
    /// Reads `TOOL` or `TOOL(PATTERN)`.
    ///
    /// # Errors
    /// Why it is no rule.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        if text.len() > RULE_LIMIT {
            return Err(RuleError::TooLong);
        }
        if text.chars().any(crate::shell::is_misleading) {
            return Err(RuleError::Unprintable);
        }
        let (tool, pattern) = match text.split_once('(') {
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or(RuleError::OpenParenthesis)?)),
            None => (text, None),
        };
        if tool.is_empty() {
            return Err(RuleError::Empty);
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || "_-.*".contains(char);
        if !tool.chars().all(is_name) {
            return Err(RuleError::BadTool(tool.to_owned()));
        }
        let subject = match (pattern.map(str::trim), tool) {
            (None, _) => Subject::Everything,
            (Some(""), _) => return Err(RuleError::Empty),
            (Some(pattern), BASH) => Subject::Command(CommandPattern::parse(pattern)?),
            (Some(pattern), NETWORK) => Subject::Host(HostPattern::parse(pattern)?),
            (Some(pattern), _) => Subject::Path(PathPattern::parse(pattern)?),
        };
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), subject })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same rule about the files of this directory, wherever the session is; `None` where it says itself where its files are, or is about
    /// none.
    #[must_use]
    pub fn below(&self, directory: &Path) -> Option<Self> {
        let Subject::Path(pattern) = &self.subject else { return None };
        let subject = Subject::Path(pattern.below(directory)?);
        Some(Self { text: self.text.clone(), tool: self.tool.clone(), subject })
    }

    /// Whether it is about a tool of this name. `all`: names that stand for several tools, which this one is as well.
    pub(crate) fn is_about(&self, tool: &str, all: &[&str]) -> bool {
        fits_name(&self.tool, tool) || all.contains(&self.tool.as_str())
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::parse(text)
    }
}
