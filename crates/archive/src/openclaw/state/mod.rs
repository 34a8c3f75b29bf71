//! A state directory: agents with their conversations and credentials, approvals of commands, and jobs.
//!
//! Versions up to 2026.5 keep it as files, 2026.9 in databases. Both become the same documents here, as they stand; what they
//! mean is said by whoever takes them over. Nothing outside of the directory is read, whatever links lead there, and nothing in
//! it is written.

mod database;
mod documents;
mod files;
mod profiles;

use std::io;
use std::path::{Path, PathBuf};

pub use documents::{IndexedSession, indexed_sessions};
pub use profiles::{
    PortableProfile, ProfileCredential, ProfileFault, ProfileUse, profile_json, profile_name, profile_of,
    use_of,
};
use quipu_protocol::{AGENT_ID_LIMIT, AgentId, DEFAULT_AGENT};
use serde_json::Value;
use tempfile::TempDir;

/// The database of an agent, in its directory.
const AGENT_DATABASE: &str = "agent/openclaw-agent.sqlite";
/// Agents of a directory at most.
const AGENTS: usize = 256;
/// Bytes of one document at most.
pub const DOCUMENT_LIMIT: u64 = 64 << 20;

/// How a directory keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateForm {
    /// Files, as up to 2026.5.
    Files,
    /// Databases, as 2026.9 does.
    Databases,
}

/// What a state directory has.
#[derive(Debug)]
pub struct StateDirectory {
    /// The directory, without links.
    pub dir: PathBuf,
    /// How it keeps it.
    pub form: StateForm,
    /// The file of settings, where there is one.
    pub config: Option<PathBuf>,
    /// Its agents, by their ids, `main` first.
    pub agents: Vec<StateAgent>,
    /// Credentials that all agents share.
    pub shared_profiles: Option<StateDocument>,
    /// Which commands run without a question.
    pub approvals: Option<StateDocument>,
    /// Jobs: a list under `jobs`.
    pub jobs: Option<StateDocument>,
    /// What could not be read.
    pub problems: Vec<StateProblem>,
    /// Where the transcripts of databases were written to, until this is dropped.
    scratch: Option<TempDir>,
}

/// An agent of a state directory.
#[derive(Debug, Default)]
pub struct StateAgent {
    /// Its id.
    pub id: String,
    /// `sessions.json`: which session each conversation has.
    pub index: Option<StateDocument>,
    /// The files of its sessions.
    pub transcripts: Vec<PathBuf>,
    /// Its credentials.
    pub profiles: Option<StateDocument>,
    /// How they are used, where that is kept apart.
    pub profile_state: Option<StateDocument>,
}

/// A document of a state directory.
#[derive(Debug, Clone)]
pub struct StateDocument {
    /// The file that it is in.
    pub path: PathBuf,
    /// What it says. It may hold secrets.
    pub value: Value,
    /// Whether others than the owner can read the file.
    pub exposed: bool,
}

/// What could not be read of a state directory.
#[derive(Debug)]
pub struct StateProblem {
    /// The file or directory.
    pub path: PathBuf,
    /// Why.
    pub fault: StateFault,
}

/// Why something of a state directory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StateFault {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A link leads out of the directory.
    #[error("it is a link out of the state directory")]
    Outside,
    /// It is no regular file.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is too large.
    #[error("it has {bytes} bytes; the limit is {DOCUMENT_LIMIT}")]
    TooLarge {
        /// Its bytes.
        bytes: u64,
    },
    /// It is no JSON. The words of the parser are left out: they may quote a secret.
    #[error("it is not valid JSON (line {line}, column {column})")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// It is JSON, but no object.
    #[error("it is not a JSON object")]
    NotAnObject,
    /// A process that runs has it locked.
    #[error("process {pid} has it locked; end that process, or try again")]
    Locked {
        /// The process.
        pid: u32,
    },
    /// The name of an agent that no conversation can have.
    #[error("the name of an agent has 1 to {AGENT_ID_LIMIT} of the letters a-z, digits, `_` and `-`")]
    AgentName,
    /// There are too many agents.
    #[error("there are more than {AGENTS} agents; the others are left out")]
    TooManyAgents,
    /// The form of a database is not known.
    #[error(
        "the database has version {found} of its form; versions {known} are supported, those of 2026.9.6"
    )]
    Version {
        /// The version that it has.
        found: i64,
        /// Those that are known.
        known: &'static str,
    },
    /// A document of a program that keeps databases now.
    #[error("it is not read: the database of the directory counts")]
    BesideDatabase,
    /// A database is none of this program.
    #[error("it is not a database of this program: it has no table `{table}` of the known form")]
    NotItsDatabase {
        /// The table.
        table: &'static str,
    },
    /// A row of a database cannot be read.
    #[error("`{row}` of `{table}` cannot be read")]
    Row {
        /// The table.
        table: &'static str,
        /// What names the row.
        row: String,
    },
}

/// There is no state directory.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is not there, or cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing in it is state of this program.
    #[error(
        "{} is not a state directory: it has neither `agents` nor `openclaw.json`, `exec-approvals.json` or `cron/jobs.json`",
        path.display()
    )]
    NotAState {
        /// The directory.
        path: PathBuf,
    },
}

impl StateDirectory {
    /// Reads all documents of a directory. One that cannot be read keeps none of the others from it.
    ///
    /// # Errors
    /// There is no such directory, or nothing of this program in it.
    pub fn read(dir: &Path) -> Result<Self, StateError> {
        let fail = |source| StateError::Io { path: dir.to_owned(), source };
        let dir = dir.canonicalize().map_err(fail)?;
        if !dir.is_dir() {
            return Err(fail(io::ErrorKind::NotADirectory.into()));
        }
        let databases = dir.join(database::STATE);
        let is_database = databases.symlink_metadata().is_ok() || files::has_agent_database(&dir);
        let form = if is_database { StateForm::Databases } else { StateForm::Files };
        let mut state = Self {
            config: None,
            agents: Vec::new(),
            shared_profiles: None,
            approvals: None,
            jobs: None,
            problems: Vec::new(),
            scratch: None,
            form,
            dir,
        };
        let found = files::read(&mut state);
        if is_database {
            database::read(&mut state);
            files::read_beside_databases(&mut state);
        } else if !found {
            return Err(StateError::NotAState { path: state.dir });
        }
        state.agents.sort_by(|one, other| {
            (one.id != MAIN, one.id.as_str()).cmp(&(other.id != MAIN, other.id.as_str()))
        });
        Ok(state)
    }

    /// The file that a transcript stands for, for people: that of a database has been written to a place of its own.
    pub fn shown(&self, transcript: &Path) -> PathBuf {
        let Some(scratch) = &self.scratch else { return transcript.to_owned() };
        match transcript.strip_prefix(scratch.path()) {
            Ok(below) => self.dir.join(below),
            Err(_) => transcript.to_owned(),
        }
    }

    fn problem(&mut self, path: &Path, fault: impl Into<StateFault>) {
        self.problems.push(StateProblem { path: path.to_owned(), fault: fault.into() });
    }
}

/// The id of the agent that a directory has where no other is named.
pub const MAIN: &str = DEFAULT_AGENT;

/// Whether conversations can have an agent of this id.
pub fn is_agent_id(id: &str) -> bool {
    AgentId::is_written(id)
}
