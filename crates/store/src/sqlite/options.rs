//! How a store is opened.

use std::time::Duration;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whether a store that does not exist is made.
    pub create: bool,
    /// How long another program's lock is waited for.
    pub busy: Duration,
    /// Who writes: stands in the log of refs.
    pub writer: String,
    /// When new text is made searchable.
    pub search_index: SearchIndex,
    /// Bytes of the file that each connection keeps in memory at most: there are a writer's and two readers'.
    pub cache: u32,
}

/// When new text is made searchable, and what was done is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchIndex {
    /// In quiet moments, beside all else that the process does.
    Ahead,
    /// When something is asked for that needs it, or [`Upkeep::index`](crate::Upkeep::index) is called: for processes that only read, and soon end.
    Asked,
}

impl Default for OpenOptions {
    /// Creates; waits 30 s; the writer is `quipu` and the number of this process; indexes ahead; keeps 32 MB.
    fn default() -> Self {
        Self {
            create: true,
            busy: Duration::from_secs(30),
            writer: format!("quipu/{}", std::process::id()),
            search_index: SearchIndex::Ahead,
            cache: 32_000_000,
        }
    }
}
