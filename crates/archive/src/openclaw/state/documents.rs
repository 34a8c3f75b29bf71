//! What documents of a state directory say.

use quipu_protocol::SessionId;
use serde_json::{Map, Value};

use super::StateDocument;
use crate::lineages::session_id;

/// Members of a row of `sessions.json` that are made anew by whoever needs them, and may be long.
const DERIVED: [&str; 3] = ["skillsSnapshot", "systemPromptReport", "sessionFile"];

/// A conversation, and the session that it has.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexedSession {
    /// The key of the conversation, as it is written.
    pub key: String,
    /// The session, by the name that it has in a store.
    pub session: SessionId,
    /// When it was used last, in milliseconds since the epoch; 0 where that is not said.
    pub updated: i64,
    /// All else that the index says, without what is derived.
    pub entry: Map<String, Value>,
}

/// The conversations of an index, and the keys of those without a session.
pub fn indexed_sessions(index: &StateDocument) -> (Vec<IndexedSession>, Vec<String>) {
    let (mut found, mut without) = (Vec::new(), Vec::new());
    for (key, entry) in index.value.as_object().into_iter().flatten() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let file = text("sessionFile").rsplit(['/', '\\']).next();
        let of_file = file.and_then(|name| name.strip_suffix(".jsonl")).filter(|stem| !stem.is_empty());
        let id = of_file.unwrap_or_else(|| text("sessionId"));
        if id.is_empty() {
            without.push(key.clone());
            continue;
        }
        let mut rest = entry.as_object().cloned().unwrap_or_default();
        rest.retain(|name, _| !DERIVED.contains(&name.as_str()));
        let updated = entry.get("updatedAt").and_then(Value::as_i64).unwrap_or_default();
        found.push(IndexedSession { key: key.clone(), session: session_id(id), updated, entry: rest });
    }
    (found, without)
}
