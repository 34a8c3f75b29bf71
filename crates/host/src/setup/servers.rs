//! MCP servers of another agent in the form of our file. What is secret stays where it is.

use std::path::Path;

use quipu::Sealer;
use quipu_mcp::config::{SERVERS, is_server_name};
use serde_json::{Map, Value, json};

use super::entries::Entry;
use super::includes::{INCLUDE, has_include};
use super::{SetupImport, SetupOutcome, text_of, write};
use crate::Failure;
use crate::mcp::FILE_BYTES;

/// Words by which the name of a variable or header says that its value is secret.
const SECRET_NAMES: [&str; 8] =
    ["key", "token", "secret", "password", "passwd", "auth", "credential", "cookie"];

/// Whether a variable or header of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    SECRET_NAMES.iter().any(|word| name.to_lowercase().contains(word))
}

/// Members that mean the same here and hold nothing secret.
const SAME: [&str; 8] = [
    "timeout",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "tool_timeout_sec",
    "enabled_tools",
    "disabled_tools",
    "env_vars",
    "env_http_headers",
];

impl SetupImport<'_> {
    /// MCP servers, into `mcp.json` of the home.
    pub(super) fn servers(&mut self, file: &Path, entry: &Entry) -> Result<(), Failure> {
        const FORM: &str = "mcpServers";
        let path = self.home.dir.join("mcp.json");
        let failed = |why: &str| Failure::request(format!("{}: {why}; correct it first", path.display()));
        let mut root = match text_of(&path) {
            Ok(text) if text.trim().is_empty() => json!({}),
            Ok(text) => serde_json::from_str(&text).map_err(|_| failed("it is not valid JSON"))?,
            Err(_) if !path.exists() => json!({}),
            Err(why) => return Err(failed(&why)),
        };
        let Some(members) = root.as_object_mut() else { return Err(failed("it must be a JSON object")) };
        let ours = members.entry(FORM).or_insert_with(|| json!({}));
        let Some(ours) = ours.as_object_mut() else { return Err(failed("`mcpServers` must be an object")) };
        let mut is_changed = false;
        // With the indents of the file.
        let size_of = |name: &str, server: &Value| {
            let text = format!("{server:#}");
            (name.len() + text.len() + 4 * text.lines().count() + 10) as u64
        };
        let mut bytes = std::fs::metadata(&path).map_or(0, |found| found.len());
        for theirs in &entry.members {
            let file = theirs.file.as_deref().unwrap_or(file);
            let name = theirs.key.strip_prefix(&format!("{}.", entry.key)).unwrap_or(&theirs.key);
            let server = match is_server_name(name) {
                // It may have said that it is off, and a variable of that name would be given to its program.
                _ if name == INCLUDE || has_include(&theirs.value) => {
                    Err("a file that it includes cannot be read".to_owned())
                }
                true => server(&theirs.value, &self.sealer),
                false => Err("a name of a server has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned()),
            };
            let server = match server {
                Ok(server) => server,
                Err(why) => {
                    self.report(file, theirs.line, &theirs.key, SetupOutcome::Left(why));
                    continue;
                }
            };
            let label = "mcp.json".to_owned();
            let outcome = match ours.get(name) {
                Some(known) if *known == server.value => SetupOutcome::Same { ours: label },
                Some(_) => SetupOutcome::Kept { ours: label },
                None if ours.len() >= SERVERS => {
                    SetupOutcome::Left(format!("mcp.json has {SERVERS} servers, which is the most"))
                }
                None if bytes + size_of(name, &server.value) > FILE_BYTES => {
                    SetupOutcome::Left(format!("mcp.json would have more than {FILE_BYTES} bytes"))
                }
                None => {
                    is_changed = true;
                    bytes += size_of(name, &server.value);
                    ours.insert(name.to_owned(), server.value.clone());
                    SetupOutcome::Set { ours: label, value: server.value }
                }
            };
            let is_new = matches!(outcome, SetupOutcome::Set { .. });
            self.report(file, theirs.line, &theirs.key, outcome);
            for note in server.notes.into_iter().filter(|_| is_new) {
                self.report(file, theirs.line, &theirs.key, SetupOutcome::Note(note));
            }
        }
        if is_changed && !self.dry_run {
            write(&path, &format!("{root:#}\n"))?;
        }
        Ok(())
    }
}

/// A server in our form, and what was left out of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Server {
    pub(super) value: Value,
    pub(super) notes: Vec<String>,
}

/// A server in our form.
///
/// # Errors
/// Why it cannot be taken.
pub(super) fn server(theirs: &Value, sealer: &Sealer) -> Result<Server, String> {
    let Some(members) = theirs.as_object() else { return Err("it is not an object".to_owned()) };
    let is_secret = |text: &str| sealer.seal(text) != text;
    let (mut ours, mut notes) = (Map::new(), Vec::new());
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    match (text("command"), text("url")) {
        (Some(command), _) => {
            let arguments: Option<Vec<String>> = match members.get("args") {
                None | Some(Value::Null) => Some(Vec::new()),
                Some(theirs) => theirs.as_array().and_then(|args| args.iter().map(word_of).collect()),
            };
            let Some(arguments) = arguments else { return Err("`args` is not a list of texts".to_owned()) };
            if std::iter::once(command).chain(arguments.iter().map(String::as_str)).any(is_secret) {
                return Err("its command line holds a secret; add it by hand".to_owned());
            }
            ours.insert("command".into(), command.into());
            ours.insert("args".into(), json!(arguments));
        }
        (None, Some(url)) => {
            let has_user = url.split_once("://").is_some_and(|(_, rest)| {
                rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains('@'))
            });
            let query = url.split_once('?').map_or("", |(_, query)| query);
            if has_user || is_secret(url) || is_secret_name(query) {
                return Err("its URL holds a secret; add it by hand".to_owned());
            }
            let transport = match ["type", "transport"].iter().find_map(|name| members.get(*name)) {
                None | Some(Value::Null) => "http",
                Some(theirs) => match theirs.as_str().map(str::to_lowercase).as_deref() {
                    Some("http" | "streamable-http" | "streamable_http" | "streamablehttp") => "http",
                    // Why it cannot be taken is said below.
                    Some("sse") => "sse",
                    _ => return Err("its `type` or `transport` is none that is known here".to_owned()),
                },
            };
            ours.insert("type".into(), transport.into());
            ours.insert("url".into(), url.into());
        }
        (None, None) => return Err("it has neither `command` nor `url`".to_owned()),
    }
    let mut values = |from: &[&str], to: &str, notes: &mut Vec<String>| {
        let all = from.iter().filter_map(|name| members.get(*name)?.as_object()).flatten();
        let mut kept = Map::new();
        for (name, value) in all {
            let Some(value) = word_of(value) else {
                notes.push(format!("the value of {name} is no text, and is left out"));
                continue;
            };
            if !value.contains("${") && (is_secret_name(name) || is_secret(&value)) {
                let variable: String = name
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
                    .collect();
                notes.push(format!("the value of {name} is not copied; set the variable {variable}"));
                kept.insert(name.clone(), format!("${{{variable}}}").into());
            } else {
                kept.insert(name.clone(), value.into());
            }
        }
        if !kept.is_empty() {
            ours.insert(to.to_owned(), Value::Object(kept));
        }
    };
    values(&["env"], "env", &mut notes);
    values(&["headers", "http_headers"], "headers", &mut notes);
    if let Some(variable) = text("bearer_token_env_var") {
        let headers = ours.entry("headers").or_insert_with(|| json!({}));
        headers["Authorization"] = format!("Bearer ${{{variable}}}").into();
    }
    if let Some(cwd) = text("cwd") {
        ours.insert("cwd".into(), cwd.into());
    }
    let is_off = members.get("enabled") == Some(&Value::Bool(false))
        || members.get("disabled") == Some(&Value::Bool(true));
    if is_off {
        ours.insert("disabled".into(), true.into());
    }
    for name in SAME {
        if let Some(value) = members.get(name) {
            ours.insert(name.to_owned(), value.clone());
        }
    }
    quipu_mcp::config::server(&ours).map_err(|error| error.to_string())?;
    const KNOWN: [&str; 12] = [
        "command",
        "args",
        "url",
        "type",
        "env",
        "headers",
        "http_headers",
        "bearer_token_env_var",
        "cwd",
        "enabled",
        "disabled",
        "transport",
    ];
    let is_known = |name: &str| KNOWN.contains(&name) || SAME.contains(&name);
    let unknown = members.keys().filter(|name| !is_known(name));
    notes.extend(unknown.map(|name| format!("{name} has no counterpart")));
    Ok(Server { value: Value::Object(ours), notes })
}

/// A text as it is, and a number, `true` or `false` as a program gets it.
fn word_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(theirs: &Value) -> Result<Server, String> {
        server(theirs, &Sealer::new([0; 32]))
    }

    #[test]
    fn servers_are_taken_without_their_secrets() {
        let taken = of(&json!({
            "command": "npx", "args": ["-y", "server"], "cwd": "/w", "startup_timeout_sec": 3, "note": "x",
            "env": { "MODE": "fast", "API_KEY": "abc", "TOKEN": "${TOKEN}" },
        }))
        .unwrap();
        let expect = json!({
            "command": "npx", "args": ["-y", "server"], "cwd": "/w", "startup_timeout_sec": 3,
            "env": { "MODE": "fast", "API_KEY": "${API_KEY}", "TOKEN": "${TOKEN}" },
        });
        assert_eq!(taken.value, expect);
        assert_eq!(taken.notes.len(), 2, "{:?}", taken.notes);
        let remote = of(&json!({
            "url": "https://example.com/mcp", "bearer_token_env_var": "MINE", "enabled": false,
            "headers": { "Authorization": "Bearer abc", "X-Mode": "a" },
        }))
        .unwrap();
        let expect = json!({
            "type": "http", "url": "https://example.com/mcp", "disabled": true,
            "headers": { "Authorization": "Bearer ${MINE}", "X-Mode": "a" },
        });
        assert_eq!(remote.value, expect);
        for bad in [
            json!({ "url": "https://u:p@example.com" }),
            json!({ "url": "https://example.com/?api_key=1" }),
            json!({ "type": "sse", "url": "https://example.com/sse" }),
            json!({ "command": "x", "tool_timeout_sec": "soon" }),
            json!({ "command": "x", "args": ["--token", "ghp_0123456789abcdefghijABCDEFGHIJ012345"] }),
            json!({}),
            json!("x"),
        ] {
            assert!(of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_keep_numbers_and_say_how_they_are_reached() {
        let taken = of(
            &json!({ "command": "x", "args": ["--port", 8080, true], "env": { "PORT": 8080, "DEBUG": true, "L": [1] } }),
        );
        let Server { value, notes } = taken.unwrap();
        let expect = json!({ "command": "x", "args": ["--port", "8080", "true"], "env": { "PORT": "8080", "DEBUG": "true" } });
        assert_eq!((value, notes), (expect, vec!["the value of L is no text, and is left out".to_owned()]));
        let url = "https://example.com/mcp";
        for (member, word) in [("transport", "streamable-http"), ("transport", "http"), ("type", "http")] {
            let taken = of(&json!({ "url": url, member: word })).unwrap();
            assert_eq!(
                (taken.value, taken.notes.len()),
                (json!({ "type": "http", "url": url }), 0),
                "{word}"
            );
        }
        for (broken, why) in [
            (json!({ "url": url, "transport": "sse" }), "sse"),
            (json!({ "url": url, "transport": 7 }), "transport"),
            (json!({ "command": "x", "args": "a b" }), "args"),
            (json!({ "command": "x", "args": [["a"]] }), "args"),
        ] {
            let told = of(&broken).unwrap_err();
            assert!(told.to_lowercase().contains(why), "{broken}: {told}");
        }
    }
}
