//! Files that configure servers: the user's own, and those of a project after a person accepted them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quipu_mcp::{ConfigError, ServerConfig, TransportConfig, check_url, config};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::packages::package_server_files;
use crate::settings::{content_of, is_accepted, project_root};
use crate::{Failure, Home, Record};

/// Bytes of such a file.
pub(crate) const LIMIT: u64 = 1 << 20;
/// The member of our own files that has the servers.
const MEMBER: &str = "mcpServers";
/// The file of a project that other agents read as well.
const SHARED_FILE: &str = ".mcp.json";

/// The forms of projects, ours and of other agents.
const FORMS: &str = include_str!("forms.json");

#[derive(Debug, Clone, Deserialize)]
struct Form {
    file: String,
    syntax: Syntax,
    member: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Syntax {
    Json,
    Toml,
}

/// Whether a file counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpFileUse {
    /// It is the user's own.
    User,
    /// It is of the project, and a person accepted it as it is.
    Accepted,
    /// It is of a package, which a person accepted as it is.
    Package,
    /// It is of the project, and nobody accepted it as it is.
    Untrusted,
}

/// A file that configures servers.
#[derive(Debug, Clone)]
pub struct McpFile {
    /// The file.
    pub path: PathBuf,
    /// Whether it counts.
    pub counts: McpFileUse,
    /// Its servers, also where it does not count.
    pub servers: Vec<(String, ServerConfig)>,
    /// What is wrong with it, each in one line.
    pub problems: Vec<String>,
    /// The directory of its package.
    package: Option<PathBuf>,
    bytes: Vec<u8>,
}

/// A server that can be used.
#[derive(Debug, Clone)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// How it is reached, as the file has it.
    pub config: ServerConfig,
    /// The file that configures it.
    pub path: PathBuf,
    /// Whose the file is.
    pub counts: McpFileUse,
    /// The directory of its package.
    pub(super) package: Option<PathBuf>,
}

impl McpServer {
    /// Its name where definitions are kept.
    pub fn key(&self) -> String {
        match self.counts {
            McpFileUse::User => self.name.clone(),
            McpFileUse::Accepted | McpFileUse::Package | McpFileUse::Untrusted => {
                format!("{}#{}", self.path.display(), self.name)
            }
        }
    }
}

/// All files that are there.
#[derive(Debug, Clone, Default)]
pub struct McpFiles {
    /// The user's own first.
    pub files: Vec<McpFile>,
}

impl McpFiles {
    /// The servers of files that count, by name. Of two with one name the first counts: the user's own.
    pub fn servers(&self) -> Vec<McpServer> {
        let mut names = BTreeSet::new();
        let mut servers = Vec::new();
        for file in self.files.iter().filter(|file| file.counts != McpFileUse::Untrusted) {
            for (name, config) in &file.servers {
                if names.insert(name.clone()) {
                    servers.push(McpServer {
                        name: name.clone(),
                        config: config.clone(),
                        path: file.path.clone(),
                        counts: file.counts,
                        package: file.package.clone(),
                    });
                }
            }
        }
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        servers
    }
}

/// The user's own file of servers.
pub fn user_mcp_file(home: &Home) -> PathBuf {
    home.dir.join("mcp.json")
}

/// The file of the project that `cwd` is in, which other agents read as well.
pub fn project_mcp_file(cwd: &Path) -> PathBuf {
    project_root(cwd).join(SHARED_FILE)
}

/// The files that configure servers for sessions in `cwd`. One that cannot be read has a problem and no servers.
pub fn mcp_files(home: &Home, cwd: &Path) -> McpFiles {
    let mut files = Vec::new();
    let own = Form { file: "mcp.json".into(), syntax: Syntax::Json, member: MEMBER.into() };
    files.extend(read_file(&user_mcp_file(home), &own, |_| McpFileUse::User));
    let root = project_root(cwd);
    // What lies in the user's home configures other agents, and belongs to no project.
    let is_home = std::env::home_dir().is_some_and(|own| own == root);
    let forms: Vec<Form> = serde_json::from_str(FORMS).unwrap_or_default();
    let record = Record::in_home(&home.dir, root);
    for form in forms.iter().filter(|_| !is_home) {
        let path = root.join(&form.file);
        if path == user_mcp_file(home) {
            continue;
        }
        files.extend(read_file(&path, form, |bytes| match is_accepted(&record, &path, bytes) {
            true => McpFileUse::Accepted,
            false => McpFileUse::Untrusted,
        }));
    }
    for (path, package) in package_server_files(home) {
        files.extend(package_file(&path, &package));
    }
    // Settings of an agent that say nothing of servers are none of our business.
    files.retain(|file| !file.servers.is_empty() || !file.problems.is_empty());
    McpFiles { files }
}

/// The file of servers of a package in a directory.
pub fn package_file(path: &Path, package: &Path) -> Option<McpFile> {
    let form = Form { file: SHARED_FILE.into(), syntax: Syntax::Json, member: MEMBER.into() };
    let file = read_file(path, &form, |_| McpFileUse::Package)?;
    Some(McpFile { package: Some(package.to_owned()), ..file })
}

fn read_file(path: &Path, form: &Form, counts: impl FnOnce(&[u8]) -> McpFileUse) -> Option<McpFile> {
    let broken = |why: String| {
        let problems = vec![format!("{}: {why}", path.display())];
        let (servers, bytes) = (Vec::new(), Vec::new());
        Some(McpFile {
            path: path.to_owned(),
            counts: McpFileUse::Untrusted,
            servers,
            problems,
            package: None,
            bytes,
        })
    };
    let bytes = match bytes_of(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return None,
        Err(why) => return broken(why),
    };
    let counts = counts(&bytes);
    let (mut servers, mut problems) = (Vec::new(), Vec::new());
    match value_of(&bytes, form.syntax).and_then(|value| config::servers(&value, &form.member)) {
        Ok(found) => {
            servers.extend(found.servers);
            problems.extend(found.problems.iter().map(|(name, problem)| {
                let name: String = name.chars().take(80).collect();
                format!("{}: server {name:?}: {problem}", path.display())
            }));
        }
        Err(error) => problems.push(format!("{}: {error}", path.display())),
    }
    Some(McpFile { path: path.to_owned(), counts, servers, problems, package: None, bytes })
}

fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
        Ok(found) if !found.is_file() => return Err("it is not a regular file".into()),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LIMIT => Err(format!("it has more than {LIMIT} bytes")),
        Ok(_) => Ok(Some(bytes)),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

fn value_of(bytes: &[u8], syntax: Syntax) -> Result<Value, ConfigError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ConfigError::Syntax("it is not UTF-8".into()))?;
    match syntax {
        Syntax::Json => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(text);
            if text.trim().is_empty() {
                return Ok(Value::Null);
            }
            serde_json::from_str(text)
                .map_err(|error| ConfigError::Syntax(format!("it is not JSON: {error}")))
        }
        Syntax::Toml => toml::from_str(text)
            .map_err(|error| ConfigError::Syntax(format!("it is not TOML: {}", error.message()))),
    }
}

/// Accepts a file of a project as it was read. What was accepted of the same file before counts no more.
///
/// # Errors
/// Where the permissions cannot be written.
pub fn trust_mcp_file(home: &Home, cwd: &Path, file: &McpFile) -> Result<(), Failure> {
    let Some(path) = file.path.to_str() else {
        return Err(Failure::request(format!("{}: its name is not text (UTF-8)", file.path.display())));
    };
    Record::in_home(&home.dir, project_root(cwd)).accept_settings(path, content_of(&file.bytes))
}

/// Adds a server to a file of ours, or to the shared one of a project.
///
/// # Errors
/// Where there is one of the name already, the server cannot be used, or the file cannot be read or written.
pub fn add_server(path: &Path, name: &str, server: Map<String, Value>) -> Result<(), Failure> {
    if !config::is_server_name(name) {
        return Err(Failure::request(format!(
            "{name:?} is no name for a server: it must have 1 to 64 letters, digits, `_`, `-` and `.`"
        )));
    }
    let read = config::server(&server).map_err(|error| Failure::request(error.to_string()))?;
    // With variables in it, it is known when the server is started.
    if let TransportConfig::Http { url, .. } = &read.transport
        && !url.contains("${")
    {
        check_url(url).map_err(|error| Failure::request(error.to_string()))?;
    }
    change(path, |servers| {
        if servers.contains_key(name) {
            return Err(Failure::request(format!(
                "{} already has a server {name}; remove it first, or take another name",
                path.display()
            )));
        }
        servers.insert(name.to_owned(), Value::Object(server));
        Ok(())
    })
}

/// Removes a server from a file. Whether it was there.
///
/// # Errors
/// Where the file cannot be read or written.
pub fn remove_server(path: &Path, name: &str) -> Result<bool, Failure> {
    if bytes_of(path).map_err(|why| unusable(path, &why))?.is_none() {
        return Ok(false);
    }
    let mut was_there = false;
    change(path, |servers| {
        was_there = servers.shift_remove(name).is_some();
        Ok(())
    })?;
    Ok(was_there)
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::failed(format!("{} cannot be used: {why}; correct it first", path.display()))
}

/// Changes the servers of a file under a lock, and leaves all else in it as it is.
fn change(
    path: &Path,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
    let written =
        |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", path.display()));
    let directory = path.parent().unwrap_or(Path::new("/"));
    let is_shared = path.file_name().is_some_and(|name| name == SHARED_FILE);
    let _lock = if is_shared {
        None
    } else {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(written)?;
        let lock = path.with_extension("lock");
        let lock = File::options().append(true).create(true).mode(0o600).open(lock).map_err(written)?;
        Some(Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| written(error.into()))?)
    };
    let bytes = bytes_of(path).map_err(|why| unusable(path, &why))?.unwrap_or_default();
    let mut file = match value_of(&bytes, Syntax::Json).map_err(|error| unusable(path, &error.to_string()))? {
        Value::Null => Map::new(),
        Value::Object(members) => members,
        _ => return Err(unusable(path, "it is not a JSON object")),
    };
    let servers = file.entry(MEMBER).or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(servers) = servers else {
        return Err(unusable(path, &format!("{MEMBER} is not an object")));
    };
    change(servers)?;
    if servers.len() > config::SERVERS {
        return Err(unusable(path, &format!("it would have more than {} servers", config::SERVERS)));
    }
    let mut text = serde_json::to_string_pretty(&file).map_err(|error| written(error.into()))?;
    text.push('\n');
    if text.len() as u64 > LIMIT {
        return Err(unusable(path, &format!("it would have more than {LIMIT} bytes")));
    }
    let mut aside = tempfile::Builder::new().prefix(".mcp-").tempfile_in(directory).map_err(written)?;
    aside.write_all(text.as_bytes()).map_err(written)?;
    if is_shared {
        let mode = std::fs::metadata(path).map_or(0o644, |found| found.permissions().mode() & 0o777);
        aside.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(written)?;
    }
    aside.as_file().sync_all().map_err(written)?;
    aside.persist(path).map_err(|error| written(error.error))?;
    Ok(())
}
