//! What is left of a node when its content is erased: what the graph, the order of calls and the sums of costs need.

use quipu_dag::Blob;
use quipu_protocol::BlobId;
use serde_json::{Map, Value, json};

use crate::own::KIND;

/// What stands in the place of an erased text.
pub const ERASED: &str = "[erased]";

/// Members of an entry of a session file that are no content.
const OF_ENTRY: [&str; 9] = [
    "type",
    "id",
    "parentId",
    "timestamp",
    "firstKeptEntryId",
    "tokensBefore",
    "provider",
    "modelId",
    "customType",
];
/// Members of `message` in our part that are no content.
const OF_MESSAGE: [&str; 12] = [
    "api",
    "provider",
    "model",
    "usage",
    "stopReason",
    "timestamp",
    "toolCallId",
    "toolName",
    "isError",
    "customType",
    "display",
    "role",
];
/// Members of `compaction` in our part that are no content.
const OF_COMPACTION: [&str; 7] =
    ["firstKept", "reason", "checkpoint", "usage", "fromHook", "timestamp", "tokensBefore"];

/// The part that stands in the place of an erased one. It is of the same type, and valid for every reader of the tables.
///
/// Kept are ids, names of tools and models, times, usage, the recorded call without its body's bytes, and hashes of other
/// nodes. Texts, arguments, results, images, labels, names and changes of files are gone.
///
/// ```
/// use quipu_dag::Blob;
/// use quipu_transcript::erased_part;
///
/// let call = Blob::new("tool_call", r#"{"id":"c1","name":"bash","arguments":{"command":"cat key"}}"#).unwrap();
/// let left = erased_part(&call);
/// assert_eq!(left.kind, "tool_call");
/// assert!(left.content.contains("c1") && !left.content.contains("cat key"));
/// assert_eq!(erased_part(&Blob::text("a secret")), Blob::text("[erased]"));
/// ```
pub fn erased_part(blob: &Blob) -> Blob {
    let members = match serde_json::from_str(&blob.content) {
        Ok(Value::Object(members)) => Some(members),
        // Also what no reader of ours can read, such as half of a surrogate pair.
        Ok(_) | Err(_) => None,
    };
    let left = match (blob.kind.as_str(), members) {
        ("tool_call", Some(members)) => {
            let mut left = only(&members, &["id", "name"]);
            left.insert("arguments".into(), json!({}));
            Some(left)
        }
        ("tool_result", Some(members)) => {
            let mut left = only(&members, &["toolCallId", "toolName", "isError"]);
            left.insert("content".into(), json!([{ "text": ERASED, "type": "text" }]));
            Some(left)
        }
        ("pi_meta" | "pi_entry", Some(members)) => Some(entry(&members)),
        (KIND, Some(members)) => Some(own(&members)),
        (KIND, None) => Some(own(&Map::new())),
        _ => None,
    };
    let left = left.map(|left| Value::Object(left).to_string());
    left.and_then(|left| Blob::new(blob.kind.clone(), left).ok())
        .unwrap_or_else(|| Blob::string(blob.kind.clone(), ERASED))
}

/// The part of which nothing is left but its type: where something is to go that [`erased_part`] keeps.
pub fn emptied_part(blob: &Blob) -> Blob {
    if blob.kind == KIND { own_blob(own(&Map::new())) } else { Blob::string(blob.kind.clone(), ERASED) }
}

fn own_blob(members: Map<String, Value>) -> Blob {
    let text = Value::Object(members).to_string();
    Blob::new(KIND, text).unwrap_or_else(|_| Blob::string(KIND, ERASED))
}

fn only(members: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let kept = names.iter().filter_map(|name| Some(((*name).to_owned(), members.get(*name)?.clone())));
    kept.filter(|(_, value)| !value.is_object() || value.as_object().is_some_and(|inner| !inner.is_empty()))
        .collect()
}

/// An entry as other programs read it.
fn entry(members: &Map<String, Value>) -> Map<String, Value> {
    let mut left = only(members, &OF_ENTRY);
    if members.contains_key("summary") {
        left.insert("summary".into(), ERASED.into());
    }
    if let Some(Value::Object(message)) = members.get("message") {
        let mut inner = only(message, &["role", "timestamp", "toolCallId", "toolName"]);
        inner.insert("content".into(), json!([{ "text": ERASED, "type": "text" }]));
        left.insert("message".into(), inner.into());
    } else if let Some(role) = members.get("role") {
        left.insert("role".into(), role.clone());
    }
    left
}

/// Our part.
fn own(members: &Map<String, Value>) -> Map<String, Value> {
    let object = |name: &str| members.get(name).and_then(Value::as_object);
    let mut left = only(members, &["v", "entry", "provenance", "merge", "plain", "session", "epoch"]);
    left.entry("v").or_insert_with(|| 1.into());
    left.entry("entry").or_insert_with(|| "meta".into());
    if let Some(message) = object("message") {
        left.insert("message".into(), only(message, &OF_MESSAGE).into());
    }
    if let Some(step) = object("step") {
        let mut step = step.clone();
        step.retain(|name, _| matches!(name.as_str(), "run" | "call" | "started" | "durationMs"));
        left.insert("step".into(), step.into());
    }
    if let Some(compaction) = object("compaction") {
        let mut kept = only(compaction, &OF_COMPACTION);
        kept.insert("summary".into(), ERASED.into());
        left.insert("compaction".into(), kept.into());
    }
    // What stands in one piece in another part is read by its length there, which is another now.
    if members.contains_key("whole") && !left.contains_key("compaction") {
        left.insert("entry".into(), "meta".into());
        left.insert("whole".into(), json!({ "type": "custom", "customType": "quipu.erased" }));
    }
    for name in ["session", "epoch"] {
        if let Some(Value::Object(kept)) = left.get_mut(name) {
            // Where sections of the system prompt begin, which is another text now.
            kept.remove("context");
            if let Some(Value::Object(inner)) = kept.get_mut("epoch") {
                inner.remove("context");
            }
        }
    }
    let refs = hashes_in(&Value::Object(left.clone()).to_string());
    if !refs.is_empty() {
        let refs: Vec<Value> = refs.into_iter().map(|hash| hash.to_string().into()).collect();
        left.insert("refs".into(), refs.into());
    }
    left
}

/// The hashes that a text names, sorted.
fn hashes_in(text: &str) -> std::collections::BTreeSet<BlobId> {
    let runs = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|run| run.len() == 64);
    runs.filter_map(|run| run.parse().ok()).collect()
}
