//! Sessions of OpenCode, in its database `opencode.db`; before that, in a file for each session, message and part below `storage`.
//!
//! A session is a list of messages by id, and a message has parts. An answer becomes one message for each of its steps;
//! a part of a tool is a call and its result. A fork copies messages under new ids and keeps their times: a session that
//! begins with the times and roles of an older one shares its nodes, by the ids that they have there.

mod forks;
mod parts;
mod prefetch;
mod read;
mod rows;

use std::path::{Path, PathBuf};

use crate::intake::DatabaseFormat;

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "opencode";

pub(crate) const FORMAT: DatabaseFormat = DatabaseFormat { agent: AGENT, open: read::open };

/// Where this agent keeps its database: `opencode` in `XDG_DATA_HOME`, or in `.local/share` in the home directory. `None`
/// when there is no home.
pub fn home(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let data = env("XDG_DATA_HOME").or_else(|| Some(env("HOME")?.join(".local/share")))?;
    Some(data.join("opencode"))
}

/// Whether a file has the name of such a database (other release channels have a word in it), or a folder is that of earlier
/// versions.
pub(crate) fn is_database(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    (name.starts_with("opencode") && name.ends_with(".db")) || rows::is_tree(path)
}

/// Directories, and how many sessions each has.
pub(crate) fn projects(path: &Path) -> std::io::Result<Vec<(String, u64)>> {
    let rows = rows::Rows::open(path)?.sessions()?;
    let mut counts = std::collections::BTreeMap::new();
    for row in rows {
        *counts.entry(row.directory).or_default() += 1;
    }
    Ok(counts.into_iter().collect())
}
