//! What nodes mean: entries to parts and back, a lineage to a valid conversation.
//!
//! Pure: no IO, no clock. Knows messages and objects, and nothing of providers, sessions at work or databases.

mod blocks;
mod compact;
mod decode;
mod edit;
mod encode;
mod erasure;
mod exact;
mod file_ops;
mod file_plan;
mod foreign;
mod forgotten;
mod law;
mod listing;
mod measure;
mod mentioned;
mod opening;
mod own_part;
mod parts;
mod planning;
mod project;
mod provenance;
mod prune;
mod settings;
mod shell_profile;
mod summary_sources;
mod title;
mod words;
mod workspace_note;

pub use compact::*;
pub use edit::*;
pub use erasure::*;
pub use file_ops::*;
pub use file_plan::*;
pub use forgotten::*;
pub use law::*;
pub use listing::{Listing, listed_as, role_of, role_with};
pub use measure::*;
pub use mentioned::*;
pub use opening::OpeningMessages;
pub use own_part::{extra_of, files_of, refs_of};
pub use parts::*;
pub use planning::*;
pub use project::*;
pub use provenance::provenance;
pub use prune::*;
pub use settings::*;
pub use shell_profile::*;
pub use summary_sources::*;
pub use title::*;
pub use workspace_note::*;
