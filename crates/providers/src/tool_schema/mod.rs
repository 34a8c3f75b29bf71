//! Schemas of tools as servers take them. A schema comes from anywhere, such as a server of tools: it may be no object, a
//! union, deeper than any parser goes, larger than a window, or lead to itself.
//!
//! What a server takes as it is stays as it is, byte for byte.

mod depth;
mod object;
mod subset;

use std::borrow::Cow;

use quipu_protocol::{Json, ToolSpec};
use serde_json::{Map, Value, json};

use crate::prepare::sendable;

/// Bytes of a schema at most. A larger one is sent without its descriptions, and one that is too large even so without its
/// properties.
pub const SCHEMA_BYTES: usize = 256 << 10;
/// Levels of JSON in a schema at most: what lies deeper may be anything.
pub const SCHEMA_DEPTH: usize = 64;

/// What a server takes as the schema of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaDialect {
    /// JSON Schema whose root is an object.
    JsonSchema,
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
    if dialect == SchemaDialect::Subset && subset::needs_cleaning(&value) {
        value = subset::clean(&value);
        changes.push(SchemaChange::Keywords);
        object::flatten(&mut value);
    }
    if changes.is_empty() {
        return ToolSchema { schema: Cow::Borrowed(schema), changes };
    }
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
    (dialect == SchemaDialect::Subset && subset::needs_cleaning(&value))
        .then_some("it has a keyword that is not taken")
}

/// The schema of a tool that takes any arguments.
fn anything() -> Value {
    json!({ "type": "object", "properties": {} })
}

/// A schema without its texts; where it is too large even so, the names of its first properties alone.
fn smaller(mut value: Value) -> Value {
    without_texts(&mut value);
    if serde_json::to_string(&value).is_ok_and(|text| text.len() <= SCHEMA_BYTES) {
        return value;
    }
    anything()
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

/// Goes through the schemas within a schema: a keyword, and the schema that it holds.
fn each_schema(members: &Map<String, Value>, seen: &mut dyn FnMut(&Value)) {
    for (name, value) in members {
        match (name.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(own),
            ) => {
                own.values().for_each(&mut *seen);
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                all.iter().for_each(&mut *seen);
            }
            ("items", Value::Array(all)) => all.iter().for_each(&mut *seen),
            (
                "items"
                | "additionalProperties"
                | "not"
                | "contains"
                | "propertyNames"
                | "if"
                | "then"
                | "else"
                | "unevaluatedProperties"
                | "unevaluatedItems",
                inner @ Value::Object(_),
            ) => seen(inner),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
