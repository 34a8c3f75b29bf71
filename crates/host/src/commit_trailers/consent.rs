//! Which repositories the user consented for: `git.json` in the home, and what git reads of it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use quipu_protocol::UnixMs;
use quipu_workspace::Git;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::MOST_REPOSITORIES;
use super::consented_repository::ConsentedRepository;
use super::hooks::HookFiles;
use crate::state_file::{State, StateFile};
use crate::{Failure, Home, now};

/// `git.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ConsentFile {
    version: u32,
    #[serde(default)]
    pub(super) repositories: Vec<ConsentedRepository>,
}

impl Default for ConsentFile {
    fn default() -> Self {
        Self { version: Self::VERSION, repositories: Vec::new() }
    }
}

impl ConsentFile {
    /// Whether there may be a consent. A file that cannot be read is said when a command starts.
    pub(super) fn has_any(file: &StateFile) -> bool {
        file.path.exists() && file.read::<Self>().map_or(true, |found| !found.repositories.is_empty())
    }
}

impl State for ConsentFile {
    const VERSION: u32 = 1;
    const RESET: &str = "withdraw every consent to trailers in commits";

    fn version(&self) -> u32 {
        self.version
    }
}

/// Whether commits of commands get trailers in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrailerState {
    /// The user consented at that time.
    Enabled(UnixMs),
    /// The user did not consent.
    Disabled,
    /// The user consented for another repository that was at the same path.
    Replaced,
}

/// A repository of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    directory: PathBuf,
}

impl Repository {
    /// The one that a directory lies in.
    ///
    /// # Errors
    /// There is none, or git cannot tell.
    pub fn of(directory: &Path) -> Result<Self, Failure> {
        let git = Git::reading(directory, &CancellationToken::new());
        let found =
            git.line(&["rev-parse", "--path-format=absolute", "--git-common-dir"]).map_err(|error| {
                Failure::request(format!(
                    "{} is in no git repository that can be read: {error}",
                    directory.display()
                ))
            })?;
        let directory = Path::new(&found)
            .canonicalize()
            .map_err(|error| Failure::failed(format!("{found} cannot be read: {error}")))?;
        if directory.to_str().is_none_or(|path| path.contains('\n')) {
            return Err(Failure::request(format!(
                "{}: the path is not UTF-8, or has more than one line; move the repository",
                directory.display()
            )));
        }
        Ok(Self { directory })
    }

    /// The true path of the directory that all of its worktrees share.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The consents of the user.
#[derive(Debug)]
pub struct TrailerConsent {
    file: StateFile,
    hooks: HookFiles,
}

impl TrailerConsent {
    /// Those that are kept in a home.
    pub fn of(home: &Home) -> Self {
        Self { file: file(home), hooks: HookFiles::of(home) }
    }

    /// What holds for a repository.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn state(&self, repository: &Repository) -> Result<TrailerState, Failure> {
        let all = self.list()?;
        let found = all.iter().find(|one| one.directory == repository.directory);
        Ok(match found {
            Some(one) if one.is_there() => TrailerState::Enabled(one.since),
            Some(_) => TrailerState::Replaced,
            None => TrailerState::Disabled,
        })
    }

    /// All consents, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<Vec<ConsentedRepository>, Failure> {
        Ok(self.file.read::<ConsentFile>()?.repositories)
    }

    /// The user consents. Whether that is new.
    ///
    /// # Errors
    /// There are too many, or a file cannot be written.
    pub fn enable(&self, repository: &Repository) -> Result<bool, Failure> {
        let directory = repository.directory.clone();
        let inode = directory
            .metadata()
            .map_err(|error| Failure::failed(format!("{} cannot be read: {error}", directory.display())))?
            .ino();
        if let TrailerState::Enabled(_) = self.state(repository)? {
            return Ok(false);
        }
        let (mut is_full, mut kept) = (false, Vec::new());
        self.file.change(|file: &mut ConsentFile| {
            file.repositories.retain(ConsentedRepository::is_there);
            is_full = file.repositories.len() >= MOST_REPOSITORIES;
            if !is_full {
                file.repositories.push(ConsentedRepository { directory, inode, since: now() });
            }
            kept.clone_from(&file.repositories);
            !is_full
        })?;
        if is_full {
            return Err(Failure::request(format!(
                "{MOST_REPOSITORIES} repositories have a consent, which is the limit; withdraw one first"
            )));
        }
        self.hooks.write(&kept, None).map_err(|error| Failure::failed(error.to_string()))?;
        Ok(true)
    }

    /// The user withdraws the consent for the repository of this directory, which may be gone. Whether there was one.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn disable(&self, directory: &Path) -> Result<bool, Failure> {
        let (mut was, mut kept) = (false, Vec::new());
        self.file.change(|file: &mut ConsentFile| {
            let before = file.repositories.len();
            file.repositories.retain(|one| one.directory != directory);
            was = file.repositories.len() < before;
            kept.clone_from(&file.repositories);
            was
        })?;
        if was {
            self.hooks.write(&kept, None).map_err(|error| Failure::failed(error.to_string()))?;
        }
        Ok(was)
    }
}

/// `git.json` of a home.
pub(super) fn file(home: &Home) -> StateFile {
    StateFile::new(home.dir.join("git.json"))
}
