//! Quipu in the settings of other agents: which agents are installed, what is to be in their files, the change as a diff,
//! and the way back. [`Setup`] plans with [`Setup::plan`] and writes with [`Setup::apply`].
//!
//! A change keeps every other byte of a file, and taking it out gives the bytes that the file would have without it, also
//! when others edited the file in between. What was written is listed in a ledger, but what is in a file counts: a piece that
//! is not as it was written is the user's and stays.
//!
//! Knows no store, no sessions, no terminal and no words of a command line; which hooks an agent has is told by the caller.

mod agents;
mod apply;
mod diff;
mod document;
mod edit;
mod error;
mod files;
mod json;
mod json_edit;
mod ledger;
mod piece;
mod piece_state;
mod plan;
#[cfg(test)]
mod properties;
mod recognition;
mod toml_edit;

pub use agents::{Agent, SetupContext, agents};
pub use apply::{BACKUP_DIRECTORY, Setup};
pub use diff::{DiffLine, diff};
pub use document::Syntax;
pub use edit::{Container, Origin, Placement};
pub use error::{PathDisplay, SetupError};
pub use ledger::LEDGER_FILE;
pub use piece::{Piece, PieceContent, PieceState};
pub use plan::{AgentPlan, AgentState, FileChange, Goal, PieceReport};
