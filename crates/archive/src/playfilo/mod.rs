//! The graph of Playfilo: nodes and blobs of the form that ours have.
//!
//! A node whose id is the hash of what it says is the same node here, under the same id. Those that cannot be kept so (a secret in
//! them was sealed, a part is missing, another form was hashed) are written anew, and what follows them follows that. Refs are
//! followed as `playfilo/NAME`; nothing is written below them but by the next import. Rows of the log of actions are added to ours.

mod graph;
mod import;
mod log;

use std::path::{Path, PathBuf};

use quipu_protocol::Json;
use quipu_seal::Sealer;
use quipu_store::ForeignValue;

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

/// A whole number, which some programs bind as another one.
pub(super) fn number(value: &ForeignValue<'_>) -> i64 {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
        ForeignValue::Real(number) => *number as i64,
        other => other.integer().unwrap_or_default(),
    }
}

/// A text that the id of a node does not cover, with its secrets sealed.
pub(super) fn sealed(text: &str, sealer: &Sealer) -> String {
    match Json::parse(text) {
        Ok(json) => {
            let sealed = sealer.seal_json(&json);
            if sealed == json { text.to_owned() } else { sealed.get().to_owned() }
        }
        Err(_) => sealer.seal(text).into_owned(),
    }
}
