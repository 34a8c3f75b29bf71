//! Logins that other programs keep on this machine. They are offered, and used only where a person asks for it; what is
//! stored then is the name of the program, never its tokens.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::UnixMs;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::jsonc;

static ROWS: &str = include_str!("../../data/agents.json");

/// Bytes of such a file at most.
const MAX_BYTES: u64 = 1 << 20;
/// How often a file that cannot be read is read again, and how far apart: its owner may be writing it.
const WRITES: u32 = 8;
const WRITE_INTERVAL: Duration = Duration::from_millis(25);

/// A login that another program keeps on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentLogin {
    /// The program, in one word.
    pub agent: String,
    /// The program, for people.
    pub name: String,
    /// The provider whose account it is; `None` for one that cannot be used here.
    pub provider: Option<String>,
    /// Why it cannot be used, where no provider takes it.
    pub obstacle: Option<String>,
    /// What a person must accept before it is used.
    pub restriction: Option<String>,
    /// The file that holds it.
    pub path: PathBuf,
}

/// Where the programs keep their files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentFiles {
    /// Directories by the word that begins a path: `~`, or `$` and a variable.
    places: BTreeMap<String, PathBuf>,
}

/// What is known of one program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentRow {
    name: String,
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    source: String,
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    date: String,
    files: Vec<String>,
    provider: Option<String>,
    /// Why there is none.
    obstacle: Option<String>,
    /// What a person must know before, where the login of its provider does not say it.
    restriction: Option<String>,
    #[serde(default)]
    layout: Layout,
    /// Where the entries of hosts stand; without it, they are the file.
    within: Option<String>,
    #[serde(default)]
    lock: OwnerLock,
    /// Where the token stands.
    access: Option<String>,
    /// Where its end stands, in milliseconds since the epoch; without it, the token itself may say.
    expires: Option<String>,
    #[serde(default)]
    fields: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Layout {
    /// One login for one provider.
    #[default]
    One,
    /// Entries by provider, as in `auth.json`.
    Entries,
    /// Entries by host; their token is exchanged before it is used.
    Hosts,
}

/// How the program locks its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OwnerLock {
    /// In no way that another program could join.
    #[default]
    None,
    /// By a directory beside it.
    Directory,
}

/// The tokens of such a login. Stands in no debug form.
pub(super) struct AgentTokens {
    /// What calls are made with; empty for one that is exchanged first.
    pub(super) access: String,
    pub(super) expires: Option<UnixMs>,
    /// What another token is had for, where its owner's file can be locked, or nothing is written for it.
    pub(super) refresh: Option<String>,
    pub(super) fields: Map<String, Value>,
    /// The program, for people.
    pub(super) name: String,
    /// Its file.
    pub(super) path: PathBuf,
    pub(super) renewal: AgentRenewal,
}

/// How such a login is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentRenewal {
    /// By its owner alone.
    Owner,
    /// In its owner's file, under its owner's lock.
    Locked,
    /// In memory: nothing of the owner's changes.
    Exchange,
}

/// What a call needs to know of an account beside its token. Holds no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentAccount {
    /// The project that requests name.
    pub project: Option<String>,
}

/// What a person must accept before the login of a program is used.
pub(super) fn restriction(agent: &str) -> Option<&'static str> {
    rows().get(agent)?.restriction.as_deref()
}

/// The program whose login is the only credential of a provider: its word, and its name for people.
pub(crate) fn owner(provider: &str) -> Option<(&'static str, &'static str)> {
    let (agent, row) = rows().iter().find(|(_, row)| row.provider.as_deref() == Some(provider))?;
    Some((agent, &row.name))
}

fn rows() -> &'static BTreeMap<String, AgentRow> {
    static PARSED: OnceLock<BTreeMap<String, AgentRow>> = OnceLock::new();
    PARSED.get_or_init(|| serde_json::from_str(ROWS).unwrap_or_default())
}

impl AgentFiles {
    /// By these variables of the environment.
    pub(crate) fn new(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let mut places = BTreeMap::new();
        places.extend(absolute("HOME").map(|home| ("~".to_owned(), home)));
        for file in rows().values().flat_map(|row| &row.files) {
            if let Some((word, _)) = file.split_once('/')
                && let Some(name) = word.strip_prefix('$')
            {
                places.extend(absolute(name).map(|path| (word.to_owned(), path)));
            }
        }
        Self { places }
    }

    /// The file of a program that there is.
    fn path(&self, row: &AgentRow) -> Option<PathBuf> {
        let paths = row.files.iter().filter_map(|file| {
            let (word, rest) = file.split_once('/')?;
            Some(self.places.get(word)?.join(rest))
        });
        paths.into_iter().find(|path| path.is_file())
    }

    /// The logins that there are. Nothing is taken from them.
    pub(crate) fn logins(&self) -> Vec<AgentLogin> {
        let mut found = Vec::new();
        for (agent, row) in rows() {
            let Some(path) = self.path(row) else { continue };
            let Ok(file) = read_once(&path) else { continue };
            let login = |provider: Option<String>| AgentLogin {
                agent: agent.clone(),
                name: row.name.clone(),
                provider,
                obstacle: row.obstacle.clone(),
                restriction: row.restriction.clone(),
                path: path.clone(),
            };
            match row.layout {
                Layout::Entries => {
                    let oauth = |value: &Value| value.get("type").and_then(Value::as_str) == Some("oauth");
                    let entries = file.iter().filter(|(_, value)| oauth(value));
                    found.extend(entries.map(|(provider, _)| login(Some(provider.clone()))));
                }
                Layout::One | Layout::Hosts if token(row, &file).is_some() => {
                    found.push(login(row.provider.clone()));
                }
                Layout::One | Layout::Hosts => {}
            }
        }
        found
    }

    /// The tokens that a program keeps for a provider.
    ///
    /// # Errors
    /// When there are none, or its file cannot be read.
    pub(super) fn tokens(&self, agent: &str, provider: &str) -> Result<AgentTokens, String> {
        let row = rows().get(agent).ok_or_else(|| {
            format!("the program {:?} is unknown", agent.chars().take(40).collect::<String>())
        })?;
        let gone = || format!("{} keeps no login for {provider} on this machine any more", row.name);
        let path = self.path(row).ok_or_else(gone)?;
        let file = read(&path)?;
        let tokens = |access: String, expires, refresh, fields, renewal| AgentTokens {
            access,
            expires,
            refresh,
            fields,
            name: row.name.clone(),
            path: path.clone(),
            renewal,
        };
        if row.layout == Layout::Entries {
            let entry = file.get(provider).and_then(Value::as_object).ok_or_else(gone)?;
            let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
            let access = text("access").filter(|access| !access.is_empty()).ok_or_else(gone)?;
            let expires = entry.get("expires").and_then(Value::as_i64);
            let mut fields = entry.clone();
            fields.retain(|name, _| !["type", "access", "refresh", "expires"].contains(&name.as_str()));
            let (refresh, renewal) = match row.lock {
                OwnerLock::Directory => {
                    (text("refresh").filter(|refresh| !refresh.is_empty()), AgentRenewal::Locked)
                }
                OwnerLock::None => (None, AgentRenewal::Owner),
            };
            return Ok(tokens(access, expires, refresh, fields, renewal));
        }
        if row.provider.as_deref() != Some(provider) {
            return Err(gone());
        }
        let access = token(row, &file).ok_or_else(gone)?;
        if row.layout == Layout::Hosts {
            return Ok(tokens(String::new(), Some(1), Some(access), Map::new(), AgentRenewal::Exchange));
        }
        let whole = Value::Object(file);
        let expires =
            row.expires.as_deref().and_then(|at| whole.pointer(at)?.as_i64()).or_else(|| end(&access));
        let mut fields = Map::new();
        for (name, at) in &row.fields {
            if let Some(value) = whole.pointer(at).filter(|value| value.is_string()) {
                fields.insert(name.clone(), value.clone());
            }
        }
        Ok(tokens(access, expires, None, fields, AgentRenewal::Owner))
    }
}

/// The token of a file with one, or of its first host.
fn token(row: &AgentRow, file: &Map<String, Value>) -> Option<String> {
    let at = row.access.as_deref()?;
    let found = match row.layout {
        Layout::One => {
            let (first, rest) =
                at.trim_start_matches('/').split_once('/').unwrap_or((at.trim_start_matches('/'), ""));
            let value = file.get(first)?;
            if rest.is_empty() { Some(value) } else { value.pointer(&format!("/{rest}")) }
        }
        Layout::Hosts => {
            let within = row.within.as_deref().map(|name| file.get(name).and_then(Value::as_object));
            let hosts = within.unwrap_or(Some(file))?;
            let host =
                |name: &str| name.trim_start_matches("https://").split(':').next() == Some("github.com");
            let usual = hosts.iter().find(|(name, _)| host(name));
            usual.and_then(|(_, value)| value.pointer(at))
        }
        Layout::Entries => None,
    };
    found?.as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// When a JWT says that it ends.
fn end(token: &str) -> Option<UnixMs> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    payload.get("exp")?.as_i64()?.checked_mul(1_000)
}

/// A file of another program, as it is now. One that is just being written is read again; blocks for that.
pub(super) fn read(path: &Path) -> Result<Map<String, Value>, String> {
    for _ in 0..WRITES {
        if let Ok(entries) = read_once(path) {
            return Ok(entries);
        }
        std::thread::sleep(WRITE_INTERVAL);
    }
    read_once(path)
}

fn read_once(path: &Path) -> Result<Map<String, Value>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{shown} is not a regular file"));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > MAX_BYTES {
        return Err(format!("{shown} is larger than {MAX_BYTES} bytes"));
    }
    // Some of these programs write comments.
    match serde_json::from_str(&jsonc::strip(&text)) {
        Ok(Value::Object(entries)) => Ok(entries),
        // Not the words of the parser: they may quote what stands there.
        Ok(_) | Err(_) => Err(format!("{shown} is not a JSON object")),
    }
}
