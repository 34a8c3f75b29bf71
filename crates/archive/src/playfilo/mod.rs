//! The graph of Playfilo: nodes and blobs of the form that ours have.
//!
//! A node whose id is the hash of what it says is the same node here, under the same id. Those that cannot be kept so (a secret in
//! them was sealed, a part is missing, another form was hashed) are written anew, and what follows them follows that. Refs are
//! followed as `playfilo/NAME`; nothing is written below them but by the next import. Rows of the log of actions are added to ours.

mod graph;
mod import;
mod log;

use std::path::{Path, PathBuf};

pub(crate) use import::import;

/// What these refs are called in the store.
pub const AGENT: &str = "playfilo";

/// Where its database is: `.playfilo` in the home directory. `None` when there is no home.
pub fn home(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    Some(env("HOME")?.join(".playfilo"))
}

/// Whether a file has the name of the database.
pub(crate) fn is_database(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "playfilo.db")
}

/// How many heads there are.
pub(crate) fn heads(path: &Path) -> std::io::Result<u64> {
    Ok(graph::refs(&quipu_store::ForeignDatabase::open(path)?)?.len() as u64)
}
