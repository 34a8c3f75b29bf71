//! What is left of a node when its content is erased: what the graph, the order of calls and the sums of costs need.

use quipu_dag::{Blob, Text, Value, canonical};

use crate::own_part::KIND;

/// Members of an object.
type Members = Vec<(Text, Value)>;

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
/// Members of `step` in our part that are no content.
const OF_STEP: [&str; 4] = ["run", "call", "started", "durationMs"];
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
    let value = Value::parse(&blob.content).ok();
    let value = value.filter(|value| matches!(value, Value::Object(_)));
    let left = match (blob.kind.as_str(), value) {
        ("tool_call", Some(value)) => {
            let mut left = only(&value, &["id", "name"]);
            left.push(("arguments".into(), Value::Object(Vec::new())));
            Some(left)
        }
        ("tool_result", Some(value)) => {
            let mut left = only(&value, &["toolCallId", "toolName", "isError"]);
            left.push(("content".into(), said()));
            Some(left)
        }
        ("pi_meta" | "pi_entry", Some(value)) => Some(entry(&value)),
        (KIND, value) => Some(own(&value.unwrap_or(Value::Null))),
        _ => None,
    };
    match left {
        Some(left) => Blob::from_canonical(blob.kind.clone(), canonical(&Value::Object(left))),
        None => Blob::string(blob.kind.clone(), ERASED),
    }
}

/// The part of which nothing is left but its type: where something is to go that [`erased_part`] keeps.
pub fn emptied_part(blob: &Blob) -> Blob {
    match blob.kind.as_str() {
        KIND => Blob::from_canonical(KIND, canonical(&Value::Object(own(&Value::Null)))),
        kind => Blob::string(kind, ERASED),
    }
}

/// The content of a message.
fn said() -> Value {
    let text = [("text", Value::from(ERASED)), ("type", Value::from("text"))];
    Value::Array(vec![Value::object(text)])
}

fn only(value: &Value, names: &[&str]) -> Members {
    names.iter().filter_map(|name| Some(((*name).into(), value.get(name)?.clone()))).collect()
}

fn set(members: &mut Members, name: &str, value: Value) {
    members.retain(|(known, _)| known != name);
    members.push((name.into(), value));
}

fn has(members: &Members, name: &str) -> bool {
    members.iter().any(|(known, _)| known == name)
}

/// An entry as other programs read it.
fn entry(value: &Value) -> Members {
    let mut left = only(value, &OF_ENTRY);
    if value.get("summary").is_some() {
        set(&mut left, "summary", ERASED.into());
    }
    if let Some(message @ Value::Object(_)) = value.get("message") {
        let mut inner = only(message, &["role", "timestamp", "toolCallId", "toolName"]);
        set(&mut inner, "content", said());
        set(&mut left, "message", Value::Object(inner));
    } else if let Some(role) = value.get("role") {
        set(&mut left, "role", role.clone());
    }
    left
}

/// Our part.
fn own(value: &Value) -> Members {
    let object = |name: &str| value.get(name).filter(|value| matches!(value, Value::Object(_)));
    let mut left = only(value, &["v", "entry", "provenance", "merge", "plain", "session", "epoch"]);
    if !has(&left, "v") {
        set(&mut left, "v", Value::Number(1.0));
    }
    if !has(&left, "entry") {
        set(&mut left, "entry", "meta".into());
    }
    if let Some(message) = object("message") {
        set(&mut left, "message", Value::Object(only(message, &OF_MESSAGE)));
    }
    if let Some(step) = object("step") {
        let mut kept = only(step, &OF_STEP);
        for (_, call) in kept.iter_mut().filter(|(name, _)| name == "call") {
            without_headers(call);
        }
        set(&mut left, "step", Value::Object(kept));
    }
    if let Some(compaction) = object("compaction") {
        let mut kept = only(compaction, &OF_COMPACTION);
        set(&mut kept, "summary", ERASED.into());
        for (_, checkpoint) in kept.iter_mut().filter(|(name, _)| name == "checkpoint") {
            without_context(checkpoint);
        }
        set(&mut left, "compaction", Value::Object(kept));
    } else if value.get("whole").is_some() {
        // What stands in one piece in another part is read by its length there, which is another now.
        set(&mut left, "entry", "meta".into());
        let whole = [("customType", Value::from("quipu.erased")), ("type", Value::from("custom"))];
        set(&mut left, "whole", Value::object(whole));
    }
    for (name, value) in &mut left {
        // Where sections of the system prompt begin, which is another text now.
        if name == "session" || name == "epoch" {
            without_context(value);
        }
    }
    // Those of its hashes that are still named.
    let Some(Value::Array(refs)) = value.get("refs") else { return left };
    let text = canonical(&Value::Object(left.clone()));
    let named = |hash: &&Value| hash.as_text().and_then(Text::as_str).is_some_and(|hash| text.contains(hash));
    let refs: Vec<Value> = refs.iter().filter(named).cloned().collect();
    if !refs.is_empty() {
        set(&mut left, "refs", Value::Array(refs));
    }
    left
}

/// Headers that hooks set may say anything; their names stay.
fn without_headers(call: &mut Value) {
    let Value::Object(members) = call else { return };
    for (name, value) in members {
        if name != "headers" {
            continue;
        }
        match value {
            Value::Object(headers) => headers.iter_mut().for_each(|(_, value)| *value = ERASED.into()),
            value => *value = Value::Object(Vec::new()),
        }
    }
}

fn without_context(value: &mut Value) {
    let Value::Object(members) = value else { return };
    members.retain(|(name, _)| name != "context");
    for (name, value) in members {
        if name == "epoch" {
            without_context(value);
        }
    }
}
