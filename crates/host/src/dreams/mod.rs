//! Dreams over the memories of a home: what they read and write, when they run, and what may be asked about them.

mod due;
mod place;

use std::sync::Arc;

use quipu::{Runner, Sealer};
use quipu_memory::dream::{Dream, DreamSettings, RecalledText, record_recalls};
use quipu_memory::notes::Notebook;
use quipu_memory::{MemoryHome, MemoryKind, MemoryPlace};
use quipu_store::SqliteStore;

use crate::{Failure, Home, now};

pub use due::dream_recurrence;
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

/// Notes that a search found something in the memories that are open. Nothing is stored where dreaming is off.
///
/// # Errors
/// What the store says.
pub async fn note_recalls(
    home: &Home,
    store: &Arc<SqliteStore>,
    book: &Notebook,
    query: &str,
    found: &[RecalledText],
) -> Result<(), Failure> {
    let config = home.config();
    if !config.memory.enabled || !config.dreaming.enabled || book.place().kind == MemoryKind::Repository {
        return Ok(());
    }
    let place = DreamPlace::new(home.clone(), book.clone(), store.clone(), None);
    record_recalls(&**store, &place, &book.place().id, query, found, now()).await.map_err(Failure::failed)?;
    Ok(())
}

/// A dream over a memory, now.
#[must_use]
pub fn dream_of<'a>(store: &'a SqliteStore, place: &'a DreamPlace, settings: &'a DreamSettings) -> Dream<'a> {
    Dream { memory: place.id(), store, host: place, settings, now: now() }
}
