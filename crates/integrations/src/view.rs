//! What one call of a hook asks, may see and gives.

use std::path::{Path, PathBuf};
use std::time::Instant;

use quipu_history::Sight;
use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Graph, Hit, MatchMode, Order, SearchQuery, Sessions, StoreError};

use crate::hook_call::Occasion;
use crate::seen::SeenPassages;

/// The text for the model, and what is not to be given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookAnswer {
    /// The text, in the frame of an archive.
    pub text: String,
    /// Ids of what stands in it.
    pub given: Vec<String>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct HookRequest {
    /// What happened.
    pub occasion: Occasion,
    /// The directory of the session, without links.
    pub directory: PathBuf,
    /// The same as the host spells it: sessions may be recorded by that name.
    pub spelled: PathBuf,
    /// The session that asks: it knows itself what it said.
    pub session: Option<SessionId>,
    /// Tokens of the text at most, its frame included.
    pub tokens: u64,
    /// The time.
    pub now: UnixMs,
    /// After this no other search begins: what is found by then is the answer.
    pub until: Instant,
}

/// What one call may see.
pub(crate) struct View<'a> {
    pub(crate) store: &'a dyn Graph,
    pub(crate) sealer: &'a Sealer,
    pub(crate) request: &'a HookRequest,
    /// The names of the directory that sessions may be recorded by, each once.
    pub(crate) projects: Vec<String>,
    pub(crate) sight: Sight,
    pub(crate) seen: &'a SeenPassages,
}

impl View<'_> {
    /// Whether a session is the one that asks.
    pub(crate) fn is_own(&self, session: &SessionId) -> bool {
        self.request.session.as_ref() == Some(session)
    }

    /// Whether there is time for another search.
    pub(crate) fn has_time(&self) -> bool {
        Instant::now() < self.request.until
    }

    /// Whether a passage was given before.
    pub(crate) fn is_seen(&self, id: &str) -> bool {
        self.seen.holds(id)
    }

    /// Text as the store has it.
    pub(crate) fn sealed(&self, text: &str) -> String {
        self.sealer.seal(text).into_owned()
    }

    /// The newest passages of the directory that the session that asks neither said nor was given.
    pub(crate) async fn newest(&self, query: SearchQuery) -> Result<Vec<Hit>, StoreError> {
        let query = SearchQuery {
            sessions: Sessions::Standing,
            order: Order::Newest,
            matching: MatchMode::Words,
            ..query
        };
        let mut found = Vec::new();
        for project in &self.projects {
            let query = SearchQuery { project: Some(project.clone()), ..query.clone() };
            found.extend(self.store.search(query).await?.hits);
        }
        if self.projects.len() > 1 {
            found.sort_by_key(|hit| std::cmp::Reverse((hit.at, hit.node)));
            found.truncate(query.limit);
        }
        found.retain(|hit| {
            hit.session.as_ref().is_some_and(|session| !self.is_own(session))
                && !self.is_seen(&hit.node.short())
        });
        Ok(found)
    }

    /// Which of these nodes may be shown.
    pub(crate) async fn sees(&self, nodes: &[NodeId]) -> Result<Vec<bool>, StoreError> {
        self.sight.sees(self.store, nodes).await
    }

    /// A path as it is shown: below the directory without that.
    pub(crate) fn short_path(&self, path: &str) -> String {
        let below = self.projects.iter().find_map(|project| Path::new(path).strip_prefix(project).ok());
        let shown = below.map_or_else(|| path.to_owned(), |below| below.to_string_lossy().into_owned());
        quipu_transcript::one_line(&shown, 120)
    }
}
