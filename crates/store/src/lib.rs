//! Where the graph is kept: the [`Store`] trait, the [`ReadModel`] beside it, and SQLite behind both.
//!
//! The only crate that speaks SQL. It knows objects, refs and the small tables that a crash must not lose; it
//! must not know the loop, providers or tools, and takes from `quipu-transcript` only what derived rows need.

mod activity;
mod base;
mod bulk;
mod dreams;
mod error;
mod forest;
mod hidden;
mod holder;
mod job_runs;
mod jobs;
mod load;
mod local;
mod moves;
mod read;
mod recall;
mod retention;
mod revision;
mod search;
mod series;
mod sqlite;
mod upkeep;
mod vectors;
mod withdrawn;
mod words;

pub use activity::*;
pub use base::*;
pub use bulk::*;
pub use dreams::*;
pub use error::*;
pub use forest::*;
pub use hidden::*;
pub use holder::*;
pub use job_runs::*;
pub use jobs::*;
pub use load::*;
pub use local::*;
pub use moves::*;
pub use quipu_dag::NewChunk;
pub use read::*;
pub use recall::*;
pub use retention::*;
pub use revision::*;
pub use search::*;
pub use series::*;
pub use sqlite::{
    Delta, ForeignCursor, ForeignDatabase, ForeignRows, ForeignValue, NodeHint, OpenOptions, OwnerDeathCheck,
    Salvage, SearchIndex, SqliteStore, StoreHolder, delta, network_file_system, salvage,
};
pub use upkeep::*;
pub use vectors::*;
pub use withdrawn::*;
pub use words::*;

use std::path::Path;
use std::sync::Arc;

/// Opens the store in a file, which is made where there is none.
///
/// # Errors
/// `NotAStore`, `NewerVersion`, `NotOwner`, `Symlink`, `Corrupt`, `Busy`, `Full`, `Io`: each says what to do.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Graph>, StoreError> {
    Ok(Arc::new(SqliteStore::open(path, options)?))
}

/// A store that is gone with the process.
///
/// # Errors
/// `Io` where there is no memory for it.
pub fn in_memory() -> Result<Arc<dyn Graph>, StoreError> {
    Ok(Arc::new(SqliteStore::in_memory()?))
}
