//! Ids of agents, which are also names of directories.

use std::fmt;
use std::sync::Arc;

/// Bytes of an agent's id at most.
pub const AGENT_ID_LIMIT: usize = 64;
/// The agent that is meant where none is named.
pub const DEFAULT_AGENT: &str = "main";

/// The id of an agent: a letter or digit, and up to 63 letters, digits, `-` and `_` behind it, all of them ASCII in lower case.
///
/// ```
/// use quipu_protocol::AgentId;
///
/// assert_eq!(AgentId::normalise("  Ops & Builds! ").as_str(), "ops-builds");
/// assert_eq!(AgentId::normalise("../..").as_str(), "main");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// The id that a text stands for: in lower case, with `-` for each run of other characters, without `-` at its ends, cut at
    /// 64 bytes; `main` where nothing is left.
    pub fn normalise(text: &str) -> Self {
        let text = text.trim();
        if is_valid(text) {
            return Self(text.to_ascii_lowercase().into());
        }
        let (mut id, mut dashes, mut in_run) = (String::new(), 0_usize, false);
        for letter in text.chars().flat_map(char::to_lowercase) {
            let is_kept = matches!(letter, 'a'..='z' | '0'..='9' | '_');
            // An id begins with a letter or a digit.
            if id.is_empty() && (!is_kept || letter == '_') {
                continue;
            }
            if !is_kept {
                dashes += usize::from(letter == '-' || !in_run);
                in_run = letter != '-';
                continue;
            }
            id.extend(std::iter::repeat_n('-', dashes.min(AGENT_ID_LIMIT - id.len())));
            if id.len() == AGENT_ID_LIMIT {
                break;
            }
            id.push(letter);
            (dashes, in_run) = (0, false);
        }
        if id.is_empty() { Self::default() } else { Self(id.into()) }
    }

    /// Whether a text is an id as it stands.
    pub fn is_written(text: &str) -> bool {
        is_valid(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for AgentId {
    fn default() -> Self {
        Self(DEFAULT_AGENT.into())
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text is an id once it is in lower case.
fn is_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= AGENT_ID_LIMIT
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
