//! Session files of Pi: JSON lines, a header and then entries that form a tree by `id` and `parentId`.
//!
//! Versions 1 to 3 are read, and what 1.x writes; 3 is written. Files of versions 1 and 2 become what Pi's own
//! migration makes of them, except that the ids which version 1 lacks are made from the session and the place in
//! the file, so that the same file gives the same ids each time.

mod chain;
mod disk;
mod entry;
mod export;
mod file;
mod header;
mod import;
mod incremental;
mod line_parser;
mod live;
mod migrate;
mod node_builder;
mod own;
mod places;

pub use crate::session_files::SessionFiles;
pub(crate) use crate::session_files::files_with;
pub use disk::WriteFailure;
pub(crate) use entry::{Line, Parent, made_id, migrated, placement_repair, write_kept};
pub use export::{ExportSummary, SessionEntry, entries, export};
pub use file::{FinishReport, SessionFile};
pub(crate) use header::Header;
pub use import::{ImportOptions, import};
pub use live::LiveSession;
pub use places::{session_files, sessions_dir};

/// What this agent's sessions are called in the store.
pub const AGENT: &str = "pi";
/// Bytes of one line at most; a longer one is left out and told.
pub const LINE_LIMIT: usize = crate::lines::LINE_LIMIT;
/// The version that is written.
const VERSION: u64 = 3;

/// A time as this agent writes it.
fn iso(at: quipu_protocol::UnixMs) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(at).ok()?;
    Some(format!("{time:.3}"))
}
