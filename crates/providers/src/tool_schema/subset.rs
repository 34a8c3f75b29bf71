//! The part of JSON Schema that some servers take: references are replaced by what they refer to, constants become lists of
//! one value, and keywords that are not taken go.

use serde_json::{Map, Value, json};

use super::object::{distinct, listed};
use super::{Expansion, each_schema};

/// Keywords that are not taken.
const DROPPED: &[&str] = &[
    "patternProperties",
    "$schema",
    "$id",
    "$ref",
    "$defs",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$comment",
    "definitions",
    "examples",
    "multipleOf",
    "pattern",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "propertyNames",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "const",
    "oneOf",
    "allOf",
];
/// Keywords that some of these servers take: they go with the others, and are no reason to change a schema.
const DROPPED_TOO: &[&str] = &[
    "additionalProperties",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "format",
    "minItems",
    "maxItems",
];
/// Levels of schemas that are cleaned; a part of the levels of JSON.
const MOST_LEVELS: usize = 24;

/// Whether a schema has something that is not taken.
pub(super) fn needs_cleaning(value: &Value) -> bool {
    let Value::Object(members) = value else { return value.is_boolean() };
    if members.keys().any(|name| DROPPED.contains(&name.as_str())) {
        return true;
    }
    if members.get("type").is_some_and(|name| !name.is_string()) {
        return true;
    }
    if members
        .get("anyOf")
        .is_some_and(|variants| variants.as_array().is_none_or(|all| all.iter().any(is_null)))
    {
        return true;
    }
    // A type beside a union says the same twice.
    if members.contains_key("anyOf") && members.contains_key("type") {
        return true;
    }
    let mut found = false;
    each_schema(members, &mut |inner| found |= needs_cleaning(inner));
    found
}

/// The schema in keywords that are taken.
pub(super) fn clean(value: &Value) -> Value {
    let mut cleaner = Cleaner { root: value, open: Vec::new(), expansion: Expansion::default() };
    cleaner.schema(value, 0)
}

struct Cleaner<'a> {
    root: &'a Value,
    /// The references that are being replaced: one of them within itself leads nowhere.
    open: Vec<String>,
    expansion: Expansion,
}

impl Cleaner<'_> {
    fn schema(&mut self, value: &Value, level: usize) -> Value {
        let Value::Object(members) = value else { return json!({}) };
        if level > MOST_LEVELS {
            return json!({});
        }
        if let Some(Value::String(reference)) = members.get("$ref") {
            return self.referred(reference, members, level);
        }
        let mut out = Map::new();
        for (name, member) in members {
            match name.as_str() {
                "properties" => {
                    let own = member.as_object().into_iter().flatten();
                    let own: Map<String, Value> =
                        own.map(|(name, inner)| (name.clone(), self.schema(inner, level + 1))).collect();
                    out.insert(name.clone(), Value::Object(own));
                }
                "items" => {
                    let inner = match member {
                        Value::Array(all) => all.first().cloned().unwrap_or(Value::Null),
                        other => other.clone(),
                    };
                    out.insert(name.clone(), self.schema(&inner, level + 1));
                }
                "prefixItems" | "anyOf" | "type" | "required" => {}
                other if DROPPED.contains(&other) || DROPPED_TOO.contains(&other) => {}
                _ => {
                    out.insert(name.clone(), member.clone());
                }
            }
        }
        if let Some(constant) = members.get("const") {
            out.insert("enum".into(), json!([constant]));
        }
        match members.get("type") {
            Some(Value::Array(types)) => {
                let mut some = types.iter().filter(|name| name.as_str() != Some("null"));
                out.extend(some.find(|name| name.is_string()).map(|name| ("type".to_owned(), name.clone())));
            }
            Some(name @ Value::String(_)) => drop(out.insert("type".into(), name.clone())),
            _ => {}
        }
        self.union(members, &mut out, level);
        if out.contains_key("anyOf") {
            // Parts of it may bring one each. The type is that of the alternatives.
            out.shift_remove("type");
        }
        if let Some(Value::Object(own)) = out.get("properties") {
            let required = members.get("required").and_then(Value::as_array).into_iter().flatten();
            let required: Vec<Value> = required
                .filter(|name| name.as_str().is_some_and(|name| own.contains_key(name)))
                .cloned()
                .collect();
            if !required.is_empty() {
                out.insert("required".into(), Value::Array(required));
            }
        }
        Value::Object(out)
    }

    /// Alternatives: those of literals are a list, nothing is no alternative, and one alone stands for itself.
    fn union(&mut self, members: &Map<String, Value>, out: &mut Map<String, Value>, level: usize) {
        for part in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(inner) = self.schema(part, level + 1) {
                merge(out, inner);
            }
        }
        let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|union| members.get(union)?.as_array());
        let alternatives: Vec<&Value> = alternatives.flatten().filter(|one| !is_null(one)).collect();
        if alternatives.is_empty() {
            return;
        }
        let cleaned: Vec<Value> = alternatives.iter().map(|one| self.schema(one, level + 1)).collect();
        if let Some((kind, values)) = literals(&cleaned) {
            out.shift_remove("anyOf");
            out.insert("type".into(), kind.into());
            out.insert("enum".into(), Value::Array(values));
            return;
        }
        match <[Value; 1]>::try_from(cleaned) {
            Ok([Value::Object(alone)]) => merge(out, alone),
            Ok(_) => {}
            Err(cleaned) => drop(out.insert("anyOf".into(), Value::Array(cleaned))),
        }
    }

    fn referred(&mut self, reference: &str, members: &Map<String, Value>, level: usize) -> Value {
        let kept = |names: &[&str]| -> Map<String, Value> {
            let kept = members.iter().filter(|(name, _)| names.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let root = self.root;
        let Some(target) = reference.strip_prefix('#').and_then(|path| root.pointer(path)) else {
            return Value::Object(kept(&["description", "title", "default"]));
        };
        if self.open.iter().any(|open| open == reference) || !self.expansion.takes(target) {
            return json!({});
        }
        self.open.push(reference.to_owned());
        let mut made = self.schema(target, level + 1);
        self.open.pop();
        if let Value::Object(made) = &mut made {
            for (name, value) in kept(&["description", "title", "default"]) {
                made.insert(name, value);
            }
        }
        made
    }
}

/// Adds what is not there yet; properties and required names of both.
pub(super) fn merge(out: &mut Map<String, Value>, inner: Map<String, Value>) {
    for (name, value) in inner {
        match (name.as_str(), out.get_mut(&name), value) {
            ("properties", Some(Value::Object(own)), Value::Object(more)) => {
                for (name, schema) in more {
                    own.entry(name).or_insert(schema);
                }
            }
            ("required", Some(Value::Array(own)), Value::Array(more)) => {
                own.extend(more);
                *own = distinct(std::mem::take(own));
            }
            (_, Some(_), _) => {}
            (_, None, value) => drop(out.insert(name, value)),
        }
    }
}

/// Whether an alternative is that there is nothing.
pub(super) fn is_null(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("null")
        || value.get("const").is_some_and(Value::is_null)
        || value.get("enum").and_then(Value::as_array).is_some_and(|all| all.len() == 1 && all[0].is_null())
}

/// The values of alternatives that are all lists of one type.
pub(super) fn literals(all: &[Value]) -> Option<(&'static str, Vec<Value>)> {
    let kind = |value: &Value| match value {
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        _ => None,
    };
    let mut values: Vec<Value> = Vec::new();
    for one in all {
        values.extend(listed(one)?);
    }
    let values = distinct(values);
    let first = kind(values.first()?)?;
    values.iter().all(|value| kind(value) == Some(first)).then_some((first, values))
}
