//! Rollouts of Codex: JSON lines under `sessions` and `archived_sessions`, one file a session, packed when it is old.
//!
//! A rollout is a list, and so is the lineage that it becomes; an undo begins a branch. What went to and from the model
//! (`response_item`) becomes the conversation; what the screen showed (`event_msg`) says it again, and only gives details:
//! exit codes, patches, errors. What a model answered at once is one message. A node is known by the session and the
//! ordinal of its record (in older files the place in the file). A fork holds only what came after, and hangs on the record
//! before its first: the rollout of its parent is imported first, where it is found.

mod answer;
mod outline;
mod read;
mod user_input;

use std::path::{Path, PathBuf};

use crate::intake::Format;

pub use self::user_input::is_program_context;

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "codex";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline: outline::outline, read: read::read };

/// Where this agent keeps its sessions: `CODEX_HOME`, or `.codex` in the home directory, in which `sessions` and
/// `archived_sessions` are. `None` when there is no home.
pub fn home(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    env("CODEX_HOME").or_else(|| Some(env("HOME")?.join(".codex")))
}

/// Whether a file there is a session, by its name; what has not been written to for a week is packed with Zstandard.
pub(crate) fn is_session(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("rollout-") && (!name.ends_with(".zst") || name.ends_with(".jsonl.zst"))
}

/// The folders in it that hold sessions.
pub const FOLDERS: [&str; 2] = ["sessions", "archived_sessions"];
