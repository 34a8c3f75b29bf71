//! What nodes mean: entries to parts and back, a lineage to a valid conversation.
//!
//! Pure: no IO, no clock. Knows messages and objects, and nothing of providers, sessions at work or databases.

mod blocks;
mod compact;
mod decode;
mod deeds;
mod edit;
mod encode;
mod erased;
mod exact;
mod file_plan;
mod foreign;
mod law;
mod listed;
mod measure;
mod own;
mod parts;
mod project;
mod provenance;
mod prune;
mod settings;
mod title;
mod words;
mod workspace_note;

pub use compact::*;
pub use deeds::*;
pub use edit::*;
pub use erased::*;
pub use file_plan::*;
pub use law::*;
pub use listed::{Listing, listed_as, role_of, role_with};
pub use measure::*;
pub use own::{extra_of, files_of, refs_of};
pub use parts::*;
pub use project::*;
pub use provenance::provenance;
pub use prune::*;
pub use settings::*;
pub use title::*;
pub use workspace_note::*;
