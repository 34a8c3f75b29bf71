//! What became of a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quipu_protocol::{NodeId, SessionId};
use serde::Serialize;

/// Problems that a report names; the rest are counted.
const NAMED: usize = 100;

/// What became of the entries of one file. `read = added + present + changed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// The session that it holds, by the name that it has in the store; empty where the report is of an export as a whole,
    /// beside those of its sessions.
    pub session: SessionId,
    /// Bytes of the file that were read; of one that is packed, of what came out of it.
    pub bytes: u64,
    /// The file is as it was when it was imported last: nothing below was counted anew.
    pub unchanged: bool,
    /// Entries that were read.
    pub read: u64,
    /// Those that the store did not have; in a dry run those that it would get.
    pub added: u64,
    /// Those that the store had.
    pub present: u64,
    /// Those that the store has otherwise: what it has stays.
    pub changed: u64,
    /// Entries and lines that were mended to fit into a tree.
    pub repaired: u64,
    /// Lines that hold no entry.
    pub lost: u64,
    /// Of those, what may be whole when the file is imported again: a last line without its end, an answer that may still
    /// be written.
    pub pending: u64,
    /// Lines that were passed by because nothing is in them that is not elsewhere too, by kind.
    pub skipped: BTreeMap<String, u64>,
    /// Entries in which a secret was sealed.
    pub sealed: u64,
    /// Rows of a log of actions that the store did not have, where there is one.
    pub actions: u64,
    /// Ends of branches.
    pub branches: u64,
    /// Where the session's ref stands now.
    pub head: Option<NodeId>,
    /// The first hundred problems, in the order in which they were met.
    pub problems: Vec<Problem>,
}

impl Report {
    pub(crate) fn new(path: PathBuf, session: SessionId) -> Self {
        Self {
            path,
            session,
            bytes: 0,
            unchanged: false,
            read: 0,
            added: 0,
            present: 0,
            changed: 0,
            repaired: 0,
            lost: 0,
            pending: 0,
            skipped: BTreeMap::new(),
            sealed: 0,
            actions: 0,
            branches: 0,
            head: None,
            problems: Vec::new(),
        }
    }

    /// Counts a line that is passed by.
    pub(crate) fn skip(&mut self, kind: &str) {
        // The kinds of a hostile file may be many and long.
        let full = self.skipped.len() >= NAMED && !self.skipped.contains_key(kind);
        let kind = if full { "other" } else { kind };
        *self.skipped.entry(kind.chars().take(100).collect()).or_default() += 1;
    }

    /// Whether something of the file cannot be taken, now or by importing it again as it is.
    pub fn left_out(&self) -> bool {
        self.lost > self.pending
    }

    /// Counts a problem and, among the first, keeps it.
    pub(crate) fn problem(&mut self, line: u64, kind: ProblemKind, detail: &str) {
        self.pending += u64::from(matches!(kind, ProblemKind::Torn | ProblemKind::Unfinished));
        match kind {
            ProblemKind::Malformed
            | ProblemKind::Torn
            | ProblemKind::TooLong
            | ProblemKind::NotAnEntry
            | ProblemKind::Unfinished
            | ProblemKind::Unreadable
            | ProblemKind::Damaged => {
                self.lost += 1;
            }
            ProblemKind::Encoding
            | ProblemKind::SecondHeader
            | ProblemKind::DuplicateId
            | ProblemKind::NoId
            | ProblemKind::Orphan
            | ProblemKind::Relinked
            | ProblemKind::Cycle
            | ProblemKind::Renamed
            | ProblemKind::NoTime => self.repaired += 1,
            ProblemKind::Changed => self.changed += 1,
        }
        if self.problems.len() < NAMED {
            self.problems.push(Problem::new(line, kind, detail));
        }
    }
}

/// Something in a file that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line, from 1.
    pub line: u64,
    /// What to branch on.
    pub kind: ProblemKind,
    /// More about it, at most 200 characters; may hold any character of the file.
    pub detail: String,
}

impl Problem {
    pub(crate) fn new(line: u64, kind: ProblemKind, detail: &str) -> Self {
        Self { line, kind, detail: detail.chars().take(200).collect() }
    }
}

/// What is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProblemKind {
    /// Lost: a line that is no JSON.
    Malformed,
    /// Lost for now: the last line has no end yet.
    Torn,
    /// Lost: a line beyond the limit.
    TooLong,
    /// Lost: JSON, but not an object.
    NotAnEntry,
    /// Lost for now: the last answer may still be written.
    Unfinished,
    /// Lost: a file of an archive, or one that a message names, that cannot be read.
    Unreadable,
    /// Lost: what follows in a packed file that is torn, damaged or beyond a limit.
    Damaged,
    /// Repaired: bytes that are no UTF-8 became U+FFFD.
    Encoding,
    /// Repaired: another header in the middle, kept as an entry that nothing follows.
    SecondHeader,
    /// Repaired: the id of an earlier entry; both are kept, later entries follow the last one.
    DuplicateId,
    /// Repaired: an entry without an id, kept, which nothing can follow.
    NoId,
    /// Repaired: the entry before it is not in the file; it begins a branch of its own.
    Orphan,
    /// Repaired: the entry before it is not in the file, whose entries are a chain; it follows the one that stands before it.
    Relinked,
    /// Repaired: entries that follow each other in a circle, which is cut here.
    Cycle,
    /// Repaired: a node that cannot be kept under its own id, and is another one here.
    Renamed,
    /// Repaired: no time that can be read; the session's time stands for it.
    NoTime,
    /// The store has an entry of this id with another content, and keeps that.
    Changed,
}

impl ProblemKind {
    /// In words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Malformed => "not JSON, skipped",
            Self::Torn => "the last line is incomplete and is held back: it is imported when it is whole",
            Self::TooLong => "longer than the limit, skipped",
            Self::NotAnEntry => "not an entry, skipped",
            Self::Unfinished => {
                "the last answer may be incomplete and is held back: it is imported when more follows"
            }
            Self::Unreadable => "a file in it cannot be read, skipped",
            Self::Damaged => "the compressed file cannot be read from here on, the rest is skipped",
            Self::Encoding => "not UTF-8, repaired",
            Self::SecondHeader => "a second header, kept separately",
            Self::DuplicateId => "a duplicate id; both entries are kept",
            Self::NoId => "an entry without an id, kept",
            Self::Orphan => "its parent is not in the file; it starts a branch",
            Self::Relinked => "its parent is not in the file; it is attached to the entry before it",
            Self::Cycle => "its parents form a cycle, which is cut here",
            Self::Renamed => "kept under another id",
            Self::NoTime => "no time, the session's time is used",
            Self::Changed => "the store has a different entry with this id and keeps it",
        }
    }
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes of those of which all is stored, about.
    pub stored: u64,
    /// Bytes of the file when it was opened.
    pub total: u64,
    /// Entries that were read.
    pub entries: u64,
}
