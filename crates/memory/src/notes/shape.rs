//! A text that the graph does not keep because it holds a secret: its lines as the seal key knows them again, and none of its words.

use quipu_seal::Sealer;
use serde::{Deserialize, Serialize};

/// Letters of a line that was moved, at least, so that it is known again.
pub(super) const KNOWN_AGAIN: usize = 12;

/// The lines of such a text, each with its indentation and a fingerprint in the place of its words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextShape {
    /// The fingerprint of the whole text.
    pub whole: String,
    /// The lines.
    pub lines: String,
}

/// What a node says of a file that holds a secret, before the change or after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileShapes {
    /// The fingerprint of the text before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The text after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TextShape>,
}

impl FileShapes {
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }
}

impl TextShape {
    pub(super) fn of(text: &str, sealer: &Sealer) -> Self {
        Self { whole: sealer.fingerprint(text), lines: shaped(text, sealer) }
    }
}

/// The lines of a text, to be compared with those of a shape: what is compared of the text itself holds for them, too.
pub(super) fn shaped(text: &str, sealer: &Sealer) -> String {
    let line = |line: &str| {
        let words = line.trim();
        if words.is_empty() {
            return line.to_owned();
        }
        let mark = sealer.fingerprint(words);
        // A short line is not known again where it was moved.
        let mark = if words.len() < KNOWN_AGAIN { &mark[..KNOWN_AGAIN - 1] } else { &mark };
        line.replacen(words, mark, 1)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
