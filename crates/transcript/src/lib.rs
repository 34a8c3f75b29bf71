//! What nodes mean: entries to parts and back, a lineage to a valid conversation.
//!
//! Pure: no IO, no clock. Knows messages and objects, and nothing of providers, sessions at work or databases.

mod parts;
mod project;

pub use parts::*;
pub use project::*;
