//! Where content lies: what every index, mirror, draft, output, log and export implements, so that a piece of content can be
//! found in all of them, and erased from all of them.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use memchr::memmem::{self, Finder};
use quipu_protocol::{BlobId, ChunkId, NodeId, SessionId, UnixMs};
use serde::Serialize;

use crate::StoreError;

/// Things that one question names at most, of each kind.
pub const SELECTED: usize = 10_000;
/// Bytes of a needle at least: a shorter one is in nearly everything.
pub const NEEDLE_LEAST: usize = 4;
/// Bytes of a needle at most.
pub const NEEDLE_MOST: usize = 64 << 10;
/// Places of one page at most.
pub const FOUND_LIMIT: usize = 1_000;
/// Places that an answer names as not erased at most; the others are counted.
pub const KEPT_LIMIT: usize = 1_000;

/// What a holder's operations return. Runs on any executor.
pub type HolderFut<'a, T> = Pin<Box<dyn Future<Output = Result<T, HolderError>> + Send + 'a>>;

/// A place where content of sessions lies: a table, a file, a directory of files.
///
/// - [`find`](Self::find) tells where something is, a page at a time, in an order that stays while nothing changes.
/// - [`erase`](Self::erase) makes the same question find nothing, and leaves everything else as it is, byte by byte. It may be
///   called again with the same targets at any time, also after the process died in the middle: then it finishes. What it
///   could not erase it names, with the reason; that is no error.
/// - [`bytes`](Self::bytes) is what the place takes.
///
/// A holder ignores what of a [`Selection`] it cannot know: a file of drafts knows no nodes. Who wants a node gone from
/// everywhere names its texts as needles as well.
///
/// ```
/// use std::sync::Mutex;
/// use quipu_store::{
///     ContentHolder, ContentQuery, EraseTargets, EraseReport, FoundContent, FoundPage, FoundPlace, HolderFut, Needles,
/// };
///
/// /// Notes in memory.
/// struct Notes(Mutex<Vec<String>>);
///
/// impl ContentHolder for Notes {
///     fn name(&self) -> &str {
///         "notes"
///     }
///
///     fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
///         Box::pin(async move {
///             let needles = Needles::of(&query.selection)?;
///             let mut page = FoundPage::begin(query);
///             for (row, note) in self.0.lock().unwrap().iter().enumerate() {
///                 if needles.are_in(note.as_bytes()) {
///                     let place = FoundPlace::Row { table: "notes".into(), key: row.to_string() };
///                     if !page.push(&format!("{row:020}"), FoundContent { place, bytes: note.len() as u64 }) {
///                         break;
///                     }
///                 }
///             }
///             Ok(page)
///         })
///     }
///
///     fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
///         Box::pin(async move {
///             let needles = Needles::of(&targets.selection)?;
///             let mut erased = EraseReport::default();
///             self.0.lock().unwrap().retain(|note| {
///                 let goes = needles.are_in(note.as_bytes());
///                 if goes {
///                     erased.add(note.len() as u64);
///                 }
///                 !goes
///             });
///             Ok(erased)
///         })
///     }
///
///     fn bytes(&self) -> HolderFut<'_, u64> {
///         Box::pin(async { Ok(self.0.lock().unwrap().iter().map(|note| note.len() as u64).sum()) })
///     }
/// }
///
/// # async fn shown() {
/// let notes = Notes(Mutex::new(vec!["the key is 4711".into(), "buy bread".into()]));
/// let targets = EraseTargets::of_needle("key is 4711", "asked for");
/// let query = ContentQuery::of(targets.selection.clone());
/// assert_eq!(notes.find(&query).await.unwrap().found.len(), 1);
/// assert_eq!(notes.erase(&targets).await.unwrap().count, 1);
/// assert!(notes.find(&query).await.unwrap().found.is_empty());
/// assert_eq!(notes.bytes().await.unwrap(), 9);
/// # }
/// # let polled = std::pin::pin!(shown()).as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
/// # assert!(polled.is_ready());
/// ```
pub trait ContentHolder: Send + Sync + 'static {
    /// Its name, the only one of this name in a home: lower case, with `-` and `.`.
    fn name(&self) -> &str;

    /// Where something is. At most [`ContentQuery::limit`] places; [`FoundPage::next`] says where the next page begins.
    ///
    /// # Errors
    /// `Selection` for a question that is none; `Store`, `File` where the place cannot be read.
    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage>;

    /// Erases what [`find`](Self::find) finds for the same selection.
    ///
    /// # Errors
    /// `Selection`; `Store`, `File` where nothing can be erased at all, or where it ended early: calling again goes on.
    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport>;

    /// Bytes that it holds, as they lie on the disk (or in memory), with what is free between them.
    ///
    /// # Errors
    /// `Store`, `File`.
    fn bytes(&self) -> HolderFut<'_, u64>;
}

/// What is looked for. A place is found when anything of it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// All that belongs to these sessions.
    pub sessions: Vec<SessionId>,
    /// What these nodes say, and what was made of it.
    pub nodes: Vec<NodeId>,
    /// These texts, in whatever node.
    pub blobs: Vec<BlobId>,
    /// These plain bytes: files, images, bodies of requests.
    pub chunks: Vec<ChunkId>,
    /// Whatever holds these bytes, as they are or as JSON spells them in a string.
    pub needles: Vec<Vec<u8>>,
}

impl Selection {
    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        let Self { sessions, nodes, blobs, chunks, needles } = self;
        sessions.is_empty() && nodes.is_empty() && blobs.is_empty() && chunks.is_empty() && needles.is_empty()
    }

    /// Whether it can be looked for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), SelectionError> {
        let Self { sessions, nodes, blobs, chunks, needles } = self;
        let counts = [sessions.len(), nodes.len(), blobs.len(), chunks.len(), needles.len()];
        if let Some(count) = counts.into_iter().find(|count| *count > SELECTED) {
            return Err(SelectionError::TooMany { count });
        }
        match needles.iter().map(Vec::len).find(|bytes| !(NEEDLE_LEAST..=NEEDLE_MOST).contains(bytes)) {
            Some(bytes) => Err(SelectionError::Needle { bytes }),
            None => Ok(()),
        }
    }
}

/// A question for a page of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentQuery {
    /// What is looked for.
    pub selection: Selection,
    /// Where the page begins: [`FoundPage::next`] of the one before, `None` for the first.
    pub after: Option<String>,
    /// Places of the page at most; more than [`FOUND_LIMIT`] counts as that.
    pub limit: usize,
}

impl ContentQuery {
    /// The first page, as long as one can be.
    pub fn of(selection: Selection) -> Self {
        Self { selection, after: None, limit: FOUND_LIMIT }
    }
}

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseTargets {
    /// What it is.
    pub selection: Selection,
    /// Why, for who asks for it later. Not what it was.
    pub why: String,
}

impl EraseTargets {
    /// Whatever holds this text.
    pub fn of_needle(needle: &str, why: &str) -> Self {
        let selection = Selection { needles: vec![needle.as_bytes().to_vec()], ..Selection::default() };
        Self { selection, why: why.to_owned() }
    }
}

/// Some of the places where something is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FoundPage {
    /// The places, in the holder's order.
    pub found: Vec<FoundContent>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<String>,
    #[serde(skip)]
    last: String,
    #[serde(skip)]
    after: Option<String>,
    #[serde(skip)]
    limit: usize,
}

impl FoundPage {
    /// An empty page for this question.
    pub fn begin(query: &ContentQuery) -> Self {
        let limit = query.limit.clamp(1, FOUND_LIMIT);
        Self { limit, after: query.after.clone(), ..Self::default() }
    }

    /// Adds the place at `key`: keys come in ascending order, and those of earlier pages are passed over. Says whether more
    /// may be added.
    pub fn push(&mut self, key: &str, found: FoundContent) -> bool {
        if self.after.as_deref().is_some_and(|after| key <= after) {
            return true;
        }
        if self.found.len() >= self.limit {
            self.next = Some(std::mem::take(&mut self.last));
            return false;
        }
        key.clone_into(&mut self.last);
        self.found.push(found);
        true
    }

    /// Whether a place at `key` was on an earlier page.
    pub fn is_past(&self, key: &str) -> bool {
        self.after.as_deref().is_some_and(|after| key <= after)
    }
}

/// A place where something is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundContent {
    /// The place, as the holder names it.
    pub place: FoundPlace,
    /// Bytes that would go.
    pub bytes: u64,
}

/// Which place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FoundPlace {
    /// What a node says.
    Node(NodeId),
    /// A text.
    Blob(BlobId),
    /// Plain bytes.
    Chunk(ChunkId),
    /// A row of a table.
    Row {
        /// The name of the table.
        table: String,
        /// The primary key of the row, as text.
        key: String,
    },
    /// A file, or a line of one.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where the holder erases lines.
        line: Option<u64>,
    },
}

impl std::fmt::Display for FoundPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(id) => write!(f, "node {}", id.short()),
            Self::Blob(id) => write!(f, "blob {}", id.short()),
            Self::Chunk(id) => write!(f, "chunk {}", id.short()),
            Self::Row { table, key } => write!(f, "{table} {key}"),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// The result of an erasure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EraseReport {
    /// Places.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What could not be erased, and why: at most [`KEPT_LIMIT`].
    pub kept: Vec<KeptContent>,
    /// The number of all of these.
    pub kept_count: u64,
}

impl EraseReport {
    /// One more place of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    /// Adds a place that was not erased.
    pub fn keep(&mut self, place: FoundPlace, why: KeptReason, detail: impl Into<String>) {
        self.kept_count += 1;
        if self.kept.len() < KEPT_LIMIT {
            self.kept.push(KeptContent { place, why, detail: detail.into() });
        }
    }

    /// Adds what another part of the same place erased.
    pub fn join(&mut self, other: Self) {
        let Self { count, bytes, kept, kept_count } = other;
        self.count += count;
        self.bytes += bytes;
        self.kept_count += kept_count;
        self.kept.extend(kept.into_iter().take(KEPT_LIMIT.saturating_sub(self.kept.len())));
    }
}

/// Content that was not erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptContent {
    /// The place that still has the content.
    pub place: FoundPlace,
    /// What to branch on.
    pub why: KeptReason,
    /// What happened and what to do, for people.
    pub detail: String,
}

/// Why something was not erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum KeptReason {
    /// A session, a terminal or a job that is at work has it: try again when that is over.
    InUse,
    /// It is out of the tables, and old pages with it are still in the file or its WAL: try again when nobody reads.
    Remnants,
    /// A file was changed by somebody else since Quipu wrote it.
    Changed,
    /// It cannot be written.
    ReadOnly,
    /// It is a whole copy of something else, which a person should remove.
    Copy,
    /// The system refused.
    Failed,
}

/// That something was erased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Erasure {
    /// When, milliseconds since the epoch.
    pub at: UnixMs,
    /// Why, as whoever erased it said.
    pub why: String,
}

/// Why a question is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// It names too much at once.
    #[error("{count} items are selected at once, but the limit is {SELECTED}; use several requests")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A text that is looked for is too short or too long.
    #[error("a search text has {bytes} bytes; it must have {NEEDLE_LEAST} to {NEEDLE_MOST}")]
    Needle {
        /// The length of the needle in bytes.
        bytes: usize,
    },
}

/// A holder's operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    /// The question is none.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or directory.
    #[error("could not {doing} {}: {detail}; check it and its permissions, then try again", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// What was being done, as a verb.
        doing: &'static str,
        /// What the system said.
        detail: String,
    },
}

impl HolderError {
    /// Of a file.
    pub fn file(path: &Path, doing: &'static str, error: &io::Error) -> Self {
        Self::File { path: path.to_owned(), doing, detail: error.to_string() }
    }
}

/// As JSON is written where it stands in HTML.
fn in_page(text: &[u8]) -> Vec<u8> {
    let mut spelled = Vec::with_capacity(text.len());
    for byte in text {
        match byte {
            b'<' => spelled.extend(b"\\u003c"),
            b'>' => spelled.extend(b"\\u003e"),
            b'&' => spelled.extend(b"\\u0026"),
            byte => spelled.push(*byte),
        }
    }
    spelled
}

/// Needles made ready to be looked for: each as it is, as JSON spells it in a string, and as JSON spells that in a string; each of them
/// also as it stands in the JSON of a page.
#[derive(Debug, Clone, Default)]
pub struct Needles(Vec<Finder<'static>>);

impl Needles {
    /// The needles of a selection.
    ///
    /// # Errors
    /// The selection is none.
    pub fn of(selection: &Selection) -> Result<Self, SelectionError> {
        selection.check()?;
        let mut all = Vec::new();
        for needle in &selection.needles {
            let mut spelled = needle.clone();
            for _ in 0..3 {
                for spelled in [spelled.clone(), in_page(&spelled)] {
                    if !all.iter().any(|known: &Finder<'_>| known.needle() == spelled) {
                        all.push(Finder::new(&spelled).into_owned());
                    }
                }
                let Ok(text) = std::str::from_utf8(&spelled) else { break };
                let quoted = serde_json::Value::from(text).to_string();
                spelled = quoted.as_bytes()[1..quoted.len() - 1].to_vec();
            }
        }
        Ok(Self(all))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the longest: who reads in pieces lets them overlap by this.
    pub fn longest(&self) -> usize {
        self.0.iter().map(|needle| needle.needle().len()).max().unwrap_or(0)
    }

    /// Whether any is in these bytes. In JSON text, also where a string spells it with other escapes.
    pub fn are_in(&self, bytes: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        self.0.iter().any(|needle| needle.find(bytes).is_some()) || self.are_spelled_in(bytes)
    }

    /// `\u0061` and `\/` are spelled in more than one way.
    fn are_spelled_in(&self, bytes: &[u8]) -> bool {
        if memmem::find(bytes, b"\\u").is_none() && memmem::find(bytes, b"\\/").is_none() {
            return false;
        }
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<serde_json::Value>();
        values.any(|value| value.is_ok_and(|value| self.are_in_value(&value)))
    }

    fn are_in_value(&self, value: &serde_json::Value) -> bool {
        let holds = |text: &str| self.0.iter().any(|needle| needle.find(text.as_bytes()).is_some());
        match value {
            serde_json::Value::String(text) => holds(text),
            serde_json::Value::Array(items) => items.iter().any(|item| self.are_in_value(item)),
            serde_json::Value::Object(members) => {
                members.iter().any(|(name, value)| holds(name) || self.are_in_value(value))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needles_are_found_as_pages_write_them() {
        let selection =
            Selection { needles: vec![b"if a < b && \"c\" > d".to_vec()], ..Selection::default() };
        let needles = Needles::of(&selection).unwrap();
        let page = br#"<script>{"t":"x if a \u003c b \u0026\u0026 \"c\" \u003e d y"}</script>"#;
        assert!(needles.are_in(page));
        assert!(!needles.are_in(br#"<script>{"t":"if a \u003e b"}</script>"#));
    }
}
