//! The session of another agent comes in when one of its turns has ended: that file, and no other.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quipu_archive::{Agent, Progress, Report};

use crate::import::{
    ImportObserver, ImportPlan, ImportProblem, ImportRequest, ImportSource, ImportSum, Importer, variable,
};
use crate::watch::Watch;
use crate::{Failure, Home};

/// How long it is waited for what the agent still writes: at least, and where an answer may still be going on. It counts as whole
/// when nothing was written for a while, which depends on the agent.
const PATIENCE: Duration = Duration::from_secs(4);
const LONGEST_PATIENCE: Duration = Duration::from_secs(130);

/// Takes in the sessions of an agent that `file` holds; without a file, those of the one that holds all of its sessions.
///
/// # Errors
/// The file does not lie where the agent keeps its sessions, or cannot be read, and what the store says.
pub async fn take_turn_in(home: &Home, agent: &str, file: Option<&Path>) -> Result<ImportSum, Failure> {
    let agent = Agent::named(agent).ok_or_else(|| Failure::request(format!("no agent is called {agent}")))?;
    let file = match file {
        Some(file) => {
            // Some write a session's file only after its first turn has ended.
            let began = Instant::now();
            while !file.exists() && began.elapsed() < PATIENCE {
                tokio::time::sleep(Watch::POLL).await;
            }
            kept_file(agent, file)?
        }
        None => {
            let mut found = agent.detect(&variable).files.into_iter();
            let place = || Failure::request(format!("no sessions of {} were found", agent.name));
            found.next().ok_or_else(place)?
        }
    };
    let source = ImportSource::Agent(agent, Some(file.clone()));
    let request = ImportRequest { source, follows: true, dry_run: false };
    let plan = ImportPlan::make(request)
        .map_err(|_| Failure::failed(format!("{} cannot be read", file.display())))?;
    let mut importer = Importer::open(home, plan).await?;
    importer.run(&Silence).await?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE || importer.has_unfinished() && began.elapsed() < LONGEST_PATIENCE {
        tokio::time::sleep(Watch::POLL).await;
        importer.poll(&Silence).await?;
    }
    importer.finish_index(&|_| {}).await?;
    Ok(importer.sum())
}

/// The file without links, where it lies in a place of the agent.
fn kept_file(agent: &Agent, file: &Path) -> Result<PathBuf, Failure> {
    let failed = |why: &str| Failure::request(format!("{} {why}", file.display()));
    let path = file.canonicalize().map_err(|error| failed(&format!("cannot be read: {error}")))?;
    let is_kept = agent
        .places(&variable)
        .iter()
        .any(|place| place.canonicalize().is_ok_and(|place| path.starts_with(place)) && path.is_file());
    if is_kept { Ok(path) } else { Err(failed(&format!("is not where {} keeps its sessions", agent.name))) }
}

/// Starts this program with these arguments, to take a session in after this process has ended: nobody waits for it, and what ends
/// this process's group does not end it.
///
/// # Errors
/// It cannot be started.
pub fn start_turn_intake(arguments: &[&OsStr]) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn().map(drop)
}

/// Drops every report: the process has no front.
struct Silence;

impl ImportObserver for Silence {
    fn progress(&self, _file: &Path, _at: Progress) {}

    fn imported(&self, _report: &Report) -> io::Result<()> {
        Ok(())
    }

    fn failed(&self, path: &Path, problem: &ImportProblem) -> io::Result<()> {
        Err(io::Error::other(match problem {
            ImportProblem::Directory(error) => format!("{} cannot be read: {error}", path.display()),
            ImportProblem::File(error) => error.to_string(),
        }))
    }

    fn is_store(&self, _file: &Path) {}
}
