//! The heads that programs read which know one for all sessions, and what the log of actions tells them of it.

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Action, Commit, RefMove, RefName, Store, StoreError};

use crate::engine::Engine;

/// A session was opened and goes on from this node.
pub(crate) fn boot(at: NodeId, now: UnixMs) -> Action {
    Action { timestamp: now, kind: "BOOT".into(), from: None, to: Some(at), metadata: None }
}

/// Another session than the one before is about to be published, at `to`. `None` where it is the same, which stood at
/// `stood`, or where there was none before.
pub(crate) async fn session_switch(
    store: &dyn Store,
    session: &SessionId,
    stood: Option<NodeId>,
    to: NodeId,
    now: UnixMs,
) -> Result<Option<Action>, StoreError> {
    let Some(before) = store.head(&RefName::from(RefName::PI_HEAD)).await? else { return Ok(None) };
    if Some(before) == stood || store.sessions_of(&[before]).await?.contains(&Some(session.clone())) {
        return Ok(None);
    }
    let metadata = serde_json::json!({ "trigger": "human", "session": session }).to_string();
    let kind = "SESSION_SWITCH".into();
    Ok(Some(Action { timestamp: now, kind, from: Some(before), to: Some(to), metadata: Some(metadata) }))
}

impl Engine {
    /// Adds to a commit that moves a session from `stood` to `to` that this is published.
    pub(crate) async fn publish(
        &self,
        commit: &mut Commit,
        session: &SessionId,
        stood: Option<NodeId>,
        to: NodeId,
        why: &str,
    ) -> Result<(), StoreError> {
        commit.actions.extend(session_switch(&**self.store(), session, stood, to, self.now()).await?);
        commit.moves.extend(RefMove::published(to, why));
        Ok(())
    }
}
