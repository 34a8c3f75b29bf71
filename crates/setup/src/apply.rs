//! Writes what was planned: the ledger first, then the files, each with a backup.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::agents::{Agent, SetupContext};
use crate::error::SetupError;
use crate::files::{remove, sweep, write};
use crate::ledger::{Ledger, write_private};
use crate::piece::sha256;
use crate::plan::{AgentPlan, FileChange, Goal, plan};

/// The directory of backups, in the directory of Quipu's own files.
pub const BACKUP_DIRECTORY: &str = "setup-backups";
const LOCK_FILE: &str = "setup.lock";

/// The agents of this machine, and what was written into their settings.
#[derive(Debug)]
pub struct Setup {
    home: PathBuf,
    ledger: Ledger,
    /// Nobody else writes as long as it is held.
    lock: Option<Flock<File>>,
}

impl Setup {
    /// For plans alone: nothing is locked, and nothing can be written.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn read(home: &Path) -> Result<Self, SetupError> {
        Ok(Self { home: home.to_owned(), ledger: Ledger::read(home)?, lock: None })
    }

    /// For changes: another setup is refused as long as this value lives.
    ///
    /// # Errors
    /// `Busy` while another setup is running; when the ledger cannot be read.
    pub fn lock(home: &Path) -> Result<Self, SetupError> {
        let path = home.join(LOCK_FILE);
        let failed = || SetupError::io(&path, "locked");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(failed())?;
        let file = File::options().append(true).create(true).mode(0o600).open(&path).map_err(failed())?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => SetupError::Busy { path: path.as_path().into() },
            error => failed()(error.into()),
        })?;
        let setup = Self { home: home.to_owned(), ledger: Ledger::read(home)?, lock: Some(lock) };
        setup.sweep()?;
        Ok(setup)
    }

    /// Removes what a setup that was killed left.
    fn sweep(&self) -> Result<(), SetupError> {
        sweep(&self.home)?;
        sweep(&self.home.join(BACKUP_DIRECTORY))?;
        for record in &self.ledger.files {
            // Behind links, as it is written.
            let path = record.path.canonicalize().unwrap_or_else(|_| record.path.clone());
            path.parent().map_or(Ok(()), sweep)?;
        }
        Ok(())
    }

    /// What is to be changed for an agent, and how it stands.
    pub fn plan(&self, context: &SetupContext<'_>, agent: &Agent, goal: Goal) -> AgentPlan {
        plan(context, &self.ledger, agent, goal)
    }

    /// Whether something was written for an agent.
    pub fn lists(&self, agent: &str) -> bool {
        self.ledger.files.iter().any(|record| record.agent == agent)
    }

    /// Writes a plan. Returns the backups of the files that were changed.
    ///
    /// # Errors
    /// The first file that could not be written: it is as it was, those before it are changed and listed.
    pub fn apply(&mut self, plan: &AgentPlan, goal: Goal) -> Result<Vec<PathBuf>, SetupError> {
        if self.lock.is_none() {
            let path = self.home.join(LOCK_FILE);
            return Err(SetupError::Busy { path: path.as_path().into() });
        }
        let mut backups = Vec::new();
        for (path, record) in &plan.records {
            let before = self.ledger.clone();
            self.ledger.replace(plan.agent, path, record.clone());
            let change = plan.changes.iter().find(|change| change.path == *path);
            // What is listed and not written does no harm, what is written and not listed would.
            if goal == Goal::Present {
                self.ledger.write(&self.home)?;
            }
            if let Some(change) = change
                && let Err(error) = self.change(plan.agent, change, &mut backups)
            {
                self.ledger = before;
                self.ledger.write(&self.home)?;
                return Err(error);
            }
            if goal == Goal::Absent {
                self.ledger.write(&self.home)?;
            }
        }
        // What is not listed, and is ours by its content.
        for change in &plan.changes {
            if !plan.records.iter().any(|(path, _)| *path == change.path) {
                self.change(plan.agent, change, &mut backups)?;
            }
        }
        if goal == Goal::Absent && plan.problems.is_empty() {
            self.drop_backups(plan.agent, &backups)?;
        }
        Ok(backups)
    }

    /// Removes the backups of an agent that nothing of ours is in any more.
    fn drop_backups(&self, agent: &str, kept: &[PathBuf]) -> Result<(), SetupError> {
        let directory = self.home.join(BACKUP_DIRECTORY);
        let Ok(entries) = std::fs::read_dir(&directory) else { return Ok(()) };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_of_agent = entry.file_name().to_string_lossy().starts_with(&format!("{agent}-"));
            if is_of_agent && !kept.contains(&path) {
                std::fs::remove_file(&path).map_err(SetupError::io(&path, "removed"))?;
            }
        }
        Ok(())
    }

    fn change(&self, agent: &str, change: &FileChange, backups: &mut Vec<PathBuf>) -> Result<(), SetupError> {
        if let Some(before) = change.before() {
            let name = change.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.trim_start_matches('.');
            let hash = sha256(before);
            let backup = self.home.join(BACKUP_DIRECTORY).join(format!("{agent}-{}-{name}", &hash[..12]));
            write_private(&backup, before.as_bytes())?;
            backups.push(backup);
        }
        match &change.after {
            Some(after) => write(&change.path, &change.found, after),
            None => remove(&change.path, &change.found, &change.directories),
        }
    }
}
