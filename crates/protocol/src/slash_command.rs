//! Commands with a slash: what a front lists, and what one comes to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::UserInput;
use crate::tagged::tagged;

/// A command that a person runs by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandSpec {
    /// Its name without the slash: 1 to 64 of `a-z 0-9 : _ -`.
    pub name: String,
    /// What may follow, such as `[TEXT]`; empty for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// One line for a list of commands: what the command does.
    pub help: String,
    /// Where it comes from, for people.
    pub source: String,
    /// Whether what may follow is known, and offered.
    #[serde(default)]
    pub completes: bool,
}

impl CommandSpec {
    /// A command that takes nothing.
    pub fn new(name: impl Into<String>, help: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            arguments: String::new(),
            help: help.into(),
            source: source.into(),
            completes: false,
        }
    }

    /// The same; this may follow.
    #[must_use]
    pub fn with_arguments(self, arguments: impl Into<String>) -> Self {
        Self { arguments: arguments.into(), ..self }
    }

    /// The same; what may follow is offered.
    #[must_use]
    pub fn completes(self) -> Self {
        Self { completes: true, ..self }
    }
}

/// What a command came to. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
#[schemars(tag = "type")]
pub enum CommandValue {
    /// Something to say to the model: the front sends it as what the person said.
    Prompt {
        /// The message that the client sends with `prompt`; the server does not send it.
        input: UserInput,
    },
    /// Something to show.
    Text {
        /// Text for people; the model does not see it.
        text: String,
    },
    /// Nothing but that it is done.
    Done,
}

tagged!(CommandValue);
