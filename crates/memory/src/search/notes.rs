//! The notes of a memory in the index: what changed since, and what the lines of a hit say.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use quipu_protocol::AuthorClass as StoredAuthor;
use quipu_seal::Sealer;
use quipu_store::{NoteChange, NoteChunk, RecallIndex, WordVectors};

use super::chunks::{Chunk, chunks};
use super::{MemorySearchError, shortened};
use crate::context::visible;
use crate::files::{FileName, FileText, ListedFile};
use crate::notes::{LineAuthor, Notebook};
use crate::{AuthorClass, Citation, MemoryPlace};

/// Files that are indexed in one transaction.
const AT_ONCE: usize = 200;
/// Milliseconds from the beginning of a day to its middle.
const NOON: i64 = 12 * 3_600_000;

/// An author, as the store names the class.
pub(super) fn stored_author(author: AuthorClass) -> StoredAuthor {
    match author {
        AuthorClass::Owner => StoredAuthor::Owner,
        AuthorClass::Agent => StoredAuthor::Agent,
        AuthorClass::Untrusted => StoredAuthor::Untrusted,
        AuthorClass::System => StoredAuthor::System,
    }
}

/// An author, as memories name the class.
pub(super) fn author(stored: StoredAuthor) -> AuthorClass {
    match stored {
        StoredAuthor::Owner => AuthorClass::Owner,
        StoredAuthor::Agent => AuthorClass::Agent,
        StoredAuthor::Untrusted => AuthorClass::Untrusted,
        StoredAuthor::System => AuthorClass::System,
    }
}

/// Indexes what changed in a memory since it was indexed. Files that cannot be used are left out; the diary of dreams is never
/// searched, so that nothing is fed by what came of it.
pub(super) async fn index(
    index: &dyn RecallIndex,
    book: &Notebook,
    words: Option<&Arc<dyn WordVectors>>,
    sealer: &Sealer,
) -> Result<(), MemorySearchError> {
    let memory = book.place().id.clone();
    let listing = {
        let book = book.clone();
        tokio::task::spawn_blocking(move || book.list().files)
    };
    let (listed, known) = futures_util::future::join(listing, index.indexed_notes(&memory)).await;
    let listed = listed.unwrap_or_default();
    let mut known: HashMap<String, String> = known?.into_iter().map(|note| (note.path, note.stamp)).collect();
    let mut changed = Vec::new();
    for file in listed.iter().filter(|file| file.name.as_str() != FileName::DREAMS) {
        let stamp = stamp(file, words);
        if known.remove(file.name.as_str()).is_none_or(|known| known != stamp) {
            changed.push((file, stamp));
        }
    }
    let gone = known.into_keys().map(|path| NoteChange { path, stamp: String::new(), chunks: None });
    let gone: Vec<NoteChange> = gone.collect();
    if !gone.is_empty() {
        index.put_notes(&memory, gone, None).await?;
    }
    for some in changed.chunks(AT_ONCE) {
        let texts: Vec<Option<FileText>> = some.iter().map(|(file, _)| book.read(&file.name).ok()).collect();
        let there: Vec<&FileText> = texts.iter().flatten().collect();
        let authors = book.authors_of(&there).await.unwrap_or_default();
        let mut changes = Vec::new();
        let mut authors = authors.into_iter();
        for ((file, stamp), text) in some.iter().zip(&texts) {
            let chunks = match text {
                None => None,
                Some(text) => {
                    let authors = authors.next().unwrap_or_default();
                    let at = written_at(book.place(), &file.name);
                    let found = chunks(&text.text).into_iter();
                    Some(found.map(|chunk| note_chunk(&chunk, text, &authors, at, sealer)).collect())
                }
            };
            changes.push(NoteChange { path: file.name.as_str().to_owned(), stamp: stamp.clone(), chunks });
        }
        index.put_notes(&memory, changes, words.cloned()).await?;
    }
    Ok(())
}

/// What tells that a file has to be indexed again.
fn stamp(file: &ListedFile, words: Option<&Arc<dyn WordVectors>>) -> String {
    let model = words.map_or("", |words| words.id());
    format!("{} {model}", file.stamp.text())
}

fn note_chunk(chunk: &Chunk, text: &FileText, authors: &[LineAuthor], at: i64, sealer: &Sealer) -> NoteChunk {
    let (first, last) = (*chunk.lines.start(), *chunk.lines.end());
    let known = authors
        .iter()
        .filter(|author| author.lines.first <= last && author.lines.last >= first)
        .map(|author| author.class)
        .max();
    // Of several authors the least trusted; what nobody knows of is nobody's word, as what a conflict left.
    let class = known.filter(|_| text.conflict.is_none()).unwrap_or(AuthorClass::Untrusted);
    NoteChunk { first, last, text: sealer.seal(&chunk.text).into_owned(), at, author: stored_author(class) }
}

/// The day that a note's name says, else the time of its file.
fn written_at(place: &MemoryPlace, name: &FileName) -> i64 {
    let of_name = name.date().and_then(|date| {
        let start = date.day.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        Some(start.timestamp().as_millisecond() + NOON)
    });
    let of_file = || {
        let modified =
            std::fs::metadata(place.root.join(name.as_str())).and_then(|found| found.modified()).ok()?;
        i64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    };
    of_name.or_else(of_file).unwrap_or(0)
}

/// Reads the lines of hits, each file once.
pub(super) struct NoteReader<'a> {
    books: &'a [Notebook],
    read: HashMap<(String, String), Option<FileText>>,
}

impl<'a> NoteReader<'a> {
    pub(super) fn new(books: &'a [Notebook]) -> Self {
        Self { books, read: HashMap::new() }
    }

    /// The memory, and what the lines say; `None` where the file is gone.
    pub(super) fn lines(&mut self, memory: &str, citation: &Citation) -> Option<(MemoryPlace, String)> {
        let book = self.books.iter().find(|book| book.place().id == memory)?;
        let key = (memory.to_owned(), citation.path.clone());
        let text = self.read.entry(key).or_insert_with(|| {
            let name = FileName::new(&citation.path).ok()?;
            book.read(&name).ok()
        });
        let from = usize::try_from(citation.lines.start().saturating_sub(1)).ok()?;
        let count = usize::try_from(citation.lines.end() - citation.lines.start()).ok()?.saturating_add(1);
        let lines: Vec<&str> = text.as_ref()?.text.lines().skip(from).take(count).collect();
        Some((book.place().clone(), shortened(&visible(&lines.join("\n")))))
    }
}
