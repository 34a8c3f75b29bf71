//! Whether a schema is one: each keyword has the form that it must have, and references lead somewhere.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::values::cut;
use super::{DEPTH, Schema, pattern};

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// What a keyword holds.
enum Form {
    Part,
    Parts,
    /// A schema, or one for each place.
    PartOrParts,
    /// Schemas, or names of members, by name.
    Named,
    Type,
    Names,
    List,
    Number,
    NumberOrTruth,
    Count,
    Truth,
    Text,
}

fn form(keyword: &str) -> Option<Form> {
    Some(match keyword {
        "additionalProperties"
        | "additionalItems"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Form::Part,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Form::Parts,
        "items" => Form::PartOrParts,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
        | "dependentRequired" | "dependencies" => Form::Named,
        "type" => Form::Type,
        "required" => Form::Names,
        "enum" => Form::List,
        "minimum" | "maximum" | "multipleOf" => Form::Number,
        "exclusiveMinimum" | "exclusiveMaximum" => Form::NumberOrTruth,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => Form::Count,
        "uniqueItems" => Form::Truth,
        "$ref" | "pattern" => Form::Text,
        _ => return None,
    })
}

/// The pointer of the document that begins with these rules, where they name one.
pub(super) fn document<'n>(
    rules: &Map<String, Value>,
    names: &'n HashMap<String, String>,
) -> Option<&'n str> {
    let id = rules.get("$id")?.as_str().filter(|id| !id.starts_with('#'))?;
    names.get(id.trim_end_matches('#')).map(String::as_str)
}

impl Schema {
    /// Takes a schema.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn new(root: Value) -> Result<Self, String> {
        let draft = root["$schema"].as_str().unwrap_or_default();
        let lone_ref =
            ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|name| draft.contains(name));
        let mut schema =
            Self { root: Value::Null, lone_ref, names: HashMap::new(), patterns: HashMap::new() };
        name(&root, "", "", 0, &mut schema.names);
        schema.root = root;
        let mut walk =
            Walk { schema: &schema, patterns: HashMap::new(), seen: HashSet::new(), ahead: Vec::new() };
        walk.ahead.push((&schema.root, String::new(), ""));
        while let Some((part, pointer, base)) = walk.ahead.pop() {
            if walk.seen.insert(pointer.clone()) {
                walk.part(part, &pointer, base)?;
            }
        }
        let patterns = walk.patterns;
        schema.patterns = patterns;
        Ok(schema)
    }

    /// The schema that a reference leads to, its pointer, and that of the document that it is in.
    pub(super) fn target<'b>(
        &'b self,
        reference: &str,
        base: &'b str,
    ) -> Option<(&'b Value, String, &'b str)> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if document.is_empty() { base } else { self.names.get(document)? };
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            format!("{base}{}", decoded(fragment))
        } else {
            self.names.get(&format!("{base}#{fragment}"))?.clone()
        };
        Some((self.root.pointer(&pointer)?, pointer, base))
    }
}

/// `%5B` and its like, as they stand in references.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| char::from(*tail.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high * 16 + low));
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Collects what has a name, wherever it stands.
fn name(value: &Value, pointer: &str, base: &str, depth: usize, names: &mut HashMap<String, String>) {
    if depth == DEPTH {
        return;
    }
    let step = |step: &str| format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                name(value, &step(&at.to_string()), base, depth + 1, names);
            }
        }
        Value::Object(members) => {
            let text = |name: &str| members.get(name).and_then(Value::as_str);
            let mut base = base.to_owned();
            match text("$id").or_else(|| text("id").filter(|_| depth == 0)) {
                // Before 2019 an anchor was written so.
                Some(id) if id.starts_with('#') => {
                    names.entry(format!("{base}{id}")).or_insert_with(|| pointer.to_owned());
                }
                Some(id) => {
                    let id = id.trim_end_matches('#').to_owned();
                    names.entry(id).or_insert_with(|| pointer.to_owned());
                    base = pointer.to_owned();
                }
                None => {}
            }
            for anchor in [text("$anchor"), text("$dynamicAnchor")].into_iter().flatten() {
                names.entry(format!("{base}#{anchor}")).or_insert_with(|| pointer.to_owned());
            }
            for (key, value) in members {
                name(value, &step(key), &base, depth + 1, names);
            }
        }
        _ => {}
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    patterns: HashMap<String, Option<regex::Regex>>,
    seen: HashSet<String>,
    /// Parts that were met and not looked at, their pointers and those of their documents.
    ahead: Vec<(&'a Value, String, &'a str)>,
}

impl<'a> Walk<'a> {
    fn part(&mut self, part: &'a Value, pointer: &str, base: &'a str) -> Result<(), String> {
        let rules = match part {
            Value::Object(rules) => rules,
            Value::Bool(_) => return Ok(()),
            other => return Err(format!("{} is not a schema but {}", place(pointer), short(other))),
        };
        let base = document(rules, &self.schema.names).unwrap_or(base);
        for (keyword, rule) in rules {
            let keyword = keyword.as_str();
            let Some(form) = form(keyword) else { continue };
            let wrong = |wanted: &str| {
                Err(format!("{keyword:?} at {} must be {wanted}, not {}", place(pointer), short(rule)))
            };
            let mut ahead = |steps: &[&str], part: &'a Value| {
                let steps = steps.iter().map(|step| step.replace('~', "~0").replace('/', "~1"));
                let inside = steps.fold(pointer.to_owned(), |all, step| all + "/" + &step);
                self.ahead.push((part, inside, base));
            };
            match (form, rule) {
                (Form::Part | Form::PartOrParts, Value::Object(_) | Value::Bool(_)) => {
                    ahead(&[keyword], rule);
                }
                (Form::Part, _) => return wrong("a schema"),
                (Form::Parts | Form::PartOrParts, Value::Array(parts)) => {
                    for (at, part) in parts.iter().enumerate() {
                        ahead(&[keyword, &at.to_string()], part);
                    }
                }
                (Form::Parts | Form::PartOrParts, _) => return wrong("a list of schemas"),
                (Form::Named, Value::Object(parts)) => {
                    for (name, part) in parts {
                        if keyword == "patternProperties" {
                            self.patterns.entry(name.clone()).or_insert_with(|| pattern::compiled(name));
                        }
                        match part {
                            Value::Array(names) if keyword.starts_with("depend") => {
                                if !names.iter().all(Value::is_string) {
                                    return wrong("names of properties, by name");
                                }
                            }
                            part => ahead(&[keyword, name], part),
                        }
                    }
                }
                (Form::Named, _) => return wrong("an object"),
                (Form::Type, Value::String(name)) if TYPES.contains(&name.as_str()) => {}
                (Form::Type, Value::Array(names))
                    if names.iter().all(|name| name.as_str().is_some_and(|name| TYPES.contains(&name))) => {}
                (Form::Type, _) => return wrong("a type or a list of types"),
                (Form::Names, Value::Array(names)) if names.iter().all(Value::is_string) => {}
                (Form::Names, _) => return wrong("a list of names"),
                (Form::List, Value::Array(_)) => {}
                (Form::List, _) => return wrong("a list"),
                (Form::Number | Form::NumberOrTruth, Value::Number(_))
                | (Form::NumberOrTruth | Form::Truth, Value::Bool(_)) => {}
                (Form::Number | Form::NumberOrTruth, _) => return wrong("a number"),
                (Form::Count, Value::Number(count))
                    if count.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0) => {}
                (Form::Count, _) => return wrong("a count"),
                (Form::Truth, _) => return wrong("true or false"),
                (Form::Text, Value::String(text)) if keyword == "pattern" => {
                    self.patterns.entry(text.clone()).or_insert_with(|| pattern::compiled(text));
                }
                (Form::Text, Value::String(reference)) => match self.schema.target(reference, base) {
                    Some((part, pointer, base)) => self.ahead.push((part, pointer, base)),
                    // The schema of schemas is not here.
                    None if reference.contains("//json-schema.org/") => {}
                    None => {
                        return Err(format!(
                            "{reference:?}, to which \"$ref\" at {} refers, is not in the schema",
                            place(pointer)
                        ));
                    }
                },
                (Form::Text, _) => return wrong("a text"),
            }
        }
        Ok(())
    }
}

fn place(pointer: &str) -> String {
    format!("#{pointer}")
}

/// A value in a message.
fn short(value: &Value) -> String {
    cut(value.to_string(), 100)
}
