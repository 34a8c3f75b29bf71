//! What one call of a hook asks, may see and gives.

use std::path::{Path, PathBuf};
use std::time::Instant;

use quipu_history::Sight;
use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Graph, StoreError};

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
    /// The directory, as sessions spell it.
    pub(crate) project: String,
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

    /// Which of these nodes may be shown.
    pub(crate) async fn sees(&self, nodes: &[NodeId]) -> Result<Vec<bool>, StoreError> {
        self.sight.sees(self.store, nodes).await
    }

    /// A path as it is shown: below the directory without that.
    pub(crate) fn short_path(&self, path: &str) -> String {
        let below = Path::new(path).strip_prefix(&self.request.directory);
        let shown = below.map_or_else(|_| path.to_owned(), |below| below.to_string_lossy().into_owned());
        quipu_transcript::one_line(&shown, 120)
    }
}
