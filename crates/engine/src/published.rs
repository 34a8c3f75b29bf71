//! The heads that know one session for all: ours, and those of other programs that somebody wants to follow ours. And what
//! the log of actions tells of both.

use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Action, Graph, RefMove, RefName, StoreError};

/// Which heads of other programs follow our sessions. None, unless somebody says so: what such a program writes next becomes
/// a child of what its head names, so moving it takes that program's own history out of its sight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishSettings {
    /// Their names.
    pub heads: Vec<RefName>,
}

impl PublishSettings {
    /// Heads at most.
    pub const MOST: usize = 16;

    /// Whether a ref can be published to: a plain name, as programs have them that know one head, and none of ours. Names
    /// with a `/` are those of sessions, bookmarks and imports.
    pub fn is_head(name: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let ours = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("quipu"));
        (1..=128).contains(&name.len()) && name.bytes().all(plain) && !ours
    }
}

/// The heads that every move of a session moves as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heads(Arc<[RefName]>);

impl Heads {
    pub(crate) fn new(settings: &PublishSettings) -> Self {
        let fits = |name: &&RefName| PublishSettings::is_head(name.as_str());
        Self(settings.heads.iter().filter(fits).take(PublishSettings::MOST).cloned().collect())
    }

    /// Our own, then those of others.
    fn names(&self) -> impl Iterator<Item = RefName> {
        std::iter::once(RefName::from(RefName::NEWEST)).chain(self.0.iter().cloned())
    }

    /// The moves that come with the move of a session. Each happens wherever the head stands, so that nobody fails for it.
    pub(crate) fn moves(&self, to: NodeId, why: &str) -> impl Iterator<Item = RefMove> {
        self.names().map(move |name| RefMove::publish(name, to, why))
    }

    /// The moves that come with an entry that makes no session the newest: of the heads that stand where it stood.
    pub(crate) async fn moves_along(
        &self,
        store: &dyn Graph,
        stood: NodeId,
        to: NodeId,
        why: &str,
    ) -> Result<Vec<RefMove>, StoreError> {
        let mut moves = Vec::new();
        for name in self.names() {
            if store.head(&name).await? == Some(stood) {
                moves.push(RefMove::publish(name, to, why));
            }
        }
        Ok(moves)
    }

    /// Another session than the one before is about to become the newest, at `to`. `None` where it is the same, which stood
    /// at `stood`, or where there was none before. Where a head of another program follows, that is where one was before.
    pub(crate) async fn switch(
        &self,
        store: &dyn Graph,
        session: &SessionId,
        stood: Option<NodeId>,
        to: NodeId,
        now: UnixMs,
    ) -> Result<Option<Action>, StoreError> {
        let name = self.0.first().cloned().unwrap_or_else(|| RefName::from(RefName::NEWEST));
        let Some(before) = store.head(&name).await? else { return Ok(None) };
        if Some(before) == stood || store.sessions_of(&[before]).await?.contains(&Some(session.clone())) {
            return Ok(None);
        }
        let metadata = serde_json::json!({ "trigger": "human", "session": session }).to_string();
        let kind = "SESSION_SWITCH".into();
        Ok(Some(Action { timestamp: now, kind, from: Some(before), to: Some(to), metadata: Some(metadata) }))
    }
}

/// A session was opened and continues from this node.
pub(crate) fn boot(at: NodeId, now: UnixMs) -> Action {
    Action { timestamp: now, kind: "BOOT".into(), from: None, to: Some(at), metadata: None }
}
