//! The entry that tells what a branch held that was left.

use quipu_protocol::{Json, NodeId, Usage};

use super::TouchedFiles;

/// A `branch_summary` as it stands in session files: `note` says what the branch that ended in `from` held.
pub fn branch_summary(note: &str, from: NodeId, files: &TouchedFiles, usage: &Usage) -> Json {
    Json::from(&serde_json::json!({
        "type": "branch_summary",
        "fromId": from.to_string(),
        "summary": note,
        "details": files,
        "usage": usage,
    }))
}
