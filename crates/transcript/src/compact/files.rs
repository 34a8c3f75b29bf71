//! Which files a stretch of conversation read and changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use quipu_protocol::{Json, Message};
use serde::{Deserialize, Serialize};

/// Paths as the calls named them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TouchedFiles {
    /// Read and never changed.
    pub read_files: BTreeSet<String>,
    /// Written or edited.
    pub modified_files: BTreeSet<String>,
}

impl TouchedFiles {
    /// Those of an earlier compaction, as it kept them.
    pub fn of_details(details: &Json) -> Self {
        details.read().unwrap_or_default()
    }

    /// Adds what the calls of `messages` touched.
    pub fn add(&mut self, messages: &[Arc<Message>]) {
        #[derive(Deserialize)]
        struct Arguments {
            path: String,
        }
        for message in messages {
            let answer = match &**message {
                Message::Assistant(answer) => answer,
                // The files of a branch that was left stand beside its summary.
                Message::BranchSummary(branch) => {
                    if let Some(details) = &branch.details {
                        self.join(Self::of_details(details));
                    }
                    continue;
                }
                Message::User(_)
                | Message::ToolResult(_)
                | Message::BashExecution(_)
                | Message::Custom(_)
                | Message::CompactionSummary(_)
                | Message::Other(_) => continue,
            };
            for call in answer.tool_calls() {
                let files = match call.name.as_str() {
                    "read" => &mut self.read_files,
                    "write" | "edit" => &mut self.modified_files,
                    "apply_patch" => {
                        let ops = crate::file_ops::file_ops(&call.name, call.arguments.get());
                        self.modified_files.extend(ops.into_iter().map(|op| op.path));
                        continue;
                    }
                    _ => continue,
                };
                if let Ok(Arguments { path }) = call.arguments.read() {
                    files.insert(path);
                }
            }
        }
        self.join(Self::default());
    }

    /// Adds those of another list.
    pub fn join(&mut self, other: Self) {
        let Self { read_files, modified_files } = self;
        read_files.extend(other.read_files);
        modified_files.extend(other.modified_files);
        read_files.retain(|path| !modified_files.contains(path));
    }
}
