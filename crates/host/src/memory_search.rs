//! The search over memories and sessions, as the user's files set it up.

use std::path::Path;
use std::sync::Arc;

use quipu_memory::dream::{RecalledText, recall_fit};
use quipu_memory::notes::Notebook;
use quipu_memory::search::{HitPlace, MemoryHit, MemoryNotes, MemorySearch, RecallObserver, word_vectors};
use quipu_memory::{project_root, project_trees};
use quipu_protocol::SessionId;
use quipu_providers::{EmbedderSettings, StaticModel};
use quipu_seal::Sealer;
use quipu_store::{Graph, WordVectors};

use crate::dreams::note_recalls;
use crate::memory::{memory_home, memory_places, notebooks};
use crate::{Failure, Home};

/// The search over the sessions of a store and the memories that are open in a directory, with the second signal where
/// `search.semantic` names a model on this machine: no text leaves it.
///
/// # Errors
/// Where the choices of memories, or the model, cannot be read.
pub fn memory_search(
    home: &Home,
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    cwd: &Path,
) -> Result<MemorySearch, Failure> {
    let books = notebooks(home, store, sealer, cwd)?;
    let search = MemorySearch::new(memory_home(home), store.clone(), books, sealer.clone());
    Ok(search.with_words(local_vectors(home)?))
}

/// The second signal, where `search.semantic` names a model on this machine: no question is sent to a server.
///
/// # Errors
/// Where the model cannot be read.
pub fn local_vectors(home: &Home) -> Result<Option<Arc<dyn WordVectors>>, Failure> {
    let config = home.config();
    match &config.semantic {
        Some(EmbedderSettings::Path(path)) if config.problem_of("search.semantic").is_none() => {
            let model = StaticModel::open(&home.dir.join(path))
                .map_err(|error| Failure::request(format!("search.semantic.path: {error}")))?;
            Ok(Some(word_vectors(model)))
        }
        Some(_) | None => Ok(None),
    }
}

/// The tools of memory for a directory; `None` where memory is off there.
///
/// # Errors
/// As [`memory_search`].
pub fn memory_notes(
    home: &Home,
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    cwd: &Path,
) -> Result<Option<MemoryNotes>, Failure> {
    let search = memory_search(home, store, sealer, cwd)?;
    if search.books().is_empty() {
        return Ok(None);
    }
    let trees = project_trees(&project_root(cwd));
    let projects = trees.iter().map(|tree| tree.to_string_lossy().into_owned()).collect();
    let observer = DreamRecalls { home: home.clone(), books: search.books().to_vec() };
    let notes = MemoryNotes::new(search, store.clone(), Some(projects)).of_projects_alone();
    Ok(Some(if home.config().dreaming.enabled { notes.with_observer(Arc::new(observer)) } else { notes }))
}

/// Notes what searches found, for dreams.
struct DreamRecalls {
    home: Home,
    books: Vec<Notebook>,
}

impl RecallObserver for DreamRecalls {
    fn found(&self, question: &str, session: Option<&SessionId>, hits: &[MemoryHit]) {
        let found = by_memory(&self.books, question, session, hits);
        let (home, question) = (self.home.clone(), question.to_owned());
        tokio::spawn(async move { note_all(&home, &question, &found).await });
    }
}

/// Notes what a search of a person found, for dreams. Nothing is stored where dreaming is off; what fails is a warning.
pub async fn note_search(home: &Home, search: &MemorySearch, question: &str, hits: &[MemoryHit]) {
    if home.config().dreaming.enabled {
        note_all(home, question, &by_memory(search.books(), question, None, hits)).await;
    }
}

async fn note_all(home: &Home, question: &str, found: &[(Notebook, Vec<RecalledText>)]) {
    let Ok(Some(store)) = home.existing_store().await else { return };
    for (book, texts) in found.iter().filter(|(_, texts)| !texts.is_empty()) {
        if let Err(failure) = note_recalls(home, &store, book, question, texts).await {
            home.warn(failure.message);
        }
    }
}

/// What was found of each memory, without what the session that asks says itself.
fn by_memory(
    books: &[Notebook],
    question: &str,
    asking: Option<&SessionId>,
    hits: &[MemoryHit],
) -> Vec<(Notebook, Vec<RecalledText>)> {
    let mut found: Vec<(Notebook, Vec<RecalledText>)> =
        books.iter().map(|book| (book.clone(), Vec::new())).collect();
    for hit in hits {
        // The score of a search is one among its hits; a dream compares those of many.
        let score = recall_fit(question, &hit.snippet);
        let (memory, text) = match &hit.place {
            HitPlace::Node { session, .. } if session.is_some() && session.as_ref() == asking => continue,
            // What sessions say belongs to the project's memory, which comes first.
            HitPlace::Node { node, .. } => {
                (None, RecalledText::Node { node: *node, text: hit.snippet.clone(), score })
            }
            HitPlace::Note { memory, citation } => {
                let path = citation.path.clone();
                let (first, last) = (*citation.lines.start(), *citation.lines.end());
                (Some(&memory.id), RecalledText::Lines { path, first, last, score })
            }
        };
        let is_of = |book: &Notebook| memory.is_none_or(|memory| book.place().id == *memory);
        if let Some((_, texts)) = found.iter_mut().find(|(book, _)| is_of(book)) {
            texts.push(text);
        }
    }
    found
}

/// Whether memories are open in a directory.
pub fn is_memory_on(home: &Home, cwd: &Path) -> bool {
    memory_places(home, cwd).is_ok_and(|places| !places.is_empty())
}
