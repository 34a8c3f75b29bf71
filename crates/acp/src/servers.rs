//! Servers of tools that a client brings along.

use std::collections::BTreeMap;

use quipu_mcp::{CALL_IDLE, OauthClient, STARTUP, ServerConfig, TransportConfig, check_url};
use serde::Deserialize;
use serde_json::Value;

use crate::wire::WireError;

/// Servers of one session.
const SERVERS: usize = 64;

#[derive(Deserialize)]
struct NamedValue {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct ServerParams {
    name: String,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<NamedValue>,
    #[serde(rename = "type")]
    kind: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<NamedValue>,
}

/// Reads them.
///
/// # Errors
/// Where one cannot be used.
pub(crate) fn servers(given: Vec<Value>) -> Result<Vec<(String, ServerConfig)>, WireError> {
    if given.len() > SERVERS {
        return Err(WireError::params(format!("mcpServers has more than {SERVERS} servers")));
    }
    given.into_iter().map(server).collect()
}

fn server(given: Value) -> Result<(String, ServerConfig), WireError> {
    let given: ServerParams = serde_json::from_value(given)
        .map_err(|error| WireError::params(format!("a server in mcpServers does not fit: {error}")))?;
    let name = named(&given.name)?;
    let wrong = |why: String| WireError::params(format!("the server {name} in mcpServers: {why}"));
    let values = |values: Vec<NamedValue>| -> BTreeMap<String, String> {
        values.into_iter().map(|NamedValue { name, value }| (name, value)).collect()
    };
    let transport = match (given.kind.as_deref(), given.command, given.url) {
        (None | Some("stdio"), Some(command), None) => {
            if command.is_empty() || command.contains('\0') {
                return Err(wrong("`command` must name a program".to_owned()));
            }
            TransportConfig::Stdio { command, args: given.args, env: values(given.env), cwd: None }
        }
        (Some("http"), None, Some(url)) => {
            check_url(&url).map_err(|error| wrong(error.to_string()))?;
            let headers = values(given.headers);
            TransportConfig::Http { url, headers, client: OauthClient::default() }
        }
        (Some("sse"), ..) => {
            return Err(wrong("the transport `sse` is not supported; use `http` or a program".to_owned()));
        }
        _ => return Err(wrong("it needs `command`, or the type `http` and `url`".to_owned())),
    };
    let config = ServerConfig {
        transport,
        enabled: true,
        startup: STARTUP,
        call: CALL_IDLE,
        only: None,
        without: Vec::new(),
    };
    Ok((name, config))
}

/// A name that a server can have: what does not fit in it becomes `_`.
fn named(name: &str) -> Result<String, WireError> {
    let fits = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().take(64).map(fits).collect();
    if name.is_empty() { Err(WireError::params("a server in mcpServers has no name")) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_of_both_kinds_are_taken_and_others_refused() {
        let stdio = json!({ "name": "my files", "command": "npx", "args": ["x"], "env": [{ "name": "A", "value": "b" }] });
        let http = json!({ "type": "http", "name": "web", "url": "https://example.com/mcp", "headers": [] });
        let read = servers(vec![stdio, http]).unwrap();
        assert_eq!(read[0].0, "my_files");
        let TransportConfig::Stdio { command, args, env, .. } = &read[0].1.transport else { panic!() };
        assert_eq!((command.as_str(), args.len(), env["A"].as_str()), ("npx", 1, "b"));
        assert!(matches!(&read[1].1.transport, TransportConfig::Http { .. }));
        let check = |server: Value, why: &str| {
            let error = servers(vec![server.clone()]).unwrap_err();
            assert!(error.message.contains(why), "{server}: {}", error.message);
        };
        check(json!({ "type": "sse", "name": "old", "url": "https://example.com", "headers": [] }), "sse");
        check(json!({ "name": "none" }), "command");
        check(json!({ "name": "", "command": "x" }), "no name");
        check(
            json!({ "type": "http", "name": "open", "url": "http://example.com/mcp", "headers": [] }),
            "open",
        );
    }
}
