//! Questions to whoever is in front, and their answers.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{AskId, CallId, Json, UnixMs};

/// A question. The first answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Names the question within its session.
    pub id: AskId,
    /// When `default` becomes the answer; `None` for a question that waits as long as somebody is there to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<UnixMs>,
    /// What counts when nobody answers in time, or nobody is there.
    pub default: Answer,
    /// What is asked.
    pub kind: AskKind,
}

/// What is asked. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum AskKind {
    /// Whether a tool call may run. Answered with [`Answer::Allow`] or [`Answer::Deny`].
    Permission(Permission),
    /// Yes or no. Answered with [`Answer::Confirm`].
    Confirm {
        /// One line.
        title: String,
        /// More about it; may be empty.
        text: String,
    },
    /// One of several. Answered with [`Answer::Choose`].
    Choose {
        /// One line.
        title: String,
        /// What there is to choose from.
        options: Vec<AskOption>,
    },
    /// A line of text. Answered with [`Answer::Text`].
    Text {
        /// One line.
        title: String,
        /// Shown while nothing is typed; may be empty.
        placeholder: String,
        /// Whether what is typed must not be shown, such as a key.
        secret: bool,
    },
    /// A longer text, to be edited. Answered with [`Answer::Text`].
    Edit {
        /// One line.
        title: String,
        /// What stands there at first.
        text: String,
    },
    /// Several values at once. Answered with [`Answer::Form`].
    Form {
        /// One line.
        title: String,
        /// JSON Schema of the answer: an object schema.
        schema: Json,
    },
    /// A page to be opened in a browser. Answered with [`Answer::Confirm`] when it is done.
    OpenUrl {
        /// What it is for.
        title: String,
        /// The page.
        url: String,
    },
}

/// A tool call that wants permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The call that waits for the answer.
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// What is asked, in one line.
    pub question: String,
    /// What exactly would happen: a command, a path.
    pub subject: Arc<str>,
    /// For how long it can be allowed; never empty.
    pub scopes: Vec<Scope>,
}

/// Something to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskOption {
    /// Names it in the answer.
    pub id: String,
    /// One line for people.
    pub label: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// For how long something is allowed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// This call and its like, until the session ends.
    Session,
    /// This call and its like in this directory, from now on.
    Always,
}

/// An answer to an [`Ask`]. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum Answer {
    /// Do it.
    Allow {
        /// For how long: one of those that the question offers.
        scope: Scope,
    },
    /// Do not.
    Deny {
        /// Why, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Yes or no.
    Confirm {
        /// Whether it is yes.
        yes: bool,
    },
    /// One of several.
    Choose {
        /// The id of the option.
        option: String,
    },
    /// What was typed.
    Text {
        /// It.
        text: String,
    },
    /// What was filled in.
    Form {
        /// A JSON object that the schema of the question allows.
        value: Json,
    },
    /// The person wants to give no answer.
    Cancel,
}

impl Answer {
    /// Do it this time.
    pub fn once() -> Self {
        Self::Allow { scope: Scope::Once }
    }

    /// Do not, for no reason that is known.
    pub fn no() -> Self {
        Self::Deny { reason: None }
    }
}

impl Ask {
    /// The tool call that it is about, where it is about one.
    pub fn permission(&self) -> Option<&Permission> {
        match &self.kind {
            AskKind::Permission(permission) => Some(permission),
            AskKind::Confirm { .. }
            | AskKind::Choose { .. }
            | AskKind::Text { .. }
            | AskKind::Edit { .. }
            | AskKind::Form { .. }
            | AskKind::OpenUrl { .. } => None,
        }
    }

    /// Whether this can answer it. What is filled into a form is not held against its schema.
    pub fn takes(&self, answer: &Answer) -> bool {
        match (&self.kind, answer) {
            (_, Answer::Cancel) => true,
            (AskKind::Permission(permission), Answer::Allow { scope }) => permission.scopes.contains(scope),
            (AskKind::Permission(_), Answer::Deny { .. })
            | (AskKind::Confirm { .. } | AskKind::OpenUrl { .. }, Answer::Confirm { .. })
            | (AskKind::Text { .. } | AskKind::Edit { .. }, Answer::Text { .. }) => true,
            (AskKind::Choose { options, .. }, Answer::Choose { option }) => {
                options.iter().any(|offered| offered.id == *option)
            }
            (AskKind::Form { .. }, Answer::Form { value }) => value.get().starts_with('{'),
            _ => false,
        }
    }
}

tagged!(AskKind, Answer);
