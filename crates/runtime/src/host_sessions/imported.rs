//! Conversations of other gateways: each goes on in the session that it had there.

use quipu::protocol::{Json, SessionId};
use quipu::store::{Commit, Durability, Graph, InboxItem, Op, StoreError, conversation_inbox};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::said::SAID;
use super::{named_session, row_ops};
use crate::keys::SessionKey;

/// The row of an inbox that says what a conversation had when it was imported.
const ORIGIN: &str = "imported";
/// Bytes of that row at most; of a longer one only the session is kept.
const ORIGIN_LIMIT: usize = 64 << 10;

/// A conversation as another gateway has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportedConversation {
    /// The session that it has there, by the name that it has in the store.
    pub session: SessionId,
    /// When it was used last, in milliseconds since the epoch.
    #[serde(default)]
    pub updated: i64,
    /// All else that is said of it there, without secrets.
    #[serde(default)]
    pub entry: Map<String, Value>,
}

/// What became of a conversation that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationBinding {
    /// It goes on in this session.
    Bound,
    /// It did so already.
    Same,
    /// It has gone on here in another session, which it keeps.
    Kept(SessionId),
}

/// A conversation of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownConversation {
    /// Its key.
    pub key: SessionKey,
    /// The session that it has, if one.
    pub session: Option<SessionId>,
    /// What it had when it was imported, where it was.
    pub imported: Option<ImportedConversation>,
}

/// Has a conversation go on in the session that it had elsewhere, unless it has gone on here since. `dry_run` only says what
/// would become of it.
///
/// # Errors
/// What the store says; nothing changed then.
pub async fn bind_conversation(
    store: &dyn Graph,
    key: &SessionKey,
    imported: &ImportedConversation,
    mode: BindMode,
) -> Result<ConversationBinding, StoreError> {
    let inbox = conversation_inbox(&key.to_string());
    let work = store.pending(&inbox).await?;
    let bound = named_session(&work);
    let before = work.inbox.iter().find(|row| row.id.as_str() == ORIGIN);
    let origin = before.and_then(|row| row.input.read::<ImportedConversation>().ok());
    // What it has here is what an import gave it last.
    let is_theirs = bound.is_none() || bound == origin.as_ref().map(|origin| origin.session.clone());
    let binding = match &bound {
        Some(session) if *session == imported.session => ConversationBinding::Same,
        Some(session) if !is_theirs => ConversationBinding::Kept(session.clone()),
        // It was begun anew here.
        None if origin.as_ref().is_some_and(|origin| origin.session == imported.session) => {
            ConversationBinding::Same
        }
        _ => ConversationBinding::Bound,
    };
    let mut kept = imported.clone();
    if let Some(origin) = &origin
        && matches!(binding, ConversationBinding::Kept(_))
    {
        // Else the session that it has would count as theirs once it was imported somewhere.
        kept.session = origin.session.clone();
    }
    let mut input = Json::of(&kept).unwrap_or_default();
    if input.get().len() > ORIGIN_LIMIT {
        kept.entry.clear();
        input = Json::of(&kept).unwrap_or_default();
    }
    let mut ops = Vec::new();
    if binding == ConversationBinding::Bound {
        ops.extend(row_ops(key, bound.is_some(), &imported.session));
        // It is of the session before this one: nothing is known of this one but when it was written.
        let said = work.inbox.iter().find(|row| row.id.as_str() == SAID);
        ops.extend(said.map(|said| Op::InboxTake { session: inbox.clone(), item: said.id.clone() }));
    }
    if origin.as_ref() != Some(&kept) {
        ops.extend(before.map(|_| Op::InboxTake { session: inbox.clone(), item: ORIGIN.into() }));
        let item = InboxItem { id: ORIGIN.into(), queue: key.to_string(), input };
        ops.push(Op::InboxPut { session: inbox, item });
    }
    if mode == BindMode::Write && !ops.is_empty() {
        store.commit(Commit { ops, durability: Durability::Power, ..Commit::default() }).await?;
    }
    Ok(binding)
}

/// Whether a binding is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindMode {
    /// It is.
    Write,
    /// It is only said what would be.
    DryRun,
}

/// All conversations of a store, by key.
///
/// # Errors
/// What the store says.
pub async fn conversations(store: &dyn Graph) -> Result<Vec<KnownConversation>, StoreError> {
    let prefix = conversation_inbox("");
    let mut found = Vec::new();
    for inbox in store.inboxes(prefix.as_str()).await? {
        let name = inbox.as_str().strip_prefix(prefix.as_str()).unwrap_or_default();
        let Ok(key) = SessionKey::parse(name) else { continue };
        let work = store.pending(&inbox).await?;
        let origin = work.inbox.iter().find(|row| row.id.as_str() == ORIGIN);
        let imported = origin.and_then(|row| row.input.read().ok());
        let session = named_session(&work);
        if session.is_some() || imported.is_some() {
            found.push(KnownConversation { key, session, imported });
        }
    }
    Ok(found)
}
