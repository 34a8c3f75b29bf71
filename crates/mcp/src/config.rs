//! How servers are configured: one object for each, in the forms that agents share.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::environment::{MissingVariables, expanded};
use crate::error::ConfigError;
use crate::limits::{CALL_IDLE, CALL_TOTAL, STARTUP};
use crate::oauth::OauthClient;

/// Bytes of the name of a server.
const NAME_BYTES: usize = 64;
/// Servers of one file.
pub const SERVERS: usize = 64;

/// A server as a file configures it. Variables of the environment are not expanded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// How it is reached.
    pub transport: TransportConfig,
    /// Whether it is used.
    pub enabled: bool,
    /// How long it may take to start and to list its tools.
    pub startup: Duration,
    /// How long a call may go without an answer or progress.
    pub call: Duration,
    /// The only tools that are used; `None` for all.
    pub only: Option<Vec<String>>,
    /// Tools that are not used.
    pub without: Vec<String>,
}

/// How a server is reached. Its debug form has no values of variables or headers.
#[derive(Clone, PartialEq, Eq)]
pub enum TransportConfig {
    /// A program that is started, and speaks over its pipes.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables of its environment.
        env: BTreeMap<String, String>,
        /// Its directory; that of the session where it has none.
        cwd: Option<String>,
    },
    /// A server on the network.
    Http {
        /// Its address.
        url: String,
        /// Headers of each request.
        headers: BTreeMap<String, String>,
        /// The client that logs in, where somebody registered one.
        client: OauthClient,
    },
}

impl fmt::Debug for TransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers, .. } => f
                .debug_struct("Http")
                .field("url", &url.split('?').next().unwrap_or_default())
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .finish(),
        }
    }
}

/// What a file configures: servers by name, and what is wrong with others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerConfigs {
    /// Servers by name.
    pub servers: BTreeMap<String, ServerConfig>,
    /// What is wrong, each with the server that it is wrong with.
    pub problems: Vec<(String, ConfigError)>,
}

/// Whether a server can have this name.
pub fn is_server_name(name: &str) -> bool {
    let fits = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    !name.is_empty() && name.len() <= NAME_BYTES && fits
}

/// The servers in the member `key` of a file. One that cannot be read does not keep others from being used.
///
/// # Errors
/// Where the member is no object.
pub fn servers(file: &Value, key: &str) -> Result<ServerConfigs, ConfigError> {
    let mut found = ServerConfigs::default();
    let servers = match file.get(key) {
        None | Some(Value::Null) => return Ok(found),
        Some(Value::Object(servers)) => servers,
        Some(_) => return Err(member(key, "it must be an object of servers by name")),
    };
    for (name, value) in servers.iter().take(SERVERS) {
        let read = match (is_server_name(name), value) {
            (false, _) => Err(member(
                "name",
                format!("a name must have 1 to {NAME_BYTES} letters, digits, `_`, `-` and `.`"),
            )),
            (true, Value::Object(members)) => server(members),
            (true, _) => Err(member(name, "it must be an object")),
        };
        match read {
            Ok(server) => drop(found.servers.insert(name.clone(), server)),
            Err(problem) => found.problems.push((name.clone(), problem)),
        }
    }
    if servers.len() > SERVERS {
        let problem = member(key, format!("it has {} servers; the limit is {SERVERS}", servers.len()));
        found.problems.push((String::new(), problem));
    }
    Ok(found)
}

/// One server of a file.
///
/// # Errors
/// What is wrong with it.
pub fn server(members: &Map<String, Value>) -> Result<ServerConfig, ConfigError> {
    let kind = text(members, "type")?.or(text(members, "transport")?);
    let command = text(members, "command")?;
    let url = text(members, "url")?.or(text(members, "serverUrl")?);
    let transport = match (kind.as_deref(), command, url) {
        (Some("sse"), _, _) => {
            return Err(member("type", "the transport `sse` of 2024 is not supported; use `http`"));
        }
        (Some("stdio") | None, Some(command), None) => {
            if command.trim().is_empty() {
                return Err(member("command", "it is empty"));
            }
            let mut env = texts(members, "env")?;
            for name in list(members, "env_vars")?.unwrap_or_default() {
                env.entry(name.clone()).or_insert(format!("${{{name}:-}}"));
            }
            let args = list(members, "args")?.unwrap_or_default();
            TransportConfig::Stdio { command, args, env, cwd: text(members, "cwd")? }
        }
        (Some("http" | "streamable-http" | "streamableHttp") | None, None, Some(url)) => {
            let mut headers = texts(members, "headers")?;
            headers.extend(texts(members, "http_headers")?);
            for (name, variable) in texts(members, "env_http_headers")? {
                headers.insert(name, format!("${{{variable}}}"));
            }
            if let Some(variable) = text(members, "bearer_token_env_var")? {
                headers.insert("Authorization".into(), format!("Bearer ${{{variable}}}"));
            }
            TransportConfig::Http { url, headers, client: client(members)? }
        }
        (Some("stdio"), None, _) => return Err(member("command", "it is missing")),
        (Some("http" | "streamable-http" | "streamableHttp"), _, None) => {
            return Err(member("url", "it is missing"));
        }
        (Some(kind @ ("stdio" | "http" | "streamable-http" | "streamableHttp")), Some(_), Some(_)) => {
            return Err(member("type", format!("`{kind}` takes either `command` or `url`, not both")));
        }
        (None, Some(_), Some(_)) => return Err(member("url", "a server has either `command` or `url`")),
        (None, None, None) => return Err(member("command", "a server needs `command` or `url`")),
        (Some(kind), _, _) => {
            let shown: String = kind.chars().take(40).collect();
            return Err(member("type", format!("{shown:?} is not known; it is `stdio` or `http`")));
        }
    };
    let enabled = flag(members, "enabled")?.unwrap_or(true) && !flag(members, "disabled")?.unwrap_or(false);
    let startup = time(members, &[("startup_timeout_ms", 1.0), ("startup_timeout_sec", 1_000.0)], STARTUP)?;
    let call = time(members, &[("timeout", 1.0), ("tool_timeout_sec", 1_000.0)], CALL_IDLE)?;
    let (only, without) = (list(members, "enabled_tools")?, list(members, "disabled_tools")?);
    Ok(ServerConfig { transport, enabled, startup, call, only, without: without.unwrap_or_default() })
}

impl ServerConfig {
    /// The same with variables of the environment in their places.
    ///
    /// # Errors
    /// The variables that are not set.
    pub fn expanded(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut missing = Vec::new();
        let mut put = |text: &String| match expanded(text, variable) {
            Ok(text) => text,
            Err(MissingVariables(names)) => {
                missing.extend(names);
                String::new()
            }
        };
        let transport = match &self.transport {
            TransportConfig::Stdio { command, args, env, cwd } => TransportConfig::Stdio {
                command: put(command),
                args: args.iter().map(&mut put).collect(),
                env: env.iter().map(|(name, value)| (name.clone(), put(value))).collect(),
                cwd: cwd.as_ref().map(&mut put),
            },
            TransportConfig::Http { url, headers, client } => TransportConfig::Http {
                url: put(url),
                headers: headers.iter().map(|(name, value)| (name.clone(), put(value))).collect(),
                client: OauthClient {
                    id: client.id.as_ref().map(&mut put),
                    secret: client.secret.as_ref().map(&mut put),
                },
            },
        };
        missing.sort();
        missing.dedup();
        if missing.is_empty() {
            Ok(Self { transport, ..self.clone() })
        } else {
            Err(ConfigError::Variables(missing))
        }
    }

    /// Whether a tool of the server is used.
    pub(crate) fn uses(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == tool))
            && !self.without.iter().any(|name| name == tool)
    }
}

/// `oauth`: a client that was registered before.
fn client(members: &Map<String, Value>) -> Result<OauthClient, ConfigError> {
    match members.get("oauth") {
        None | Some(Value::Null | Value::Bool(_)) => Ok(OauthClient::default()),
        Some(Value::Object(members)) => {
            Ok(OauthClient { id: text(members, "clientId")?, secret: text(members, "clientSecret")? })
        }
        Some(_) => Err(member("oauth", "it must be an object")),
    }
}

fn member(name: impl Into<String>, why: impl Into<String>) -> ConfigError {
    ConfigError::Member { member: name.into(), why: why.into() }
}

fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, ConfigError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.contains('\0') => Ok(Some(text.clone())),
        Some(_) => Err(member(name, "it must be a text")),
    }
}

fn flag(members: &Map<String, Value>, name: &str) -> Result<Option<bool>, ConfigError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(member(name, "it must be true or false")),
    }
}

fn list(members: &Map<String, Value>, name: &str) -> Result<Option<Vec<String>>, ConfigError> {
    let wrong = || member(name, "it must be a list of texts");
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().filter(|text| !text.contains('\0')));
            texts.map(|text| text.map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(wrong()),
    }
}

fn texts(members: &Map<String, Value>, name: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let wrong = || member(name, "it must be an object of texts");
    match members.get(name) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(items)) => {
            let one = |(name, value): (&String, &Value)| {
                let value = match value {
                    Value::String(text) if !text.contains('\0') => text.clone(),
                    Value::Number(number) => number.to_string(),
                    Value::Bool(flag) => flag.to_string(),
                    _ => return Err(wrong()),
                };
                let fits = !name.is_empty() && !name.contains(['=', '\0', '\n', '\r']);
                if fits { Ok((name.clone(), value)) } else { Err(wrong()) }
            };
            items.iter().map(one).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// The first of these members that is there, in milliseconds by its factor.
fn time(
    members: &Map<String, Value>,
    names: &[(&str, f64)],
    default: Duration,
) -> Result<Duration, ConfigError> {
    for (name, factor) in names {
        let value = match members.get(*name) {
            None | Some(Value::Null) => continue,
            Some(value) => value.as_f64().map(|value| value * factor / 1_000.0),
        };
        let value = value.filter(|seconds| *seconds > 0.0 && *seconds <= CALL_TOTAL.as_secs_f64());
        return value.map(Duration::from_secs_f64).ok_or_else(|| {
            member(*name, format!("it must be a time of more than 0 and at most {} s", CALL_TOTAL.as_secs()))
        });
    }
    Ok(default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_other_agents_are_read() {
        let file = json!({ "mcpServers": {
            "files": { "command": "server", "args": ["${HOME:-/}"], "env": { "A": "1", "B": 2 } },
            "far": { "type": "http", "url": "https://example.com/mcp", "headers": { "X": "${T}" } },
            "row": { "url": "https://example.com/mcp", "bearer_token_env_var": "TOKEN", "tool_timeout_sec": 2.5,
                     "enabled": false, "enabled_tools": ["a"], "disabled_tools": ["b"] },
        }});
        let found = servers(&file, "mcpServers").unwrap();
        assert_eq!(found.problems, []);
        let TransportConfig::Stdio { env, args, .. } = &found.servers["files"].transport else {
            panic!("http")
        };
        assert_eq!((env["B"].as_str(), args.len()), ("2", 1));
        let row = &found.servers["row"];
        assert_eq!((row.enabled, row.call), (false, Duration::from_millis(2_500)));
        assert!(row.uses("a") && !row.uses("b") && !row.uses("c"));
        let TransportConfig::Http { headers, .. } = &row.transport else { panic!("stdio") };
        assert_eq!(headers["Authorization"], "Bearer ${TOKEN}");
        let missing = found.servers["far"].expanded(&|_| None).unwrap_err();
        assert_eq!(missing.to_string(), "the environment has no T");
        let there = found.servers["row"].expanded(&|name| (name == "TOKEN").then(|| "t0p".into())).unwrap();
        assert!(!format!("{there:?}").contains("t0p"));
    }

    #[test]
    fn broken_servers_do_not_keep_others_away() {
        let file = json!({ "mcpServers": {
            "good": { "command": "x" },
            "no name!": { "command": "x" },
            "text": "x",
            "empty": {},
            "both": { "command": "x", "url": "http://x" },
            "old": { "type": "sse", "url": "http://x" },
            "odd": { "type": "pigeon", "command": "x" },
            "args": { "command": "x", "args": "y" },
            "env": { "command": "x", "env": { "A=B": "y" } },
            "nul": { "command": "x\0" },
            "time": { "command": "x", "timeout": -1 },
        }});
        let found = servers(&file, "mcpServers").unwrap();
        assert_eq!(found.servers.keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(found.problems.len(), 10);
        assert_eq!(servers(&json!({}), "mcpServers").unwrap(), ServerConfigs::default());
        assert!(servers(&json!({ "mcpServers": [] }), "mcpServers").is_err());
    }
}
