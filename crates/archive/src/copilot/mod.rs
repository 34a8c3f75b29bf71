//! Sessions of GitHub Copilot's command line: JSON lines, one folder a session.
//!
//! A file is a chain of events. Those that say something become nodes under their own ids; an event after one that is passed
//! by follows what that one follows. Events of subagents stand among the others and become branches. The text that is kept is
//! what the user typed; what was sent instead is kept beside it.

pub mod chat;
mod event;
mod outline;
mod read;

use std::path::{Path, PathBuf};

use crate::ProjectSessions;
use crate::intake::Format;

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "copilot-cli";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline: outline::outline, read: read::read };

/// Where this agent keeps its sessions: `session-state` in `COPILOT_HOME`, or in `.copilot` in the home directory. `None` when
/// there is no home.
pub fn sessions_dir(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let home = env("COPILOT_HOME").or_else(|| Some(env("HOME")?.join(".copilot")))?;
    Some(home.join("session-state"))
}

/// Whether a file of that place is a session; others are what a session made.
pub(crate) fn is_session(path: &Path) -> bool {
    let is_alone = || path.parent().and_then(Path::file_name).is_some_and(|name| name == "session-state");
    path.file_name().is_some_and(|name| name == "events.jsonl") || is_alone()
}

/// Looks at the beginning of a session file.
pub(crate) fn look(path: &Path) -> std::io::Result<ProjectSessions> {
    let mut file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let project = outline::Header::find(&mut file)?.map(|header| header.cwd).filter(|cwd| !cwd.is_empty());
    Ok(ProjectSessions { path: path.to_owned(), project, sessions: 1, bytes })
}
