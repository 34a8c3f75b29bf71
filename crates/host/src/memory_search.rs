//! The search over memories and sessions, as the user's files set it up.

use std::path::Path;
use std::sync::Arc;

use quipu_memory::dream::RecalledText;
use quipu_memory::notes::Notebook;
use quipu_memory::project_root;
use quipu_memory::search::{HitPlace, MemoryHit, MemoryNotes, MemorySearch, RecallObserver};
use quipu_providers::{EmbedderSettings, StaticModel};
use quipu_seal::Sealer;
use quipu_store::Graph;

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
    let config = home.config();
    match &config.semantic {
        // Only a model of this machine: no question is sent to a server.
        Some(EmbedderSettings::Path(path)) if config.problem_of("search.semantic").is_none() => {
            let model = StaticModel::open(&home.dir.join(path))
                .map_err(|error| Failure::request(format!("search.semantic.path: {error}")))?;
            Ok(search.with_model(model))
        }
        Some(_) | None => Ok(search),
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
    let projects = vec![project_root(cwd).to_string_lossy().into_owned()];
    let observer = DreamRecalls { home: home.clone(), books: search.books().to_vec() };
    let notes = MemoryNotes::new(search, store.clone(), Some(projects)).of_projects_alone();
    Ok(Some(if home.config().dreaming.enabled { notes.with_observer(Arc::new(observer)) } else { notes }))
}

/// Notes what searches of models found, for dreams.
struct DreamRecalls {
    home: Home,
    books: Vec<Notebook>,
}

impl RecallObserver for DreamRecalls {
    fn found(&self, question: &str, hits: &[MemoryHit]) {
        let mut found: Vec<(Notebook, Vec<RecalledText>)> =
            self.books.iter().map(|book| (book.clone(), Vec::new())).collect();
        for hit in hits {
            let (memory, text) = match &hit.place {
                // What sessions say belongs to the project's memory, which comes first.
                HitPlace::Node { node, .. } => {
                    (None, RecalledText::Node { node: *node, text: hit.snippet.clone(), score: hit.score })
                }
                HitPlace::Note { memory, citation } => {
                    let (path, score) = (citation.path.clone(), hit.score);
                    let (first, last) = (*citation.lines.start(), *citation.lines.end());
                    (Some(&memory.id), RecalledText::Lines { path, first, last, score })
                }
            };
            let is_of = |book: &Notebook| memory.is_none_or(|memory| book.place().id == *memory);
            if let Some((_, texts)) = found.iter_mut().find(|(book, _)| is_of(book)) {
                texts.push(text);
            }
        }
        let (home, question) = (self.home.clone(), question.to_owned());
        tokio::spawn(async move {
            let Ok(Some(store)) = home.existing_store().await else { return };
            for (book, texts) in found.iter().filter(|(_, texts)| !texts.is_empty()) {
                if let Err(failure) = note_recalls(&home, &store, book, &question, texts).await {
                    home.warn(failure.message);
                }
            }
        });
    }
}

/// Whether memories are open in a directory.
pub fn is_memory_on(home: &Home, cwd: &Path) -> bool {
    memory_places(home, cwd).is_ok_and(|places| !places.is_empty())
}
