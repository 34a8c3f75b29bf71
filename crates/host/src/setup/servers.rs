//! MCP servers of another agent in the form of our file. What is secret stays where it is.

use quipu::Sealer;
use serde_json::{Map, Value, json};

/// Words by which the name of a variable or header says that its value is secret.
const SECRET_NAMES: [&str; 8] =
    ["key", "token", "secret", "password", "passwd", "auth", "credential", "cookie"];

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
            let arguments = super::rules::texts(members.get("args").unwrap_or(&Value::Null));
            if std::iter::once(command).chain(arguments.iter().copied()).any(is_secret) {
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
            if has_user
                || is_secret(url)
                || SECRET_NAMES.iter().any(|name| query.to_lowercase().contains(name))
            {
                return Err("its URL holds a secret; add it by hand".to_owned());
            }
            ours.insert("type".into(), text("type").unwrap_or("http").into());
            ours.insert("url".into(), url.into());
        }
        (None, None) => return Err("it has neither `command` nor `url`".to_owned()),
    }
    let mut values = |from: &[&str], to: &str, notes: &mut Vec<String>| {
        let all = from.iter().filter_map(|name| members.get(*name)?.as_object()).flatten();
        let mut kept = Map::new();
        for (name, value) in all {
            let Some(value) = value.as_str() else { continue };
            let says_so = SECRET_NAMES.iter().any(|word| name.to_lowercase().contains(word));
            if !value.contains("${") && (says_so || is_secret(value)) {
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
}
