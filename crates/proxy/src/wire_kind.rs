//! The wires by name.

use serde::Deserialize;
use serde_json::{Value, json};

/// A wire that clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireKind {
    /// Messages of blocks (`…/messages`).
    Messages,
    /// Messages of one choice (`…/chat/completions`).
    Completions,
    /// Items (`…/responses`).
    Responses,
}

impl WireKind {
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Completions, Self::Responses];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Completions => "completions",
            Self::Responses => "responses",
        }
    }

    /// How the paths of its requests end.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Messages => "/messages",
            Self::Completions => "/chat/completions",
            Self::Responses => "/responses",
        }
    }

    /// The member with the messages.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Messages | Self::Completions => "messages",
            Self::Responses => "input",
        }
    }

    /// An element that says `text` in the user's name.
    pub(crate) fn user_element(self, text: &str) -> Value {
        match self {
            Self::Messages | Self::Completions => {
                json!({ "role": "user", "content": [{ "type": "text", "text": text }] })
            }
            Self::Responses => {
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] })
            }
        }
    }

    /// Whether two messages of one role in a row have to be one.
    pub(crate) fn alternates(self) -> bool {
        match self {
            Self::Messages | Self::Completions => true,
            Self::Responses => false,
        }
    }
}
