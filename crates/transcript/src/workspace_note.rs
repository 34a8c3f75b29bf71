//! What a node says of the workspace beside the files that its step changed: what cannot be put back, and what is not known.

use quipu_protocol::{Json, StepInfo};
use serde::{Deserialize, Serialize};

/// Its name among what a step says beside all else.
pub const WORKSPACE_NOTE: &str = "workspace";
/// The name that stands for what is staged in git's index.
pub const GIT_INDEX: &str = "index";

/// What a step did that is not put back, and what is not known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkspaceNote {
    /// Where git's head and refs stood, and stand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub git: Vec<GitMove>,
    /// Ignored directories that are not looked into, in which something changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
    /// What is not known of what the step changed: sentences without a full stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// A ref of git's that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitMove {
    /// `HEAD`, a ref, or [`GIT_INDEX`].
    pub name: String,
    /// What it said; nothing where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl WorkspaceNote {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One that only says what is not known.
    pub fn unknown(what: impl Into<String>) -> Self {
        Self { unknown: vec![what.into()], ..Self::default() }
    }

    /// As a step keeps it; nothing where it says nothing.
    pub fn json(&self) -> Option<Json> {
        if self.is_empty() { None } else { Json::of(self).ok() }
    }

    /// Puts it where a step keeps it.
    pub fn put_into(&self, step: &mut StepInfo) {
        step.extra.extend(self.json().map(|json| (WORKSPACE_NOTE.to_owned(), json)));
    }
}
