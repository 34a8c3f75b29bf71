//! JSON Schemas in the words of a server that compiles them to a grammar: every object is closed, nothing is recursive, and
//! limits of numbers, texts and lists are left out.

use serde_json::{Map, Value};

/// Nested schemas, followed references included, at most.
const MAX_SCHEMAS: usize = 2_000;
/// Members that may be missing, and places with several types, at most: the documented limits of one request.
const MAX_OPTIONAL: usize = 24;
const MAX_UNIONS: usize = 16;
/// Levels of nesting at most.
const MAX_DEPTH: usize = 32;

/// Taken as they are.
const KEPT: [&str; 3] = ["title", "description", "default"];
/// Left out: an answer that fits without them is checked with them.
const DROPPED: [&str; 20] = [
    "$schema",
    "$id",
    "$comment",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentMediaType",
];
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// The schema in these words; `None` where they cannot say it.
pub(super) fn of(schema: &Value) -> Option<Value> {
    let mut reduction = Reduction { root: schema, schemas: 0, optional: 0, unions: 0 };
    reduction.follow(schema, &mut Vec::new(), 0)?;
    reduction.schema(schema)
}

struct Reduction<'a> {
    root: &'a Value,
    schemas: usize,
    optional: usize,
    unions: usize,
}

impl<'a> Reduction<'a> {
    /// Follows what the schema refers to: nothing leads back to itself, and all of it stays small.
    fn follow(&mut self, value: &'a Value, through: &mut Vec<&'a str>, depth: usize) -> Option<()> {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS || depth > MAX_DEPTH {
            return None;
        }
        match value {
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                    if through.contains(&reference) {
                        return None;
                    }
                    let target = self.target(reference)?;
                    through.push(reference);
                    self.follow(target, through, depth + 1)?;
                    through.pop();
                }
                // Definitions are followed from where they are used.
                let used =
                    members.iter().filter(|(name, _)| !matches!(name.as_str(), "$defs" | "definitions"));
                for (_, member) in used {
                    self.follow(member, through, depth + 1)?;
                }
                Some(())
            }
            Value::Array(all) => {
                all.iter().try_for_each(|one| self.follow(one, through, depth + 1).ok_or(())).ok()
            }
            _ => Some(()),
        }
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        let inside = reference
            .strip_prefix('#')
            .filter(|path| path.starts_with("/$defs/") || path.starts_with("/definitions/"))?;
        self.root.pointer(inside)
    }

    fn all(&mut self, schemas: &Value) -> Option<Value> {
        schemas.as_array()?.iter().map(|schema| self.schema(schema)).collect()
    }

    fn named(&mut self, schemas: &Value) -> Option<Value> {
        let members = schemas.as_object()?.iter();
        let reduced: Option<Map<String, Value>> =
            members.map(|(name, schema)| Some((name.clone(), self.schema(schema)?))).collect();
        reduced.map(Value::Object)
    }

    fn schema(&mut self, schema: &Value) -> Option<Value> {
        let members = schema.as_object()?;
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
        for (name, value) in members {
            match name.as_str() {
                name if KEPT.contains(&name) => put(name, value.clone()),
                name if DROPPED.contains(&name) => {}
                "type" => {
                    self.unions += usize::from(value.is_array());
                    put(name, value.clone());
                }
                "enum" => {
                    let is_plain = |value: &Value| !value.is_array() && !value.is_object();
                    put(name, value.as_array().filter(|all| all.iter().all(is_plain))?.clone().into());
                }
                "const" if !value.is_array() && !value.is_object() => put(name, value.clone()),
                "$ref" => put(name, value.clone()),
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    put(name, value.clone());
                }
                "format" => {}
                "minItems" if matches!(value.as_u64(), Some(0 | 1)) => put(name, value.clone()),
                "minItems" => {}
                "items" => put(name, self.schema(value)?),
                "$defs" | "definitions" | "properties" => put(name, self.named(value)?),
                "anyOf" => {
                    self.unions += 1;
                    put(name, self.all(value)?);
                }
                // That only one of them fits is checked afterwards.
                "oneOf" if !members.contains_key("anyOf") => {
                    self.unions += 1;
                    put("anyOf", self.all(value)?);
                }
                "required" => put(name, value.as_array()?.clone().into()),
                "additionalProperties" if *value == Value::Bool(false) => {}
                _ => return None,
            }
        }
        let types = members.get("type");
        let is_object = types.is_some_and(|types| {
            *types == "object"
                || types.as_array().is_some_and(|types| types.iter().any(|one| one == "object"))
        });
        match members.get("properties").and_then(Value::as_object) {
            Some(properties) => {
                let required = members.get("required").and_then(Value::as_array).map_or(0, Vec::len);
                self.optional += properties.len().saturating_sub(required);
                out.insert("additionalProperties".to_owned(), false.into());
            }
            // An object of any members cannot be said.
            None if is_object => return None,
            None => {}
        }
        (self.optional <= MAX_OPTIONAL && self.unions <= MAX_UNIONS).then_some(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_is_closed_and_without_limits() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {
                "files": { "type": "array", "minItems": 2, "maxItems": 9, "items": { "$ref": "#/$defs/file" } },
                "count": { "type": ["integer", "null"], "minimum": 0, "description": "How many." },
                "at": { "type": "string", "format": "date", "pattern": "^2" },
                "kind": { "oneOf": [{ "const": "a" }, { "enum": ["b", 1, null] }] },
            },
            "required": ["files"],
            "$defs": { "file": {
                "type": "object", "properties": { "path": { "type": "string", "format": "regex", "minLength": 1 } },
                "additionalProperties": false,
            } },
        });
        let expect = json!({
            "type": "object",
            "properties": {
                "files": { "type": "array", "items": { "$ref": "#/$defs/file" } },
                "count": { "type": ["integer", "null"], "description": "How many." },
                "at": { "type": "string", "format": "date" },
                "kind": { "anyOf": [{ "const": "a" }, { "enum": ["b", 1, null] }] },
            },
            "required": ["files"],
            "$defs": { "file": {
                "type": "object", "properties": { "path": { "type": "string" } }, "additionalProperties": false,
            } },
            "additionalProperties": false,
        });
        assert_eq!(of(&schema), Some(expect));
    }

    #[test]
    fn schema_that_cannot_be_said_is_none() {
        let with = |member: Value| json!({ "type": "object", "properties": { "a": member } });
        for member in [
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": {}, "additionalProperties": { "type": "string" } }),
            json!({ "type": "string", "not": { "const": "x" } }),
            json!({ "type": "array", "prefixItems": [{ "type": "string" }] }),
            json!({ "enum": [{ "a": 1 }] }),
            json!({ "$ref": "https://a.example/schema" }),
            json!({ "$ref": "#/$defs/missing" }),
            json!({ "$ref": "#" }),
            json!(true),
        ] {
            assert_eq!(of(&with(member.clone())), None, "{member}");
        }
        let recursive = json!({
            "type": "object", "properties": { "a": { "$ref": "#/$defs/node" } },
            "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } } } },
        });
        assert_eq!(of(&recursive), None);
        let many: Map<String, Value> =
            (0..25).map(|at| (format!("m{at}"), json!({ "type": "string" }))).collect();
        let names: Vec<&String> = many.keys().collect();
        let required = json!({ "type": "object", "properties": many, "required": names });
        assert!(of(&required).is_some() && of(&json!({ "type": "object", "properties": many })).is_none());
        // Each definition uses the next one twice: followed, this is very large.
        let mut definitions = Map::new();
        for at in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            definitions.insert(format!("d{at}"), json!({ "anyOf": [next, next] }));
        }
        definitions.insert("d40".to_owned(), json!({ "type": "string" }));
        let mut large = with(json!({ "$ref": "#/$defs/d0" }));
        large["$defs"] = definitions.into();
        assert_eq!(of(&large), None);
    }
}
