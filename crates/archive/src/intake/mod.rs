//! What is common to taking in the sessions of any agent.
//!
//! A format has a reader, which goes through a file once and says what it finds: sessions, and items with an id of their
//! own, what they follow, a time and a meaning. This module places them:
//!
//! - An item is known by its format and its own id. What the store has of it stays as it is, under the parent that it
//!   has, so that importing again, in another order, or a file that has grown adds only what is new.
//! - An item waits for what it follows. What never comes is no reason to lose it: it begins a branch.
//! - Sessions that share items (forks by copying) share their nodes: the first node of a session stands where its own
//!   items begin.
//! - Nothing goes by uncounted: what is no item is counted by kind.

mod import;
mod incremental;
mod lines;
mod node_builder;
mod stored_session;

use std::any::Any;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Entry, Json, SessionId, UnixMs};
use quipu_seal::Sealer;

pub(crate) use import::{import, import_database, open_file, stamp};
pub(crate) use incremental::{CompletedRead, LineReader, run};
pub(crate) use lines::{SealedLines, Skip, Text, without_space};
pub(crate) use node_builder::{NodeBuilder, Stop};

use crate::{ArchiveError, Report};

pub(crate) use crate::lines::LINE_LIMIT;

/// An answer that looks whole is whole when nothing was written for so long.
pub(crate) const WHOLE: Duration = Duration::from_secs(2);
/// Nobody goes on with an answer after so long.
pub(crate) const REST: Duration = Duration::from_secs(120);

/// How the files of an agent are read.
pub(crate) struct Format {
    /// What its sessions are called in the store.
    pub(crate) agent: &'static str,
    /// A first look at a file, before anything is placed.
    pub(crate) outline: fn(&mut File, &Path) -> Result<Outline, ArchiveError>,
    /// Reads the file from its beginning to its end.
    pub(crate) read: fn(&mut SealedLines, &Outline, NodeBuilder) -> Result<CompletedRead, Stop>,
}

/// How a file is read that holds many sessions: a database, or the export of an account.
pub(crate) struct DatabaseFormat {
    /// What its sessions are called in the store.
    pub(crate) agent: &'static str,
    /// Opens the file, which may begin to read and seal what is in it.
    pub(crate) open: fn(&Path, FollowMode, &Arc<Sealer>) -> OpenResult,
}

/// The result of opening a file of many sessions.
pub(crate) type OpenResult = Result<Box<dyn Sessions>, ArchiveError>;

/// The state that a format keeps of a file of many sessions, to read only those that have changed.
pub(crate) type SavedState = Box<dyn Any + Send>;

/// Whether a file of many sessions is followed, so that its state is kept for the next import.
pub(crate) enum FollowMode {
    No,
    /// With the state of the last import.
    Yes(Option<SavedState>),
}

/// The sessions of such a file, those that others go on from first.
pub(crate) trait Sessions: Send {
    /// Goes to the next session, and says what it is about; `None` after the last.
    fn next(&mut self) -> Result<Option<Outline>, ArchiveError>;

    /// Reads it. Nothing has been sealed.
    fn read(&mut self, sealer: &Sealer, out: &mut NodeBuilder) -> Result<(), Stop>;

    /// Bytes of all of them, about; 0 where that is not known.
    fn bytes(&self) -> u64;

    /// At the end: what is to be told of the file beside its sessions.
    fn end(&mut self) -> Option<Report>;

    /// After that, when all was stored: what is to be remembered of it. Those of `unfinished` were not whole.
    fn remember(&mut self, unfinished: &HashSet<SessionId>) -> Option<SavedState> {
        let _ = unfinished;
        None
    }

    /// Whether sessions were left out that have not changed.
    fn is_part(&self) -> bool {
        false
    }
}

/// What a file is about.
#[derive(Debug, Clone)]
pub(crate) struct Outline {
    pub(crate) session: SessionId,
    /// Sessions whose items it holds or follows.
    pub(crate) related: Vec<SessionId>,
    /// The own id of its first item, where another session may have that too.
    pub(crate) first: Option<String>,
    /// Files that hold what it follows, to be imported before it.
    pub(crate) before: Vec<PathBuf>,
    /// How long nobody has written to it: what looks unfinished may stay so.
    pub(crate) idle: Duration,
    /// What the format saw, and need not look for again when it reads the file.
    pub(crate) look: Option<Arc<dyn Any + Send + Sync>>,
}

impl Outline {
    /// A session that has nothing to do with another.
    pub(crate) fn alone(session: SessionId, idle: Duration) -> Self {
        Self { session, related: Vec::new(), first: None, before: Vec::new(), idle, look: None }
    }

    /// Whether it is about the same, whenever it was written.
    fn is_like(&self, other: &Self) -> bool {
        (&self.session, &self.related, &self.first) == (&other.session, &other.related, &other.first)
    }
}

/// A session, when its first item comes.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) session: SessionId,
    pub(crate) cwd: String,
    pub(crate) time: UnixMs,
    pub(crate) parent: Option<SessionId>,
    /// What its file says of it, verbatim.
    pub(crate) kept: Option<Json>,
}

/// What an item follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemParent {
    /// Nothing: it begins its session, or a branch of it.
    Nothing,
    /// The item of this id.
    Item(String),
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    /// Its own id, by which it is known for ever.
    pub(crate) id: String,
    /// Other ids that what follows it may name.
    pub(crate) also: Vec<String>,
    pub(crate) follows: ItemParent,
    /// The place among the sessions that were told.
    pub(crate) owner: usize,
    pub(crate) time: Option<UnixMs>,
    pub(crate) entry: Entry,
    /// The item from which on a compaction keeps what stood before it.
    pub(crate) first_kept: Option<String>,
    /// What the entry has no place for, verbatim.
    pub(crate) kept: Option<Json>,
    /// Start and milliseconds, where they are known.
    pub(crate) started: Option<UnixMs>,
    pub(crate) duration_ms: Option<u64>,
    /// The line, from 1.
    pub(crate) line: u64,
    /// Whether the session stands here when nothing comes after it.
    pub(crate) is_head: bool,
}

impl Item {
    /// An item of the first session that follows nothing.
    pub(crate) fn new(id: String, entry: Entry, line: u64) -> Self {
        Self {
            id,
            also: Vec::new(),
            follows: ItemParent::Nothing,
            owner: 0,
            time: None,
            entry,
            first_kept: None,
            kept: None,
            started: None,
            duration_ms: None,
            line,
            is_head: true,
        }
    }
}

/// How long nobody has written to a file.
pub(crate) fn idle(file: &File) -> std::io::Result<Duration> {
    Ok(file.metadata()?.modified()?.elapsed().unwrap_or_default())
}
