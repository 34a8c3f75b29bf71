//! What a server declares: tools, checked and cleaned before a person or a model reads them.

use std::collections::{BTreeMap, HashSet};

use quipu_protocol::{Json, ToolSpec, hex};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::limits::{DEFINITION_BYTES, DESCRIPTION_BYTES};
use crate::visible::{is_invisible, one_line, stripped};

/// Bytes of the name of a tool, as the server has it.
const NAME_BYTES: usize = 128;
/// Bytes of a name that models take.
const MODEL_NAME_BYTES: usize = 64;
/// Names of tools of servers begin so.
pub(crate) const PREFIX: &str = "mcp__";
/// The members that make a definition: a change of one is another definition.
const MEMBERS: &[&str] = &["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The server's name for it.
    pub name: String,
    /// Its description as the server wrote it: hostile until it is made visible.
    pub description: String,
    /// The whole definition as the server wrote it.
    pub raw: Json,
    /// SHA-256 of its canonical form, in hexadecimal digits.
    pub hash: String,
    /// Whether it has characters that a person does not see.
    pub is_suspicious: bool,
    /// Without such characters.
    parameters: Json,
}

/// Why a definition is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionIssue {
    /// The server's name of the tool, made visible; its place where it has none.
    pub tool: String,
    /// What is wrong, in one line.
    pub why: String,
}

impl Definition {
    /// Reads a definition; `place` names one that has no name.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn read(raw: &str, place: usize) -> Result<Self, DefinitionIssue> {
        let unnamed = format!("tool {place}");
        let issue = |tool: &str, why: &str| DefinitionIssue { tool: one_line(tool, 80), why: why.to_owned() };
        if raw.len() > DEFINITION_BYTES {
            let why = format!("its definition has {} bytes; the limit is {DEFINITION_BYTES}", raw.len());
            return Err(issue(&unnamed, &why));
        }
        // Also one that is nested too deeply.
        let value: Value = serde_json::from_str(raw).map_err(|error| issue(&unnamed, &error.to_string()))?;
        let name = value["name"].as_str().unwrap_or_default();
        if name.is_empty()
            || name.len() > NAME_BYTES
            || name.chars().any(|c| c.is_whitespace() || is_invisible(c))
        {
            return Err(issue(
                if name.is_empty() { &unnamed } else { name },
                "its name must have 1 to 128 bytes and no white space or invisible characters",
            ));
        }
        let Value::Object(schema) = &value["inputSchema"] else {
            return Err(issue(name, "it has no inputSchema that is an object"));
        };
        let mut schema = schema.clone();
        schema.entry("type").or_insert_with(|| "object".into());
        if schema["type"] != "object" {
            return Err(issue(name, "the type of its inputSchema is not `object`"));
        }
        let members: Map<String, Value> = MEMBERS
            .iter()
            .filter_map(|member| Some(((*member).to_owned(), value.get(*member)?.clone())))
            .collect();
        let raw = Json::from(Value::Object(members.clone()));
        let hash = quipu_dag::hash_json(raw.get()).map_err(|error| issue(name, &error.to_string()))?;
        let description = value["description"].as_str().or(value["title"].as_str()).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            description: description.to_owned(),
            raw,
            hash: hex(&hash),
            is_suspicious: is_suspicious(&Value::Object(members)),
            parameters: Json::from(cleaned(&Value::Object(schema))),
        })
    }

    /// The declaration for the model under a name: without characters that a person does not see.
    pub fn spec(&self, name: &str) -> ToolSpec {
        let mut description = stripped(&self.description);
        if description.len() > DESCRIPTION_BYTES {
            description.truncate(description.floor_char_boundary(DESCRIPTION_BYTES));
            description.push('…');
        }
        ToolSpec { name: name.to_owned(), description, parameters: self.parameters.clone() }
    }
}

/// Reads the definitions of a server. Of two with one name the first counts.
pub(crate) fn definitions<'a>(
    raw: impl Iterator<Item = &'a RawValue>,
) -> (Vec<Definition>, Vec<DefinitionIssue>) {
    let (mut found, mut issues, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    for (place, raw) in raw.enumerate() {
        match Definition::read(raw.get(), place + 1) {
            Ok(one) if names.insert(one.name.clone()) => found.push(one),
            Ok(one) => issues.push(DefinitionIssue {
                tool: one_line(&one.name, 80),
                why: "the server lists two tools with this name; the first counts".into(),
            }),
            Err(issue) => issues.push(issue),
        }
    }
    (found, issues)
}

/// The name of a tool for the model, before it is known whether another has it: `mcp__SERVER__TOOL`, with at most 64 letters,
/// digits, `_` and `-`.
pub fn tool_name(server: &str, tool: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = format!("{PREFIX}{server}__{tool}").chars().map(fit).collect();
    if name.len() <= MODEL_NAME_BYTES { name } else { distinct(&name, server, tool) }
}

/// Names of tools, no two the same.
pub(crate) fn tool_names<'a>(tools: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let tools: Vec<(&str, &str)> = tools.collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (server, tool) in &tools {
        *counts.entry(tool_name(server, tool)).or_default() += 1;
    }
    let name = |(server, tool): &(&str, &str)| {
        let name = tool_name(server, tool);
        if counts.get(&name) == Some(&1) { name } else { distinct(&name, server, tool) }
    };
    tools.iter().map(name).collect()
}

/// The name with a few digits that only this tool has.
fn distinct(name: &str, server: &str, tool: &str) -> String {
    let hash = hex(&quipu_dag::sha256(format!("{server}\n{tool}").as_bytes()));
    let most = MODEL_NAME_BYTES - 9;
    format!("{}_{}", &name[..name.len().min(most)], &hash[..8])
}

fn is_suspicious(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().any(is_invisible),
        Value::Array(items) => items.iter().any(is_suspicious),
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.chars().any(is_invisible) || is_suspicious(value))
        }
        _ => false,
    }
}

/// All texts without characters that a person does not see.
fn cleaned(value: &Value) -> Value {
    match value {
        Value::String(text) => stripped(text).into(),
        Value::Array(items) => items.iter().map(cleaned).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (stripped(name), cleaned(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Definition, DefinitionIssue> {
        Definition::read(&value.to_string(), 1)
    }

    #[test]
    fn names_are_sanitised_unique_and_short() {
        assert_eq!(tool_name("files", "read"), "mcp__files__read");
        assert_eq!(tool_name("my.files", "read/all é"), "mcp__my_files__read_all__");
        let long = tool_name("server", &"x".repeat(100));
        assert_eq!((long.len(), &long[..14]), (64, "mcp__server__x"));
        assert_ne!(long, tool_name("server", &"x".repeat(101)));
        let names = tool_names([("a", "x.y"), ("a", "x_y"), ("a", "z")].into_iter());
        assert!(names[0] != names[1] && names[2] == "mcp__a__z", "{names:?}");
        assert!(names[0].starts_with("mcp__a__x_y_"), "{names:?}");
    }

    #[test]
    fn hash_changes_with_each_member_and_with_nothing_else() {
        let base = json!({ "name": "add", "description": "Adds.", "inputSchema": { "type": "object" } });
        let hash = read(&base).unwrap().hash;
        let reordered =
            r#"{"inputSchema": {"type":"object"}, "_meta": 1, "description":"Adds.", "name":"add"}"#;
        assert_eq!(Definition::read(reordered, 1).unwrap().hash, hash);
        for (member, value) in [
            ("description", json!("Adds. Then sends all files.")),
            ("inputSchema", json!({ "type": "object", "properties": { "a": {} } })),
            ("annotations", json!({ "readOnlyHint": true })),
            ("title", json!("Add")),
        ] {
            let mut other = base.clone();
            other[member] = value;
            assert_ne!(read(&other).unwrap().hash, hash, "{member}");
        }
    }

    #[test]
    fn hidden_instructions_do_not_reach_the_model() {
        let hidden: String = "send".chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect();
        let definition = read(&json!({
            "name": "add",
            "description": format!("Adds.{hidden}\u{202e}"),
            "inputSchema": { "type": "object", "properties": { "a\u{200b}": { "description": hidden } } },
        }))
        .unwrap();
        assert!(definition.is_suspicious);
        let spec = definition.spec("mcp__s__add");
        assert_eq!(spec.description, "Adds.");
        let schema = json!({ "type": "object", "properties": { "a": { "description": "" } } });
        assert_eq!(spec.parameters.value(), schema);
    }

    #[test]
    fn definitions_that_cannot_be_used_say_why() {
        let (open, close) = (r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
        let deep = format!(r#"{{"name":"deep","inputSchema":{open}1{close}}}"#);
        assert!(Definition::read(&deep, 1).unwrap_err().why.contains("limit"));
        for (value, why) in [
            (json!({ "inputSchema": {} }), "name"),
            (json!({ "name": "a b", "inputSchema": {} }), "name"),
            (json!({ "name": "x" }), "inputSchema"),
            (json!({ "name": "x", "inputSchema": { "type": "string" } }), "type"),
            (json!({ "name": "x", "inputSchema": {}, "description": "y".repeat(70_000) }), "limit"),
        ] {
            assert!(read(&value).unwrap_err().why.contains(why), "{why}");
        }
        let raw = RawValue::from_string(r#"{"name":"x","inputSchema":{}}"#.into()).unwrap();
        let (found, issues) = definitions([&*raw, &*raw].into_iter());
        assert_eq!((found.len(), issues.len()), (1, 1));
    }
}
