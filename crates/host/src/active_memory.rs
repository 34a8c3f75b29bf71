//! Active memory for the sessions of this program: what it searches, and when it is there.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::{Engine, SessionOptions};
use quipu_memory::active::{
    ACTIVE_MEMORY, ActiveBudget, ActiveHit, ActiveMemory, ActiveMode, ActiveSearch, ActiveSearchError,
};
use quipu_memory::search::MemoryNotes;
use quipu_store::Graph;

use crate::{BackgroundBudget, Home, OpenRequest, background_budget};

/// The search over what is open in a directory.
struct OpenMemories {
    notes: MemoryNotes,
    home: Home,
    store: Arc<dyn Graph>,
}

impl ActiveSearch for OpenMemories {
    fn search<'a>(
        &'a self,
        session: &'a str,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ActiveHit>, ActiveSearchError>> {
        ActiveSearch::search(&self.notes, session, query, limit)
    }

    fn budget(&self) -> BoxFuture<'_, ActiveBudget> {
        Box::pin(async {
            // What is not known is not spent.
            let budget = background_budget(&self.home, &*self.store, ACTIVE_MEMORY).await.ok();
            let left = budget.as_ref().and_then(BackgroundBudget::left);
            let daily = left.and(budget.map(|budget| budget.limit));
            ActiveBudget { left: left.unwrap_or(0.0), daily }
        })
    }
}

/// Gives a session active memory, where its tools search memories and a person is in front of it.
pub(crate) fn install(
    options: &mut SessionOptions,
    home: &Home,
    engine: &Engine,
    (request, notes): (&OpenRequest, Option<MemoryNotes>),
) {
    let active = home.config().active_memory.clone();
    if let Some(notes) = notes.filter(|_| active.mode != ActiveMode::Off && !request.is_unattended) {
        let (home, store) = (home.without_commands(), engine.store().clone());
        let search = Arc::new(OpenMemories { notes, home, store: store.clone() });
        options.hooks.push(Arc::new(ActiveMemory::new(search, store, active)));
    }
}
