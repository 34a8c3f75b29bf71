//! Recall: nodes and notes that answer a question, best first.

use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs};

use crate::Fut;

/// Bytes of a question at most.
pub const QUESTION_LIMIT: usize = 4 << 10;
/// Hits of one recall at most.
pub const MOST_RECALLED: usize = 200;
/// Bytes of a chunk of a note that are indexed at most.
pub const NOTE_CHUNK: usize = 8 << 10;

/// A question, as a person asks it, and what an answer must be like. Not all words need to occur; words that most texts have
/// do not count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecallQuery {
    /// The question, at most [`QUESTION_LIMIT`] bytes.
    pub question: String,
    /// Only sessions that work in one of these directories or below it; `None` for all. Notes are not affected.
    pub projects: Option<Vec<String>>,
    /// Only notes of these memories.
    pub memories: Vec<String>,
    /// Only what was written since then.
    pub since: Option<UnixMs>,
    /// Only what was written before then.
    pub until: Option<UnixMs>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<RecallKind>,
    /// Only of these authors; empty for all.
    pub authors: Vec<AuthorClass>,
    /// Nothing of this session: that of who asks.
    pub asking: Option<SessionId>,
    /// None of these nodes: what a person had forgotten.
    pub without: Vec<NodeId>,
    /// At most so many hits; at most [`MOST_RECALLED`].
    pub limit: usize,
}

/// Vectors of words: the second signal beside the words themselves. That of a text is their sum, each as much as it is rare.
pub trait WordVectors: Send + Sync + 'static {
    /// What makes the vectors, on one line. Vectors of another id are not compared with these.
    fn id(&self) -> &str;

    /// How many numbers a vector has.
    fn width(&self) -> usize;

    /// The vector of a word; empty where nothing is known of it.
    fn word(&self, word: &str) -> Arc<[f32]>;
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecallKind {
    /// A message of a user.
    User,
    /// A message of a model.
    Assistant,
    /// A summary.
    Summary,
    /// Lines of a note.
    Note,
}

impl RecallKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::Summary, Self::Note];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Summary => "summary",
            Self::Note => "note",
        }
    }
}

/// The answers to a question.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecallHits {
    /// The best first.
    pub hits: Vec<RecallHit>,
    /// Nodes that are not in the index yet.
    pub left: u64,
    /// Whether the question has no word that counts, so that nothing was looked for by words.
    pub wordless: bool,
}

/// A place that may answer a question.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallHit {
    /// Where it stands.
    pub place: RecallPlace,
    /// What it is.
    pub kind: RecallKind,
    /// Who wrote it.
    pub author: AuthorClass,
    /// When it was written.
    pub at: UnixMs,
    /// How well it fits: from 0 to 1, by the best of this search.
    pub score: f64,
    /// Which signal found it.
    pub by: RecallSignal,
}

/// Where an answer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecallPlace {
    /// In a session.
    Node {
        /// The node.
        node: NodeId,
        /// Its id in the program that wrote it.
        external_id: Option<String>,
        /// Its session.
        session: Option<SessionId>,
        /// What it says around the words, on one line.
        excerpt: String,
    },
    /// In a memory.
    Note {
        /// The memory.
        memory: String,
        /// The file, relative to the memory's directory.
        path: String,
        /// The first line, from 1.
        first: u32,
        /// The last line.
        last: u32,
    },
}

/// Which signal found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecallSignal {
    /// Its words, or those beside it.
    Words,
    /// Its vector alone.
    Semantic,
    /// Both.
    Both,
}

impl RecallSignal {
    /// As programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Semantic => "semantic",
            Self::Both => "both",
        }
    }
}

/// A file of a memory as it was when it was indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedNote {
    /// Relative to the memory's directory.
    pub path: String,
    /// What shows a change: size and time of the file, and what else its chunks depend on.
    pub stamp: String,
}

/// A file of a memory that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct NoteChange {
    /// Relative to the memory's directory.
    pub path: String,
    /// As in [`IndexedNote`].
    pub stamp: String,
    /// What it says now; `None` where it is gone.
    pub chunks: Option<Vec<NoteChunk>>,
}

/// Lines of a note.
#[derive(Debug, Clone, PartialEq)]
pub struct NoteChunk {
    /// The first line, from 1.
    pub first: u32,
    /// The last line.
    pub last: u32,
    /// What is indexed of them.
    pub text: String,
    /// When it was written.
    pub at: UnixMs,
    /// Who wrote it.
    pub author: AuthorClass,
}

/// An index of what was said, for questions. It is derived, and made when it is first asked for: a store that is never asked
/// has no part of it.
pub trait RecallIndex: Send + Sync + 'static {
    /// Indexes what is new for about so long, with vectors where something makes them; how many nodes and vectors are left then.
    ///
    /// # Errors
    /// `Full`, `Busy`, `Corrupt`, `Io`.
    fn index_recall(&self, words: Option<Arc<dyn WordVectors>>, patience: Duration) -> Fut<'_, u64>;

    /// Answers a question from what is indexed; by vectors too, where something makes that of the question.
    ///
    /// # Errors
    /// `TooLarge` for a question beyond [`QUESTION_LIMIT`].
    fn recall(&self, query: RecallQuery, words: Option<Arc<dyn WordVectors>>) -> Fut<'_, RecallHits>;

    /// The files of a memory that are indexed.
    fn indexed_notes<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<IndexedNote>>;

    /// Drops what is indexed of all files of memories, so that no word of what they said before is left.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn drop_notes(&self) -> Fut<'_, ()>;

    /// Replaces what is indexed of these files.
    ///
    /// # Errors
    /// `ReadOnly`, `Full`, `Busy`.
    fn put_notes<'a>(
        &'a self,
        memory: &'a str,
        changes: Vec<NoteChange>,
        words: Option<Arc<dyn WordVectors>>,
    ) -> Fut<'a, ()>;
}
