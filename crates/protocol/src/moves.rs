//! Moves of a session in the graph: options for files, and results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NodeId, UserInput};

/// What a move does to the files that tools changed between the two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum MoveFiles {
    /// Files stay, except that undo and redo restore them where the original move did.
    #[default]
    Auto,
    /// Files stay as they are.
    Keep,
    /// Files are restored to their state at the target node.
    Restore {
        /// Also overwrite files that somebody changed since, or whose current content cannot be kept.
        overwrite: bool,
    },
}

/// Whose version of a file a merge keeps where both sides changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MergeSide {
    /// The version of the session that is merged into.
    Ours,
    /// The version of the branch that is merged.
    Theirs,
}

/// What a completed move changed: the head, steps and files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveReport {
    /// The old head.
    pub from: NodeId,
    /// The new head.
    pub to: NodeId,
    /// The input of the user message after this node, for editing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<UserInput>,
    /// The undone or redone steps, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<MoveStep>,
    /// Files that were changed; at most a thousand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Notices about files, such as files that were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A step of undo or redo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveStep {
    /// What is undone or redone: `turn`, `compaction`, or the reason of a move, such as `jump`, `tobe`, `merge`.
    pub kind: String,
    /// The head before the step; `None` where the session did not exist.
    pub from: Option<NodeId>,
    /// The head after the step.
    pub to: Option<NodeId>,
}
