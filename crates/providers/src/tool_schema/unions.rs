//! Schemas without alternatives, which some servers do not take: what all alternatives have in common, or one of them,
//! stands for them.

use serde_json::{Map, Value, json};

use super::object;
use super::subset::{is_null, literals, merge};
use super::{Expansion, each_schema, each_schema_mut};

/// Keywords that are not taken.
const DROPPED: [&str; 2] = ["anyOf", "oneOf"];
/// Levels of schemas that are cleaned; a part of the levels of JSON.
const MOST_LEVELS: usize = 32;

/// Whether a schema has alternatives.
pub(super) fn has(value: &Value) -> bool {
    let Value::Object(members) = value else { return false };
    let mut found = DROPPED.iter().any(|name| members.contains_key(*name));
    each_schema(members, &mut |inner| found |= has(inner));
    found
}

/// The schema without alternatives.
pub(super) fn without(value: &Value) -> Value {
    let mut out = value.clone();
    Cleaner { root: value, open: Vec::new(), expansion: Expansion::default() }.clean(&mut out, 0);
    out
}

struct Cleaner<'a> {
    /// What references lead into.
    root: &'a Value,
    /// The references that are being replaced: one of them within itself leads nowhere.
    open: Vec<String>,
    expansion: Expansion,
}

impl Cleaner<'_> {
    fn clean(&mut self, value: &mut Value, level: usize) {
        let Value::Object(members) = value else { return };
        if level > MOST_LEVELS {
            *value = json!({});
            return;
        }
        each_schema_mut(members, &mut |inner| self.clean(inner, level + 1));
        let mut alternatives: Vec<Value> = Vec::new();
        for union in DROPPED {
            if let Some(Value::Array(own)) = members.shift_remove(union) {
                alternatives.extend(own.into_iter().filter(|one| one.is_object() && !is_null(one)));
            }
        }
        // One alternative stands for itself, and may go on to refer to another schema.
        if alternatives.len() > 1 {
            alternatives.iter_mut().for_each(|one| self.resolve(one, level));
            alternatives.retain(|one| !is_null(one));
        }
        if let Value::Object(one) = united(members, alternatives) {
            // The one type says more than several.
            if members.get("type").is_some_and(|kind| !kind.is_string()) && one.contains_key("type") {
                members.shift_remove("type");
            }
            merge(members, one);
        }
    }

    /// Puts what an alternative refers to in its place; nothing for what leads to itself or is too much.
    fn resolve(&mut self, one: &mut Value, level: usize) {
        let Some(Value::String(reference)) = one.get("$ref") else { return };
        let reference = reference.clone();
        let root = self.root;
        let target = reference.strip_prefix('#').and_then(|path| root.pointer(path));
        let target = target.filter(|_| !self.open.contains(&reference));
        let mut made = match target {
            Some(target) if self.expansion.takes(target) => target.clone(),
            _ => json!({}),
        };
        self.open.push(reference);
        self.clean(&mut made, level + 1);
        // What it refers to may be a reference again.
        self.resolve(&mut made, level + 1);
        self.open.pop();
        *one = made;
    }
}

/// What stands for alternatives beside these members.
fn united(members: &Map<String, Value>, mut alternatives: Vec<Value>) -> Value {
    if alternatives.len() < 2 {
        return alternatives.pop().unwrap_or_default();
    }
    if let Some((kind, values)) = literals(&alternatives) {
        return json!({ "type": kind, "enum": values });
    }
    let kinds: Vec<Option<&str>> = alternatives.iter().map(kind).collect();
    let own = members.get("type").and_then(Value::as_str);
    let first = kinds.iter().flatten().next().copied();
    match own.or(first) {
        // What has properties is an object, whatever else it says.
        Some("object") if kinds.iter().all(|kind| matches!(kind, Some("object") | None)) => {
            let mut both = json!({ "anyOf": alternatives });
            object::flatten(&mut both);
            both
        }
        // The type stands already.
        Some(_) if own.is_some() => Value::Null,
        Some("array") if kinds.iter().all(|kind| *kind == Some("array")) => {
            json!({ "type": "array", "items": {} })
        }
        Some(same) if kinds.iter().all(|kind| *kind == Some(same)) => json!({ "type": same }),
        Some(_) => alternatives.into_iter().find(|one| kind(one).is_some()).unwrap_or_default(),
        None => Value::Null,
    }
}

/// The type of a schema.
fn kind(value: &Value) -> Option<&str> {
    match value.get("type") {
        Some(Value::String(kind)) => Some(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ if value.get("properties").is_some_and(Value::is_object) => Some("object"),
        _ => None,
    }
}
