//! Session files of other agents: read into the graph, and written from it.
//!
//! Each agent has a module. What a module reads becomes nodes of a session whose refs only the importer moves:
//! `AGENT/SESSION` at the last entry of the file, and `AGENT/SESSION/NODE` at the end of each branch. Such a session
//! is never written to; going on from it makes a session of our own below it. This crate must not know the engine,
//! models or tools.

mod agents;
mod batches;
mod built_node;
pub mod chatgpt;
pub mod claude_ai;
pub mod claude_code;
pub mod codex;
mod conversation;
pub mod copilot;
mod cut;
mod error;
mod export;
pub mod gemini;
pub mod gemini_takeout;
mod import_cache;
mod intake;
mod json;
mod key;
mod ledger;
mod lineages;
mod lines;
pub mod openclaw;
pub mod opencode;
mod packed;
pub mod pi;
mod placer;
pub mod playfilo;
mod prefetch;
mod repair;
mod report;
mod session_files;
mod slots;
mod stamp;
mod tree;
mod waiting_list;

pub use agents::*;
pub use codex::is_program_context;
pub use conversation::{
    ConversationDigest, LiveChange, LiveConversation, LiveEntry, LivePlan, live_session_id,
};
pub use error::*;
pub use import_cache::ImportCache;
pub use pi::ImportOptions;
pub use repair::*;
pub use report::*;
