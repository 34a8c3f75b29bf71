//! Arguments as models send them, made to fit the schema where what is meant is plain, and checked.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use quipu_protocol::{Json, ToolSpec};
use serde_json::{Map, Number, Value};

use crate::schema::{Complaint, Schema, is_of, names_type};

/// Characters of wrong arguments that are shown.
const SHOWN: usize = 2000;
/// Complaints that are shown.
const COMPLAINTS: usize = 20;
/// Schemas kept compiled.
const CACHED: usize = 256;

/// Why a call's arguments cannot be used. The text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// They do not fit the schema.
    #[error("{report}")]
    Invalid {
        /// What is wrong, and what was received (at most 2,000 characters).
        report: String,
    },
    /// The schema of the tool is none.
    #[error("The schema of tool \"{tool}\" is not valid: {problem}")]
    Schema {
        /// The name of the tool.
        tool: String,
        /// What is wrong.
        problem: String,
    },
}

/// Checks the arguments of a call against the tool's schema.
///
/// Before that: an optional member given as `null` goes; a text that says a number or a truth becomes one, and
/// the other way round; an array or object in a JSON text is taken out of it; one item where a list of them is
/// asked for becomes a list. Members that the schema does not name stay. Arguments that needed none of this come
/// back as the same text.
///
/// # Errors
/// They do not fit, or the schema is not valid.
pub fn validate(spec: &ToolSpec, args: &Json) -> Result<Json, ArgumentsError> {
    let received = args.value();
    let Value::Object(members) = &received else {
        // What was not JSON at all is kept as a JSON text.
        let raw = received.as_str().map_or_else(|| args.get().to_owned(), str::to_owned);
        let complaint = match received {
            Value::String(_) => "the arguments are not valid JSON",
            _ => "the arguments must be a JSON object",
        };
        return Err(report(spec, &[(String::new(), complaint.into())], &raw));
    };
    let rules = spec.parameters.value();
    let mut wanted = Value::Object(members.clone());
    if spec.name == "edit" {
        salvage_edit(&mut wanted, &rules);
    }
    let schema = compiled(spec, &rules)?;
    fit(&mut wanted, &rules, &schema, 0);
    let complaints = schema.complaints(&wanted, COMPLAINTS);
    if !complaints.is_empty() {
        let pretty = serde_json::to_string_pretty(&received).unwrap_or_default();
        return Err(report(spec, &complaints, &pretty));
    }
    Ok(if wanted == received { args.clone() } else { Json::from(wanted) })
}

fn report(spec: &ToolSpec, complaints: &[Complaint], received: &str) -> ArgumentsError {
    let mut text = format!("Validation failed for tool \"{}\":\n", spec.name);
    for (path, message) in complaints {
        let path = if path.is_empty() { "root" } else { path };
        // Writing to a string does not fail.
        writeln!(text, "  - {path}: {message}").ok();
    }
    text.push_str("\nReceived arguments:\n");
    match received.char_indices().nth(SHOWN) {
        Some((cut, _)) => {
            text.push_str(&received[..cut]);
            write!(text, "… ({} bytes in all)", received.len()).ok();
        }
        None => text.push_str(received),
    }
    ArgumentsError::Invalid { report: text }
}

/// A schema is looked through once; tools come and go with sessions, so the cache is bounded.
fn compiled(spec: &ToolSpec, rules: &Value) -> Result<Arc<Schema>, ArgumentsError> {
    static CACHE: LazyLock<Mutex<HashMap<Json, Arc<Schema>>>> = LazyLock::new(Mutex::default);
    if let Some(found) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&spec.parameters) {
        return Ok(found.clone());
    }
    let schema = Schema::new(rules.clone())
        .map_err(|problem| ArgumentsError::Schema { tool: spec.name.clone(), problem })?;
    let schema = Arc::new(schema);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(spec.parameters.clone(), schema.clone());
    Ok(schema)
}

/// An older form of `edit`, which models still send: the texts beside the path instead of in a list.
fn salvage_edit(args: &mut Value, schema: &Value) {
    let names = &schema["properties"];
    if names.get("edits").is_none() || names.get("oldText").is_some() {
        return;
    }
    let Value::Object(members) = args else { return };
    if let (Some(Value::String(_)), Some(Value::String(_))) = (members.get("oldText"), members.get("newText"))
    {
        let mut edit = Map::new();
        for name in ["oldText", "newText"] {
            if let Some(text) = members.shift_remove(name) {
                edit.insert(name.into(), text);
            }
        }
        let edits = members.entry("edits").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(Value::Array(parsed)) = edits.as_str().and_then(|text| serde_json::from_str(text).ok()) {
            *edits = Value::Array(parsed);
        }
        match edits {
            Value::Array(list) => list.push(Value::Object(edit)),
            Value::Object(_) => *edits = Value::Array(vec![edits.take(), Value::Object(edit)]),
            _ => *edits = Value::Array(vec![Value::Object(edit)]),
        }
    }
}

/// Whether the schema names this type, alone or among others.
fn allows(schema: &Value, name: &str) -> bool {
    names_type(&schema["type"], name)
}

fn has_type(value: &Value, schema: &Value) -> bool {
    is_of(value, &schema["type"])
}

/// Deeper than this nothing is changed.
const DEPTH: usize = 64;

fn fit(value: &mut Value, rules: &Value, schema: &Schema, depth: usize) {
    if depth > DEPTH {
        return;
    }
    if rules.get("type").is_some()
        && !has_type(value, rules)
        && let Some(other) = converted(value, rules)
    {
        *value = other;
    }
    match value {
        Value::Object(members) => {
            let Some(properties) = rules["properties"].as_object() else { return };
            let required = |name: &str| {
                rules["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name))
            };
            members.retain(|name, value| {
                let Some(rules) = properties.get(name) else { return true };
                !value.is_null() || required(name) || schema.takes(rules, &Value::Null)
            });
            for (name, value) in members.iter_mut() {
                if let Some(rules) = properties.get(name) {
                    fit(value, rules, schema, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            if rules["items"].is_object() {
                items.iter_mut().for_each(|item| fit(item, &rules["items"], schema, depth + 1));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The value in a type that the schema names, when what is meant is plain.
fn converted(value: &Value, schema: &Value) -> Option<Value> {
    let number = |text: &str| -> Option<Value> {
        match serde_json::from_str::<Value>(text.trim()).ok()? {
            Value::Number(number) => Some(Value::Number(number)).filter(|number| has_type(number, schema)),
            _ => None,
        }
    };
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match value {
        Value::String(text) => {
            let as_number =
                (allows(schema, "number") || allows(schema, "integer")).then(|| number(text)).flatten();
            let as_truth = match text.as_str() {
                "true" | "1" if allows(schema, "boolean") => Some(Value::Bool(true)),
                "false" | "0" if allows(schema, "boolean") => Some(Value::Bool(false)),
                _ => None,
            };
            let nested = || parsed(text).filter(|value| value.is_array() || value.is_object());
            let as_nested = || nested().filter(|value| has_type(value, schema));
            as_number.or(as_truth).or_else(as_nested).or_else(|| {
                nested()
                    .filter(Value::is_object)
                    .or_else(|| Some(value.clone()))
                    .and_then(|v| listed(&v, schema))
            })
        }
        Value::Bool(truth) if allows(schema, "string") => Some(Value::String(truth.to_string())),
        Value::Bool(truth) if allows(schema, "number") || allows(schema, "integer") => {
            Some(Value::Number(Number::from(u8::from(*truth))))
        }
        Value::Number(number) if allows(schema, "string") => Some(Value::String(number.to_string())),
        Value::Number(number) if allows(schema, "boolean") => match number.as_f64() {
            Some(1.0) => Some(Value::Bool(true)),
            Some(0.0) => Some(Value::Bool(false)),
            _ => None,
        },
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => listed(value, schema),
        Value::Null | Value::Array(_) => None,
    }
}

/// One item as a list of one.
fn listed(value: &Value, schema: &Value) -> Option<Value> {
    (allows(schema, "array") && has_type(value, &schema["items"])).then(|| Value::Array(vec![value.clone()]))
}
