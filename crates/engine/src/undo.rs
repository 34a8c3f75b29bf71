//! Going back over a compaction: the session's ref moves to the node before it, where the old context is.

use quipu_protocol::{Entry, NodeId, SessionId};
use quipu_store::{Action, LineageEnd, RefName, StoreError, decode_nodes};

use crate::commit::MoveContext;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::owner::with_lease;
use crate::runner::is_beside;
use crate::session_move::{AfterMove, SessionMove};

/// Nodes that are read at once behind a compaction.
const AT_ONCE: usize = 32;

/// Why a compaction was not undone. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The session could not be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Somebody is working on the session.
    #[error("session `{0}` is in use by another process; end that process first")]
    Busy(SessionId),
    /// The session was never compacted.
    #[error("session `{0}` was not compacted, so there is no compaction to undo")]
    NotCompacted(SessionId),
    /// Messages followed the compaction, and would be left behind.
    #[error(
        "session `{session}` continued after its compaction {}, so the compaction cannot be undone",
        compaction.short()
    )]
    WentOn {
        /// The session that was compacted.
        session: SessionId,
        /// The last compaction.
        compaction: NodeId,
        /// The node before it.
        before: NodeId,
    },
}

impl From<StoreError> for UndoError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}

impl Engine {
    /// Undoes the compaction that a session ends with, by moving its ref to the node before it: the next request has
    /// the whole context again. The compaction stays in the graph. Gives the node where the session stands now, and what
    /// people should know of files that an interrupted move left on their way: they are brought to their places first.
    ///
    /// # Errors
    /// `Busy`; `NotCompacted`; `WentOn` when the session does not end with a compaction; `Open` with `NoSuchSession`,
    /// `Broken` or `Store`.
    pub async fn undo_compaction(&self, session: &SessionId) -> Result<(NodeId, Vec<String>), UndoError> {
        let store = self.store();
        let name = RefName::session(session);
        if store.head(&name).await?.is_none() {
            return Err(OpenError::NoSuchSession(session.to_string()).into());
        }
        let busy = || UndoError::Busy(session.clone());
        with_lease(store, &name, busy, self.go_back(session, &name)).await
    }

    async fn go_back(&self, session: &SessionId, name: &RefName) -> Result<(NodeId, Vec<String>), UndoError> {
        let (head, notes) = self.close_open_steps(session, name).await?;
        let Some(head) = head else { return Err(OpenError::NoSuchSession(session.to_string()).into()) };
        Ok((self.go_back_standing(session, name, head, &MoveContext::default()).await?, notes))
    }

    /// The same for a session that is at rest, or that we have open.
    pub(crate) async fn go_back_standing(
        &self,
        session: &SessionId,
        name: &RefName,
        head: NodeId,
        cx: &MoveContext,
    ) -> Result<NodeId, UndoError> {
        let store = self.store();
        let nodes = store.lineage(head, LineageEnd::Checkpoint).await?;
        let Some(first) = nodes.first() else { return Err(UndoError::NotCompacted(session.clone())) };
        let decoded = decode_nodes(&**store, std::slice::from_ref(first)).await?;
        let is_compaction = decoded.iter().any(|one| matches!(one.entry, Entry::Compaction(_)));
        let (true, Some(before)) = (is_compaction, first.record.parent) else {
            return Err(UndoError::NotCompacted(session.clone()));
        };
        // Calls that hooks made since are no messages.
        let mut went_on = false;
        for some in nodes[1..].chunks(AT_ONCE) {
            let decoded = decode_nodes(&**store, some).await?;
            went_on = !decoded.iter().all(|one| is_beside(&one.entry));
            if went_on {
                break;
            }
        }
        if went_on {
            return Err(UndoError::WentOn { session: session.clone(), compaction: first.id, before });
        }
        let (from, to, why) = (Some(head), Some(before), "undo compaction");
        let order =
            SessionMove { session, name, from, ends: Vec::new(), to, added: Vec::new(), label: None, why };
        let mut ready = self.prepare_move(order, cx).await?;
        let metadata = serde_json::json!({ "session": session, "what": "compaction" }).to_string();
        let action = self.action("QUIPU_UNDO", from, to, session);
        ready.commit.actions.push(Action { metadata: Some(metadata), ..action });
        self.commit_move(session, ready.commit, None, AfterMove::Unchanged).await?;
        Ok(before)
    }
}
