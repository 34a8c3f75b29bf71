//! Sessions of OpenClaw: JSON lines under `agents/AGENT/sessions`, one file a session, and `sessions.json` beside them.
//!
//! The lines are those of Pi: a header, then entries that form a tree by `id` and `parentId`, among them some of its own. A
//! session that was reset or deleted stays beside the others under another name, with the reason and the time at its end.

mod export;
mod index;
mod outline;
mod read;
pub mod state;

use std::path::{Path, PathBuf};

use crate::intake::Format;

pub use export::{ExportedTranscript, transcript};

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "openclaw";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline: outline::outline, read: read::read };

/// Names that the program had: its directory is called after them.
const DIRECTORIES: [&str; 3] = [".openclaw", ".moltbot", ".clawdbot"];

/// What else has lines and lies beside sessions: what a run did, and copies from before a compaction.
const OTHERS: [&str; 2] = [".trajectory.jsonl", ".checkpoint."];

/// Why a session was put aside.
const REASONS: [&str; 2] = ["reset", "deleted"];

/// Where this agent keeps its sessions: `agents` in `OPENCLAW_STATE_DIR`, or in `.openclaw` and the directories of its
/// older names in the home directory.
pub fn sessions_dirs(env: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    state_dirs(env).into_iter().map(|state| state.join("agents")).collect()
}

/// Where its state directory may be.
pub fn state_dirs(env: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    match env("OPENCLAW_STATE_DIR") {
        Some(state) => vec![state],
        None => env("HOME").map_or_else(Vec::new, |home| DIRECTORIES.map(|name| home.join(name)).to_vec()),
    }
}

/// Whether a file has the name of a session, be it put aside.
pub(crate) fn is_session(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    (name.ends_with(".jsonl") || put_aside(name).is_some())
        && !OTHERS.iter().any(|other| name.contains(other))
}

/// Why and when a session was put aside, as the end of its name says it.
fn put_aside(name: &str) -> Option<(&str, &str)> {
    let (_, end) = name.split_once(".jsonl.")?;
    let (reason, when) = end.split_once('.')?;
    REASONS.contains(&reason).then_some((reason, when))
}
