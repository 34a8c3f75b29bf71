//! Where the graph is kept: the [`Store`] trait, and SQLite behind it.
//!
//! The only crate that speaks SQL. It knows objects, refs and the small tables that a crash must not lose; it
//! must not know the loop, providers or tools, and takes from `quipu-transcript` only what derived rows need.

mod api;
mod bulk;
mod deeds;
mod error;
mod forest;
mod load;
mod moves;
mod retention;
mod search;
mod sqlite;
mod vectors;

pub use api::*;
pub use bulk::*;
pub use deeds::*;
pub use error::*;
pub use forest::*;
pub use load::*;
pub use moves::*;
pub use quipu_dag::NewChunk;
pub use retention::*;
pub use search::*;
pub use sqlite::{
    Delta, ForeignCursor, ForeignDatabase, ForeignRows, ForeignValue, OpenOptions, Salvage, SearchIndex,
    SqliteStore, Told, delta, network_file_system, salvage,
};
pub use vectors::*;
