//! Dreams over the memories of a home: what they read and write, when they run, and what may be asked about them.

mod due;
mod place;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Runner, Sealer};
use quipu_memory::dream::{Dream, DreamError, DreamSettings, RecalledText, record_recalls};
use quipu_memory::notes::Notebook;
use quipu_memory::search::{HitPlace, MemoryHit, RecallRecorder};
use quipu_memory::{MemoryHome, MemoryKind, MemoryPlace};
use quipu_store::{Graph, SqliteStore, StoreError};

use crate::{Failure, Home, now};

pub use due::next_dream;
pub use place::DreamPlace;

/// Every memory that a dream may change: the user's own and those of the projects in which memory is on. None where memory or
/// dreaming is off.
///
/// # Errors
/// Where the file of choices cannot be used.
pub fn dreaming_places(home: &Home) -> Result<Vec<MemoryPlace>, Failure> {
    let config = home.config();
    if !config.memory.enabled || !config.dreaming.enabled {
        return Ok(Vec::new());
    }
    let memory = MemoryHome::new(&home.dir);
    let choices = memory.choices()?;
    let mut places: Vec<MemoryPlace> = Vec::new();
    for (project, choice) in choices.projects() {
        if choice.on {
            places.extend(memory.open(project.as_ref()).map_err(Failure::failed)?);
        }
    }
    places.retain(|place| place.kind != MemoryKind::Repository);
    places.sort_by(|a, b| a.id.cmp(&b.id));
    places.dedup_by(|a, b| a.id == b.id);
    Ok(places)
}

/// A memory as a dream sees it. Without a runner it asks no model.
#[must_use]
pub fn dream_place(
    home: &Home,
    store: &Arc<SqliteStore>,
    sealer: &Arc<Sealer>,
    place: MemoryPlace,
    runner: Option<Runner>,
) -> DreamPlace {
    let book = Notebook::new(&MemoryHome::new(&home.dir), place, store.clone(), sealer.clone());
    DreamPlace::new(home.clone(), book, store.clone(), runner)
}

/// How dreams work here.
#[must_use]
pub fn dream_settings() -> DreamSettings {
    DreamSettings::default()
}

/// Hits of one search that count as recalled.
const RECALLED: usize = 6;

/// Stores what searches of memories find, for dreams.
pub(crate) struct DreamRecorder {
    home: Home,
    store: Arc<dyn Graph>,
}

impl DreamRecorder {
    /// For the memories of a home; `None` where dreaming is off: then nothing is stored.
    pub(crate) fn new(home: &Home, store: &Arc<dyn Graph>) -> Option<Self> {
        let config = home.config();
        let is_on = config.memory.enabled && config.dreaming.enabled;
        (is_on && store.dreams().is_some()).then(|| Self { home: home.clone(), store: store.clone() })
    }

    async fn note(&self, question: &str, hits: &[MemoryHit], books: &[Notebook]) -> Result<(), DreamError> {
        let Some(dreams) = self.store.dreams() else { return Ok(()) };
        // Messages of sessions belong to the project's own memory.
        let own = books
            .iter()
            .find(|book| matches!(book.place().kind, MemoryKind::Project | MemoryKind::Workspace))
            .map(|book| book.place().id.clone());
        for book in books.iter().filter(|book| book.place().kind != MemoryKind::Repository) {
            let id = &book.place().id;
            let found: Vec<RecalledText> = hits
                .iter()
                .take(RECALLED)
                .filter_map(|hit| match &hit.place {
                    HitPlace::Note { memory, citation } if memory.id == *id => Some(RecalledText::Lines {
                        path: citation.path.clone(),
                        first: *citation.lines.start(),
                        last: *citation.lines.end(),
                        score: hit.score,
                    }),
                    HitPlace::Node { node, .. } if own.as_ref() == Some(id) => {
                        Some(RecalledText::Node { node: *node, text: hit.snippet.clone(), score: hit.score })
                    }
                    HitPlace::Note { .. } | HitPlace::Node { .. } => None,
                })
                .collect();
            if !found.is_empty() {
                let place = DreamPlace::new(self.home.clone(), book.clone(), self.store.clone(), None);
                record_recalls(dreams, &place, id, question, &found, now()).await?;
            }
        }
        Ok(())
    }
}

impl RecallRecorder for DreamRecorder {
    fn recalled<'a>(
        &'a self,
        question: &'a str,
        hits: &'a [MemoryHit],
        books: &'a [Notebook],
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match self.note(question, hits, books).await {
                // The search is answered all the same.
                Ok(()) | Err(DreamError::Store(StoreError::ReadOnly { .. })) => {}
                Err(error) => self.home.warn(format!("What was recalled is not kept for dreams: {error}")),
            }
        })
    }
}

/// A dream over a memory, now.
#[must_use]
pub fn dream_of<'a>(store: &'a SqliteStore, place: &'a DreamPlace, settings: &'a DreamSettings) -> Dream<'a> {
    Dream { memory: place.id(), store, host: place, settings, now: now() }
}
