//! Questions to the clients of a session, and their answers.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{AskId, CallId, Json, UnixMs};

/// A question. The first answer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// Identifies the question within its session.
    pub id: AskId,
    /// When `default` becomes the answer; `None` for a question that waits while a client can answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<UnixMs>,
    /// The answer when nobody answers in time, or no client can answer.
    pub default: Answer,
    /// What is asked, as an object with a `type`. The type decides which answers are accepted.
    pub kind: AskKind,
}

/// The kind of a question. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum AskKind {
    /// Whether a tool call may run. Answered with [`Answer::Allow`] or [`Answer::Deny`].
    Permission(Permission),
    /// Yes or no. Answered with [`Answer::Confirm`].
    Confirm {
        /// Heading of the question: one line.
        title: String,
        /// More about it; may be empty.
        text: String,
    },
    /// One of several. Answered with [`Answer::Choose`].
    Choose {
        /// Heading of the question: one line.
        title: String,
        /// The options in the order to show. The answer has the `id` of one of them.
        options: Vec<AskOption>,
    },
    /// A line of text. Answered with [`Answer::Text`].
    Text {
        /// Heading of the question: one line.
        title: String,
        /// Shown while the field is empty; may be empty.
        placeholder: String,
        /// Whether to hide the input, such as a key.
        secret: bool,
    },
    /// A longer text, to be edited. Answered with [`Answer::Text`].
    Edit {
        /// Heading of the question: one line.
        title: String,
        /// Initial content of the editor. The answer has the whole edited text.
        text: String,
    },
    /// Several values at once. Answered with [`Answer::Form`].
    Form {
        /// Heading of the question: one line.
        title: String,
        /// JSON Schema of the answer: an object schema.
        schema: Json,
    },
    /// A page to be opened in a browser. Answered with [`Answer::Confirm`] when it is done.
    OpenUrl {
        /// Heading of the question: one line.
        title: String,
        /// URL of the page that the client should open.
        url: String,
    },
}

/// A tool call that needs permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The call that waits for the answer.
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// The question, in one line, such as `Allow writing a.txt?` and the reason for it.
    pub question: String,
    /// The exact command or path.
    pub subject: Arc<str>,
    /// The scopes that an answer can have; never empty.
    pub scopes: Vec<Scope>,
    /// The permission rules that an answer with a scope of a rule adds, such as `bash(cargo test *)`. Absent when no such
    /// scope is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// One option of a question of the type `choose`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskOption {
    /// Identifies it in the answer.
    pub id: String,
    /// One line for a person.
    pub label: String,
    /// More text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How long a permission lasts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// Only the call that is asked about. An equal later call is asked about again.
    #[default]
    Once,
    /// This call and equal ones, until the session ends.
    Session,
    /// What the offered rules allow, until the session ends.
    SessionRule,
    /// This call and equal ones in this directory, permanently.
    Always,
    /// What the offered rules allow in this directory, permanently.
    ProjectRule,
    /// What the offered rules allow in every directory, permanently.
    AlwaysRule,
}

impl Scope {
    /// Whether it is about the offered rules, and not about this call alone.
    pub fn is_rule(self) -> bool {
        matches!(self, Self::SessionRule | Self::ProjectRule | Self::AlwaysRule)
    }
}

/// An answer to an [`Ask`]. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum Answer {
    /// Yes to a question of the type `permission`: the call runs.
    Allow {
        /// How long: one of the scopes that the question offers.
        scope: Scope,
    },
    /// No to a question of the type `permission`: the call does not run.
    Deny {
        /// Text that the model gets in the result of the call; absent for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The answer to `confirm` and `openUrl`.
    Confirm {
        /// True for yes, or after the page was opened; false for no.
        yes: bool,
    },
    /// The answer to `choose`.
    Choose {
        /// The `id` of an offered option. Any other text is refused with `invalidAnswer`.
        option: String,
    },
    /// The answer to `text` and `edit`.
    Text {
        /// The entered text; for `edit` the whole text, not a change.
        text: String,
    },
    /// The answer to `form`. The session does not check the value against the schema.
    Form {
        /// A JSON object that the schema of the question allows.
        value: Json,
    },
    /// A refusal to answer a question of any type; for `permission` it means no.
    Cancel,
}

impl Answer {
    /// Allows the call with the scope `once`.
    pub fn once() -> Self {
        Self::Allow { scope: Scope::Once }
    }

    /// Denies it without a reason.
    pub fn no() -> Self {
        Self::Deny { reason: None }
    }
}

impl Ask {
    /// The permission that is asked, if any.
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

    /// Whether the question accepts this answer. A filled form is not validated against its schema.
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
