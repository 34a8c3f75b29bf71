//! Care for a store.

use std::path::Path;

use quipu_protocol::UnixMs;

use crate::{DroppedFiles, FileDropListener, Fut, IndexBacklog};

/// Care for a store.
pub trait Upkeep: Send + Sync + 'static {
    /// Reads everything and reports what does not hold. Finding damage is not an error.
    fn check(&self) -> Fut<'_, Report>;

    /// Drops all derived tables and makes them anew from the graph.
    fn rebuild(&self) -> Fut<'_, ()>;

    /// Drops derived tables and marks them for a rebuild, unless an earlier rebuild is not complete.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn begin_rebuild(&self, what: DerivedTables) -> Fut<'_, RebuildStart>;

    /// Rebuilds dropped tables for about a quarter of a second and returns what is left; all zeros when it is
    /// complete. A rebuild that a process left incomplete resumes with the next call, or when a writer is idle.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn continue_rebuild(&self) -> Fut<'_, RebuildBacklog>;

    /// Makes the text of nodes searchable that is not yet, for about a quarter of a second, and tells what is left
    /// then. Not needed: it happens in quiet moments as well.
    fn index(&self) -> Fut<'_, IndexBacklog>;

    /// Drops states of files that tools changed, the oldest first, until those that are left take no more than `most`
    /// bytes: [`DroppedFiles`] says which stay. Errors: `ReadOnly`, `Full`, `Busy`.
    fn drop_files<'a>(&'a self, most: u64, tell: FileDropListener<'a>) -> Fut<'a, DroppedFiles>;

    /// The same when the whole store has become larger than `most`, at most once a day, whoever asks; else `None`.
    fn drop_files_when_due<'a>(
        &'a self,
        most: u64,
        tell: FileDropListener<'a>,
    ) -> Fut<'a, Option<DroppedFiles>>;

    /// Writes the file anew, without what is free in it; gives by how many bytes it is smaller then. Needs as much room
    /// again meanwhile, and nobody else can write. While others read, it gets smaller later.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`; nothing is changed then.
    fn shrink(&self) -> Fut<'_, u64>;

    /// Writes a consistent copy to a new file, mode 0600.
    ///
    /// # Errors
    /// `Io` when `to` exists, `Full`.
    fn backup<'a>(&'a self, to: &'a Path) -> Fut<'a, ()>;
}

/// Which of the tables that are derived from the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DerivedTables {
    /// The indexes of the search.
    Search,
    /// All.
    All,
}

/// Whether a rebuild started or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RebuildStart {
    /// The tables were dropped; a new rebuild starts.
    Anew,
    /// An earlier rebuild was not complete and resumes.
    Resumed,
}

/// The number of nodes that a rebuild still has to process, for each kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RebuildBacklog {
    /// Where nodes stand, and sessions.
    pub graph: u64,
    /// Usage, tools and files of sessions.
    pub activity: u64,
    /// The search by words.
    pub words: u64,
    /// The search by substrings.
    pub substrings: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of nodes.
    pub nodes: u64,
    /// The number of blobs: texts and other parts of nodes.
    pub blobs: u64,
    /// The number of chunks: larger bytes, which blobs refer to.
    pub chunks: u64,
    /// Chunks among them that are files which tools changed, as they were at some time.
    pub file_states: u64,
    /// Bytes that those take.
    pub file_state_bytes: u64,
    /// Those that were dropped so far to make room.
    pub dropped_files: DroppedFiles,
    /// The number of refs: heads, sessions, bookmarks and ends.
    pub refs: u64,
    /// The number of sessions.
    pub sessions: u64,
    /// Steps that a crash left open; not a problem.
    pub open_steps: u64,
    /// Inputs that wait; not a problem.
    pub inbox: u64,
    /// Nodes whose id is no hash of any known form of record: written by another program, not damage.
    pub unverifiable: u64,
    /// When the store was made from what could be read of a damaged one. What is missing since then is known.
    pub salvaged: Option<UnixMs>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes among them that nothing stands in: used again before the file grows.
    pub free_bytes: u64,
    /// Bytes of its WAL.
    pub wal_bytes: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first 100 of them.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What to branch on.
    pub kind: ProblemKind,
    /// What and where, in one line.
    pub what: String,
}

/// What does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// SQLite finds the file damaged.
    File,
    /// A blob's content is not that of its id.
    Blob,
    /// A chunk's bytes are not those of its id, or cannot be read.
    Chunk,
    /// A node of ours whose id is not that of its record.
    Node,
    /// A node's parent is missing, or its lineage runs in a circle.
    Parent,
    /// A part of a node of ours is missing.
    Part,
    /// A ref stands at a node that does not exist.
    Ref,
    /// An open step or waiting input of a session that does not exist.
    Orphan,
    /// A derived table is not what `rebuild` would make.
    Derived,
}
