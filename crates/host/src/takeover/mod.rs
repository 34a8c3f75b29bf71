//! Takes over the state directory of a gateway for personal agents: its agents, conversations, credentials, approvals and jobs,
//! and writes one again.
//!
//! What is here already stays. Nothing that is secret is reported, and nothing in the directory is written.

mod agents;
mod approvals;
mod config;
mod conversations;
mod credentials;
mod default_agent;
mod export;
mod jobs;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quipu::Sealer;
use quipu_archive::Agent;
use quipu_archive::openclaw::state::{MAIN, StateDirectory, StateError};
use quipu_archive::openclaw::{AGENT, state_dirs};
use serde_json::Value;

pub use conversations::GatewayConversation;
pub use export::{ExportedConversation, SecretExport, StateExport, StateExportError, export_state};
pub use report::{StateOutcome, StatePart, StateReport};

use crate::import::{ImportPlan, variable};
use crate::{Failure, Home};

/// Whether anything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverMode {
    /// It is.
    Write,
    /// It is only said what would become of it.
    DryRun,
}

/// The name of the agent whose state directory can be taken over.
pub const STATE_AGENT: &str = AGENT;

/// A state directory that is being taken over. Dropped between two steps: what was taken stays, and the next time goes on from
/// there.
pub struct Takeover<'a> {
    home: &'a Home,
    mode: TakeoverMode,
    state: StateDirectory,
    /// Its settings; an empty object where there are none.
    config: Value,
    sealer: Sealer,
    /// Where each agent works, as far as its directory is there.
    workspaces: BTreeMap<String, PathBuf>,
    /// The agent that is meant where none is named.
    default_agent: String,
    /// A file is missing that may name another default agent.
    is_default_unknown: bool,
    /// Something that may say what agents may run could not be read.
    lacks_approvals: bool,
    reports: Vec<StateReport>,
}

impl<'a> Takeover<'a> {
    /// Reads a state directory: that of `dir`, or the one that the environment and the home directory of the user have.
    ///
    /// # Errors
    /// `Request` where there is none.
    pub fn open(home: &'a Home, dir: Option<&Path>, mode: TakeoverMode) -> Result<Self, Failure> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => usual_directory()?,
        };
        let state = StateDirectory::read(&dir).map_err(|error| match error {
            error @ (StateError::Io { .. } | StateError::NotAState { .. }) => Failure::request(error),
        })?;
        let mut takeover = Self {
            sealer: Sealer::new(home.seal_key().unwrap_or_default()),
            home,
            mode,
            state,
            config: Value::Null,
            workspaces: BTreeMap::new(),
            default_agent: MAIN.to_owned(),
            is_default_unknown: false,
            lacks_approvals: false,
            reports: Vec::new(),
        };
        takeover.read_config();
        for problem in std::mem::take(&mut takeover.state.problems) {
            let why = problem.fault.to_string();
            takeover.report(StatePart::Directory, &problem.path, "", StateOutcome::Failed(why));
        }
        let agents = takeover.state.dir.join("agents");
        takeover.lacks_approvals |= takeover.reports.iter().any(|report| {
            matches!(report.outcome, StateOutcome::Failed(_))
                && !report.file.starts_with(&agents)
                && report.file.file_name().is_none_or(|name| name != "jobs.json")
        });
        Ok(takeover)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.state.dir
    }

    /// The file that a transcript is in, for people.
    pub fn shown(&self, transcript: &Path) -> PathBuf {
        self.state.shown(transcript)
    }

    /// What has been reported since the last call.
    pub fn take_reports(&mut self) -> Vec<StateReport> {
        std::mem::take(&mut self.reports)
    }

    /// Takes over what is in files of ours: agents, credentials and approvals.
    ///
    /// # Errors
    /// What is wrong with our own files.
    pub fn settings(&mut self) -> Result<(), Failure> {
        self.take_agents()?;
        if self.mode == TakeoverMode::Write && !self.is_default_unknown {
            default_agent::keep(self.home, &self.default_agent)?;
        }
        self.take_credentials()?;
        self.take_approvals()
    }

    /// What is to be imported of transcripts.
    ///
    /// # Errors
    /// A fault of ours.
    pub fn transcripts(&self) -> Result<ImportPlan, Failure> {
        let agent = Agent::named(AGENT).ok_or_else(|| Failure::failed("no importer has this name"))?;
        let files = self.state.agents.iter().flat_map(|agent| agent.transcripts.iter().cloned()).collect();
        Ok(ImportPlan::of_files(agent, files, self.mode == TakeoverMode::DryRun))
    }

    fn report(&mut self, part: StatePart, file: &Path, key: &str, outcome: StateOutcome) {
        let key: String =
            self.sealer.seal(key).chars().filter(|letter| !letter.is_control()).take(200).collect();
        self.reports.push(StateReport { part, file: file.to_owned(), key, outcome });
    }
}

/// Where the state directory usually is.
fn usual_directory() -> Result<PathBuf, Failure> {
    let places = state_dirs(&variable);
    if let Some(place) = places.iter().find(|place| place.is_dir()) {
        return Ok(place.clone());
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(Failure::request(match places.is_empty() {
        true => "HOME is not set; name the state directory".to_owned(),
        false => format!("there is no state directory: none of {} exists; name it", places.join(", ")),
    }))
}
