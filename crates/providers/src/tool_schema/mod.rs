//! Schemas of tools as servers take them. A schema comes from anywhere, such as a server of tools: it may be no object, a
//! union, deeper than any parser goes, larger than a window, or lead to itself.
//!
//! What a server takes as it is stays as it is, byte for byte.

mod depth;
mod object;
mod sizes;
mod subset;
mod unions;

use std::borrow::Cow;

use quipu_protocol::{Json, ToolSpec};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::prepare::sendable;

/// Bytes of a schema at most. A larger one is sent without its descriptions, then without its long lists of values, and one
/// that is too large even so without its properties.
pub const SCHEMA_BYTES: usize = 256 << 10;
/// Levels of JSON in a schema at most: what lies deeper may be anything.
pub const SCHEMA_DEPTH: usize = 64;

/// Values of a list at most, where a schema is too large.
const MOST_VALUES: usize = 64;

/// What a server takes as the schema of a tool. The names are those of `toolSchema` in `models.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchemaDialect {
    /// JSON Schema whose root is an object.
    JsonSchema,
    /// JSON Schema without bounds on the length of strings and lists.
    WithoutSizes,
    /// JSON Schema without alternatives (`anyOf`, `oneOf`).
    WithoutUnions,
    /// A part of it, without references, constants, negations and patterns.
    Subset,
}

/// What was changed of a schema before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemaChange {
    /// It is no JSON object, so the tool takes anything.
    NotASchema,
    /// It was larger than [`SCHEMA_BYTES`].
    TooLarge,
    /// It was deeper than [`SCHEMA_DEPTH`].
    TooDeep,
    /// Its root is made an object.
    Root,
    /// Keywords that the server does not take are left out or said otherwise.
    Keywords,
    /// One schema stands for alternatives.
    Unions,
}

impl SchemaDialect {
    /// Whether a schema whose root is an object has something that is not taken.
    fn refuses(self, value: &Value) -> bool {
        match self {
            Self::JsonSchema => false,
            Self::WithoutSizes => sizes::has(value),
            Self::WithoutUnions => unions::has(value),
            Self::Subset => subset::needs_cleaning(value),
        }
    }

    /// Says a schema whose root is an object in keywords that are taken; what was changed, if anything.
    fn clean(self, value: &mut Value) -> Option<SchemaChange> {
        if !self.refuses(value) {
            return None;
        }
        let change = match self {
            Self::JsonSchema => return None,
            Self::WithoutSizes => {
                sizes::drop_from(value);
                SchemaChange::Keywords
            }
            Self::WithoutUnions => {
                *value = unions::without(value);
                SchemaChange::Unions
            }
            Self::Subset => {
                *value = subset::clean(value);
                SchemaChange::Keywords
            }
        };
        object::flatten(value);
        Some(change)
    }
}

impl SchemaChange {
    /// In a few words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotASchema => "it is no schema, so any arguments are taken",
            Self::TooLarge => "it is too large, so parts are left out",
            Self::TooDeep => "it is too deep, so its inner parts are left out",
            Self::Root => "its root is made an object",
            Self::Keywords => "keywords are left out or said otherwise",
            Self::Unions => "one schema stands for alternatives",
        }
    }
}

/// A schema as a server takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSchema<'a> {
    /// The schema.
    pub schema: Cow<'a, Json>,
    /// What was changed, in order; nothing where it is sent as it is.
    pub changes: Vec<SchemaChange>,
}

/// A schema as a server takes it: an object at its root, within the limits, in the keywords of the dialect.
pub fn tool_schema(schema: &Json, dialect: SchemaDialect) -> ToolSchema<'_> {
    let mut changes = Vec::new();
    let text = depth::cut(schema.get(), SCHEMA_DEPTH);
    if matches!(text, Cow::Owned(_)) {
        changes.push(SchemaChange::TooDeep);
    }
    let mut value = Json::parse(&text).map(|json| json.value()).unwrap_or_default();
    if !value.is_object() {
        value = anything();
        changes.push(SchemaChange::NotASchema);
    }
    // References are resolved and unions flattened in what is small.
    if text.len() > SCHEMA_BYTES {
        value = smaller(value);
        changes.push(SchemaChange::TooLarge);
    }
    if object::flatten(&mut value) {
        changes.push(SchemaChange::Root);
    }
    changes.extend(dialect.clean(&mut value));
    if changes.is_empty() {
        return ToolSchema { schema: Cow::Borrowed(schema), changes };
    }
    drop_lost_references(&mut value);
    // It may have grown by what it referred to, in levels too.
    let made = Json::of(&value).unwrap_or_else(|_| Json::object());
    let made = match depth::cut(made.get(), SCHEMA_DEPTH) {
        text if text.len() > SCHEMA_BYTES => Json::from(anything()),
        Cow::Borrowed(_) => made,
        Cow::Owned(text) => Json::parse(&text).unwrap_or_else(|_| Json::from(anything())),
    };
    changes.dedup();
    ToolSchema { schema: Cow::Owned(made), changes }
}

/// The schema of a tool as it is written into a request.
pub(crate) fn sent(tool: &ToolSpec, dialect: SchemaDialect) -> Json {
    sendable(&tool_schema(&tool.parameters, dialect).schema)
}

/// What is wrong with a schema that was made for a dialect; for tests and checks of other programs' schemas.
pub fn schema_problem(schema: &Json, dialect: SchemaDialect) -> Option<&'static str> {
    if schema.get().len() > SCHEMA_BYTES {
        return Some("it is too large");
    }
    if depth::of(schema.get()) > SCHEMA_DEPTH {
        return Some("it is too deep");
    }
    let value = schema.value();
    let Some(root) = value.as_object() else { return Some("it is no object") };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Some("its root is no object");
    }
    if object::UNIONS.iter().any(|union| root.contains_key(*union)) {
        return Some("its root is a union");
    }
    dialect.refuses(&value).then_some("it has a keyword that is not taken")
}

/// The schema of a tool that takes any arguments.
fn anything() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// A schema without its texts; where it is too large even so, without long lists of values; and else without anything.
fn smaller(mut value: Value) -> Value {
    let fits = |value: &Value| serde_json::to_string(value).is_ok_and(|text| text.len() <= SCHEMA_BYTES);
    without_texts(&mut value);
    if fits(&value) {
        return value;
    }
    without_long_lists(&mut value);
    if fits(&value) { value } else { anything() }
}

/// Takes out lists of values that nobody reads to their end.
fn without_long_lists(value: &mut Value) {
    let Value::Object(members) = value else { return };
    let is_long = |value: &Value| value.as_array().is_some_and(|values| values.len() > MOST_VALUES);
    members.retain(|name, value| name != "enum" || !is_long(value));
    each_schema_mut(members, &mut without_long_lists);
}

/// Takes out references to what is no longer there: a server refuses all tools for one of them.
fn drop_lost_references(value: &mut Value) {
    if has_lost_reference(value, value) {
        let root = value.clone();
        drop_lost(value, &root);
    }
}

fn is_lost(reference: &Value, root: &Value) -> bool {
    let path = reference.as_str().and_then(|reference| reference.strip_prefix('#'));
    path.is_some_and(|path| path.starts_with('/') && root.pointer(path).is_none())
}

fn has_lost_reference(value: &Value, root: &Value) -> bool {
    let Value::Object(members) = value else { return false };
    let mut found = members.get("$ref").is_some_and(|reference| is_lost(reference, root));
    each_schema(members, &mut |inner| found |= has_lost_reference(inner, root));
    found
}

fn drop_lost(value: &mut Value, root: &Value) {
    let Value::Object(members) = value else { return };
    members.retain(|name, reference| name != "$ref" || !is_lost(reference, root));
    each_schema_mut(members, &mut |inner| drop_lost(inner, root));
}

/// Takes out what only explains. The levels are few by now.
fn without_texts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if name == "properties" || name == "$defs" || name == "definitions" {
                    // Its members are names of the tool's own.
                    if let Value::Object(own) = member {
                        own.values_mut().for_each(without_texts);
                    }
                } else {
                    without_texts(member);
                }
            }
            for text in ["description", "title", "examples", "default", "$comment"] {
                members.retain(|name, _| name != text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_texts),
        _ => {}
    }
}

/// What a keyword holds.
enum Holds {
    /// Schemas by names of the tool's own.
    Named,
    /// Schemas in a list, or one.
    Schemas,
    /// What is no schema.
    Other,
}

impl Holds {
    fn of(keyword: &str) -> Self {
        match keyword {
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => Self::Named,
            "anyOf"
            | "oneOf"
            | "allOf"
            | "prefixItems"
            | "items"
            | "additionalProperties"
            | "not"
            | "contains"
            | "propertyNames"
            | "if"
            | "then"
            | "else"
            | "unevaluatedProperties"
            | "unevaluatedItems" => Self::Schemas,
            _ => Self::Other,
        }
    }
}

/// Goes through the schemas within a schema.
fn each_schema(members: &Map<String, Value>, seen: &mut dyn FnMut(&Value)) {
    for (name, value) in members {
        match (Holds::of(name), value) {
            (Holds::Named, Value::Object(own)) => own.values().for_each(&mut *seen),
            (Holds::Schemas, Value::Array(all)) => all.iter().for_each(&mut *seen),
            (Holds::Schemas, inner @ Value::Object(_)) => seen(inner),
            _ => {}
        }
    }
}

/// As [`each_schema`], to change them.
fn each_schema_mut(members: &mut Map<String, Value>, change: &mut dyn FnMut(&mut Value)) {
    for (name, value) in members {
        match (Holds::of(name), value) {
            (Holds::Named, Value::Object(own)) => own.values_mut().for_each(&mut *change),
            (Holds::Schemas, Value::Array(all)) => all.iter_mut().for_each(&mut *change),
            (Holds::Schemas, inner @ Value::Object(_)) => change(inner),
            _ => {}
        }
    }
}

/// How much may still be put in the place of references: where one schema refers to another twice, and that does again,
/// they double.
struct Expansion {
    left: usize,
}

impl Default for Expansion {
    fn default() -> Self {
        Self { left: SCHEMA_BYTES / 2 }
    }
}

impl Expansion {
    /// Whether there is room for one more. Once there is none, there is none for smaller ones either.
    fn takes(&mut self, target: &Value) -> bool {
        /// About the bytes of a value; more than the limit where that is reached.
        fn weight(value: &Value, limit: usize) -> usize {
            let inner = |values: &mut dyn Iterator<Item = (usize, &Value)>| {
                let mut sum = 2;
                for (name, value) in values {
                    sum += name + weight(value, limit.saturating_sub(sum));
                    if sum > limit {
                        break;
                    }
                }
                sum
            };
            match value {
                Value::String(text) => text.len() + 2,
                Value::Array(all) => inner(&mut all.iter().map(|value| (1, value))),
                Value::Object(all) => inner(&mut all.iter().map(|(name, value)| (name.len() + 4, value))),
                _ => 4,
            }
        }
        let weight = weight(target, self.left);
        let has_room = weight <= self.left;
        self.left = if has_room { self.left - weight } else { 0 };
        has_room
    }
}

#[cfg(test)]
mod tests;
