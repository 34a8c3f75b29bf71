//! Going elsewhere in the graph: how files go along, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NodeId, UserInput};

/// What becomes of the files that tools changed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum MoveFiles {
    /// They stay as they are; what is undone or done again takes them along where it did so the first time.
    #[default]
    AsBefore,
    /// They stay as they are.
    Keep,
    /// They become what they were at the other node.
    Restore {
        /// Also those that somebody changed since, or that cannot be kept as they are.
        overwrite: bool,
    },
}

/// Which side's files count where both sides of a merge changed them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MergeSide {
    /// Those of the session that is merged into.
    Ours,
    /// Those of the branch that is brought in.
    Theirs,
}

/// A session that was moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Where it stood.
    pub from: NodeId,
    /// Where it stands.
    pub to: NodeId,
    /// What was said in the message that it stands before, to be said in other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<UserInput>,
    /// What was undone or done again, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<MoveStep>,
    /// Files that were changed; at most a thousand of them are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What people should know of files: such as were not put back, or did not take their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A step back or forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveStep {
    /// What is undone or done again: `turn`, `compaction`, or why the session moved, such as `jump`, `tobe`, `merge`.
    pub what: String,
    /// Where the session stood; `None` where it was not there.
    pub from: Option<NodeId>,
    /// Where it stood then.
    pub to: Option<NodeId>,
}
