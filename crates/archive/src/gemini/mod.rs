//! Sessions of Gemini CLI: logs of operations under `tmp/PROJECT/chats`, one file a session.
//!
//! A line is a message, or a patch of the session: of its messages, of which some list then stands for all. A message is
//! told several times, each time otherwise; the version that says most is taken. What follows what is told by the order of the
//! messages when one first comes: a message that a later list or an undo leaves out stays, as a branch. Results of tools stand
//! in the answer that called them, and in messages after it, which are taken only where the answer lacks them.

mod message;
mod outline;
mod read;

use std::path::{Path, PathBuf};

use crate::ProjectSessions;
use crate::intake::Format;

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "gemini-cli";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline: outline::outline, read: read::read };

/// Where this agent keeps its sessions: `.gemini/tmp` in `GEMINI_CLI_HOME`, or in the home directory. `None` when there is
/// no home.
pub fn sessions_dir(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    Some(env("GEMINI_CLI_HOME").or_else(|| env("HOME"))?.join(".gemini/tmp"))
}

/// Whether a file of that place is a session; others hold prompts that were typed, and what tools printed.
pub(crate) fn is_session(path: &Path) -> bool {
    outline::folder(path).is_some()
}

/// Looks at the beginning of a session file.
pub(crate) fn look(path: &Path) -> std::io::Result<ProjectSessions> {
    let mut file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let header = outline::Header::find(&mut file)?;
    let hash = header.and_then(|header| header.project);
    Ok(ProjectSessions {
        path: path.to_owned(),
        project: outline::directory(path, hash.as_deref()),
        sessions: 1,
        bytes,
    })
}
