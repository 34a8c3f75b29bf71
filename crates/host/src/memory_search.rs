//! The search over memories and sessions, as the user's files set it up.

use std::path::Path;
use std::sync::Arc;

use quipu_memory::search::{MemoryNotes, MemorySearch};
use quipu_providers::{EmbedderSettings, StaticModel};
use quipu_seal::Sealer;
use quipu_store::Graph;

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
    let projects = vec![cwd.to_string_lossy().into_owned()];
    Ok(Some(MemoryNotes::new(search, store.clone(), Some(projects))))
}

/// Whether memories are open in a directory.
pub fn is_memory_on(home: &Home, cwd: &Path) -> bool {
    memory_places(home, cwd).is_ok_and(|places| !places.is_empty())
}
