//! The form of files.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    AGENT_DATABASE, AGENTS, DOCUMENT_LIMIT, StateAgent, StateDirectory, StateDocument, StateFault, StateForm,
    is_agent_id,
};
use crate::intake::open_file;

/// The file of jobs.
const JOBS: &str = "cron/jobs.json";
/// Bytes of a lock at most.
const LOCK: u64 = 4_096;

/// Whether an agent keeps a database.
pub(super) fn has_agent_database(dir: &Path) -> bool {
    let agents = fs::read_dir(dir.join("agents")).into_iter().flatten().flatten().take(AGENTS);
    agents.into_iter().any(|agent| agent.path().join(AGENT_DATABASE).symlink_metadata().is_ok())
}

/// Reads all files; whether there were any.
pub(super) fn read(state: &mut StateDirectory) -> bool {
    let dir = state.dir.clone();
    let config = dir.join("openclaw.json");
    match inside(&dir, &config) {
        Ok(Some(_)) => state.config = Some(config),
        Ok(None) => {}
        Err(fault) => state.problem(&config, fault),
    }
    if state.form == StateForm::Files {
        state.approvals = approvals(state);
        state.jobs = jobs(state, &dir.join(JOBS));
    }
    let has_agents = agents(state);
    has_agents || state.config.is_some() || state.approvals.is_some() || state.jobs.is_some()
}

/// Reads what databases of the directory do not have: documents of a program that did not change its form wholly.
pub(super) fn read_beside_databases(state: &mut StateDirectory) {
    let database = state.dir.join(super::database::STATE);
    let is_broken = state.problems.iter().any(|problem| problem.path == database);
    // The stricter one counts: a database that cannot be read may have said less.
    if state.approvals.is_none() {
        state.approvals = approvals(state);
    }
    let path = state.dir.join(JOBS);
    if database.symlink_metadata().is_err() {
        state.jobs = jobs(state, &path);
    } else if !is_broken && state.jobs.is_none() && path.symlink_metadata().is_ok() {
        state.problem(&path, StateFault::BesideDatabase);
    }
}

/// What may be run. An empty file may have said anything.
fn approvals(state: &mut StateDirectory) -> Option<StateDocument> {
    let path = state.dir.join("exec-approvals.json");
    let before = state.problems.len();
    let found = document(state, &path);
    if found.is_none() && state.problems.len() == before && path.symlink_metadata().is_ok() {
        state.problem(&path, StateFault::NotAnObject);
    }
    found
}

fn agents(state: &mut StateDirectory) -> bool {
    let dir = state.dir.join("agents");
    let entries = match inside(&state.dir, &dir) {
        Ok(None) => return false,
        Ok(Some(_)) => fs::read_dir(&dir).map_err(StateFault::from),
        Err(fault) => Err(fault),
    };
    let entries = match entries {
        Ok(entries) => entries,
        Err(fault) => {
            state.problem(&dir, fault);
            return true;
        }
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => paths.push(entry.path()),
            Err(error) => {
                state.problem(&dir, error);
                break;
            }
        }
    }
    paths.sort();
    for path in paths {
        let at = match inside(&state.dir, &path) {
            Ok(at) => at,
            Err(fault) => {
                state.problem(&path, fault);
                continue;
            }
        };
        if !at.is_some_and(|at| at.is_dir()) {
            continue;
        }
        let Some(id) = path.file_name().and_then(|name| name.to_str()).filter(|id| is_agent_id(id)) else {
            state.problem(&path, StateFault::AgentName);
            continue;
        };
        if state.agents.len() == AGENTS {
            state.problem(&dir, StateFault::TooManyAgents);
            break;
        }
        let mut agent = StateAgent { id: id.to_owned(), ..StateAgent::default() };
        if path.join(AGENT_DATABASE).symlink_metadata().is_err() {
            agent.index = document(state, &path.join("sessions/sessions.json"));
            agent.profiles = locked_document(state, &path.join("agent/auth-profiles.json"));
            agent.profile_state = locked_document(state, &path.join("agent/auth-state.json"));
        }
        agent.transcripts = transcripts(state, &path.join("sessions"));
        state.agents.push(agent);
    }
    true
}

/// The files of sessions in a directory.
fn transcripts(state: &mut StateDirectory, dir: &Path) -> Vec<PathBuf> {
    let entries = match inside(&state.dir, dir) {
        Ok(None) => return Vec::new(),
        Ok(Some(_)) => fs::read_dir(dir).map_err(StateFault::from),
        Err(fault) => Err(fault),
    };
    let entries = match entries {
        Ok(entries) => entries,
        Err(fault) => {
            state.problem(dir, fault);
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                state.problem(dir, error);
                break;
            }
        };
        if !super::super::is_session(&path) {
            continue;
        }
        match inside(&state.dir, &path) {
            Ok(Some(at)) if at.is_file() => found.push(path),
            Ok(Some(_)) => state.problem(&path, StateFault::NotAFile),
            // It is gone by now.
            Ok(None) => state.problem(&path, io::Error::from(io::ErrorKind::NotFound)),
            Err(fault) => state.problem(&path, fault),
        }
    }
    found.sort();
    found
}

/// Where a file really is: within the directory. `None` where nothing is there.
fn inside(dir: &Path, path: &Path) -> Result<Option<PathBuf>, StateFault> {
    match path.canonicalize() {
        Ok(real) if real.starts_with(dir) => Ok(Some(real)),
        Ok(_) => Err(StateFault::Outside),
        // A link to nothing is there, and what it led to is missing.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A document; `None` where there is none, or what cannot be read was noted.
pub(super) fn document(state: &mut StateDirectory, path: &Path) -> Option<StateDocument> {
    match read_document(&state.dir, path) {
        Ok(document) => document,
        Err(fault) => {
            state.problem(path, fault);
            None
        }
    }
}

/// The same where its program holds a lock while it changes the file.
fn locked_document(state: &mut StateDirectory, path: &Path) -> Option<StateDocument> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    if let Some(pid) = holder(&state.dir, Path::new(&lock)) {
        state.problem(path, StateFault::Locked { pid });
        return None;
    }
    document(state, path)
}

/// The process that holds a lock, where it runs. One that died has left it behind.
fn holder(dir: &Path, lock: &Path) -> Option<u32> {
    inside(dir, lock).ok()??;
    let mut text = String::new();
    open_file(lock).ok()?.take(LOCK).read_to_string(&mut text).ok()?;
    let pid = serde_json::from_str::<Value>(&text).ok()?.get("pid")?.as_u64()?;
    let process = nix::unistd::Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 0)?);
    let runs = !matches!(nix::sys::signal::kill(process, None), Err(nix::errno::Errno::ESRCH));
    u32::try_from(pid).ok().filter(|_| runs)
}

fn read_document(dir: &Path, path: &Path) -> Result<Option<StateDocument>, StateFault> {
    let Some(real) = inside(dir, path)? else { return Ok(None) };
    if !real.is_file() {
        return Err(StateFault::NotAFile);
    }
    let file = match open_file(&real) {
        Ok(file) => file,
        Err(crate::ArchiveError::File { source, .. }) => return Err(source.into()),
        Err(_) => return Err(StateFault::NotAFile),
    };
    let found = file.metadata()?;
    if found.len() > DOCUMENT_LIMIT {
        return Err(StateFault::TooLarge { bytes: found.len() });
    }
    let mut bytes = Vec::new();
    file.take(DOCUMENT_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > DOCUMENT_LIMIT {
        return Err(StateFault::TooLarge { bytes: bytes.len() as u64 });
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_start_matches('\u{feff}');
    // The program leaves an empty one where a disk was full.
    if text.trim().is_empty() {
        return Ok(None);
    }
    let value = parsed(text)?;
    let exposed = found.permissions().mode() & 0o077 != 0;
    Ok(Some(StateDocument { path: path.to_owned(), value, exposed }))
}

/// A document that is an object, or a list.
pub(super) fn parsed(text: &str) -> Result<Value, StateFault> {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(value),
        Ok(_) => Err(StateFault::NotAnObject),
        Err(error) => Err(StateFault::NotJson { line: error.line(), column: error.column() }),
    }
}

/// Jobs under `jobs`; older versions had a list alone.
fn jobs(state: &mut StateDirectory, path: &Path) -> Option<StateDocument> {
    let mut found = document(state, path)?;
    if found.value.is_array() {
        found.value = serde_json::json!({ "jobs": found.value });
    }
    Some(found)
}
