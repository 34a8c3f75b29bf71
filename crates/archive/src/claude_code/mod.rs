//! Session files of Claude Code: JSON lines under `projects`, one file a session.
//!
//! Records with a `uuid` form a tree by `parentUuid`; each becomes a node, and all are kept so that no chain breaks. What
//! belongs together is put together: the blocks of one answer (by `message.id`) are one message whose usage counts once;
//! the results of its calls follow it one after the other in the order of the file, and what followed any of them follows
//! the last. A fork repeats the records of the session that it comes from, under the same ids; its answers name that session,
//! and so its nodes are the same ones.

mod blocks;
mod outline;
mod read;
mod record;

use std::path::PathBuf;

use crate::intake::Format;

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "claude-code";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline: outline::outline, read: read::read };

/// Where this agent keeps its sessions: `projects` in `CLAUDE_CONFIG_DIR`, or in `.claude` in the home directory.
/// `None` when there is no home.
pub fn sessions_dir(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let config = env("CLAUDE_CONFIG_DIR").or_else(|| Some(env("HOME")?.join(".claude")))?;
    Some(config.join("projects"))
}
