//! Which memories are open for a directory, and what a person switched on.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::files::FileProblem;
use crate::lock::FileLock;
use crate::{MemoryError, MemoryKind, MemoryPlace};

/// Bytes of the file of choices at most.
const LIMIT: u64 = 1 << 20;
/// Letters of a project's name in the name of its memory.
const NAME: usize = 40;
/// The only version of the file that this program reads and writes.
const VERSION: u32 = 1;

/// The directory of the user's memories, and what was chosen for which project.
#[derive(Debug, Clone)]
pub struct MemoryHome {
    home: PathBuf,
}

/// What a person chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryChoices {
    version: u32,
    /// By the root of the project.
    #[serde(default)]
    projects: BTreeMap<String, ProjectChoice>,
}

/// What a person chose for one project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectChoice {
    /// Whether its memory is used.
    pub on: bool,
    /// A directory of another agent's form that is its memory, where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// The content of the repository's memory that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
}

impl Default for MemoryChoices {
    fn default() -> Self {
        Self { version: VERSION, projects: BTreeMap::new() }
    }
}

impl MemoryChoices {
    /// What was chosen for a project; `None` where nobody was asked.
    #[must_use]
    pub fn of(&self, project: &Path) -> Option<&ProjectChoice> {
        self.projects.get(project.to_str()?)
    }

    /// Whether a memory is used in any project.
    #[must_use]
    pub fn is_on_anywhere(&self) -> bool {
        self.projects.values().any(|choice| choice.on)
    }

    /// Every project with its choice.
    pub fn projects(&self) -> impl Iterator<Item = (&str, &ProjectChoice)> {
        self.projects.iter().map(|(project, choice)| (project.as_str(), choice))
    }
}

impl MemoryHome {
    /// The memories of the home of Quipu (`$QUIPU_HOME`).
    #[must_use]
    pub fn new(quipu_home: &Path) -> Self {
        Self { home: quipu_home.to_path_buf() }
    }

    /// The directory in which the user's memories are.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.home.join("memory")
    }

    /// Where locks and what can be made again are: never below a memory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.home.join("memory-state")
    }

    /// The file of choices.
    #[must_use]
    pub fn choices_path(&self) -> PathBuf {
        self.home.join("memory.json")
    }

    /// The memory of the user's own.
    #[must_use]
    pub fn user(&self) -> MemoryPlace {
        MemoryPlace { id: "user".into(), kind: MemoryKind::User, root: self.root().join("user") }
    }

    /// The memory of a project, by the root of it.
    #[must_use]
    pub fn project(&self, project: &Path) -> MemoryPlace {
        let id = project_id(project);
        let root = self.root().join(&id);
        MemoryPlace { id, kind: MemoryKind::Project, root }
    }

    /// The memory that lies in a project's repository, whether or not it is there.
    #[must_use]
    pub fn repository(project: &Path) -> MemoryPlace {
        let root = project.join(".quipu").join("memory");
        MemoryPlace { id: format!("{}.repository", project_id(project)), kind: MemoryKind::Repository, root }
    }

    /// The memories that are open in a directory: none where memory is off there. The project's own comes first, then the
    /// repository's, then the user's.
    ///
    /// # Errors
    /// Where the file of choices cannot be used.
    pub fn open(&self, cwd: &Path) -> Result<Vec<MemoryPlace>, MemoryError> {
        let project = project_root(cwd);
        let choices = self.choices()?;
        let Some(choice) = choices.of(project).filter(|choice| choice.on) else { return Ok(Vec::new()) };
        let own = match &choice.workspace {
            Some(root) => MemoryPlace {
                id: format!("{}.workspace", project_id(root)),
                kind: MemoryKind::Workspace,
                root: root.clone(),
            },
            None => self.project(project),
        };
        let repository = Self::repository(project);
        let has_repository = self.repository_problem(project).is_none() && repository.root.is_dir();
        Ok([Some(own), has_repository.then_some(repository), Some(self.user())]
            .into_iter()
            .flatten()
            .collect())
    }

    /// Why the memory that lies in a project's repository is not used: a link leads to it, or it is one of the user's own.
    /// A repository says nothing of other directories.
    #[must_use]
    pub fn repository_problem(&self, project: &Path) -> Option<FileProblem> {
        let root = Self::repository(project).root;
        for directory in [root.parent()?, root.as_path()] {
            match std::fs::symlink_metadata(directory) {
                Ok(found) if found.is_symlink() => return Some(FileProblem::Link),
                Ok(found) if !found.is_dir() => return Some(FileProblem::NotAFile),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        let is_own = |real: PathBuf| self.home.canonicalize().is_ok_and(|home| real.starts_with(home));
        root.canonicalize().is_ok_and(is_own).then_some(FileProblem::Link)
    }

    /// The content of a repository's memory that was accepted; nothing where the choices cannot be read.
    pub(crate) fn accepted_content(&self, place: &MemoryPlace) -> Option<String> {
        let is_repository = place.kind == MemoryKind::Repository;
        let project = Some(place.root.parent()?.parent()?).filter(|_| is_repository)?;
        self.choices().ok()?.of(project)?.accepted.clone()
    }

    /// Held by who moves lines between memories; one at a time does.
    ///
    /// # Errors
    /// `Busy` where another one takes longer than ten seconds, `Io`.
    pub async fn moving(&self) -> Result<MoveLock, MemoryError> {
        Ok(MoveLock { _lock: FileLock::take(&self.state().join("move.lock")).await? })
    }

    /// What was chosen.
    ///
    /// # Errors
    /// Where the file is there and cannot be used.
    pub fn choices(&self) -> Result<MemoryChoices, MemoryError> {
        let path = self.choices_path();
        let failed = |why: String| MemoryError::Choices { path: path.clone(), why };
        let mut text = String::new();
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(MemoryChoices::default()),
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if !found.is_file() => return Err(failed("it is not a regular file".into())),
            Ok(found) if found.len() > LIMIT => return Err(failed("it is larger than 1 MiB".into())),
            Ok(_) => File::open(&path)
                .and_then(|file| file.take(LIMIT).read_to_string(&mut text))
                .map_err(|error| failed(error.to_string()))?,
        };
        let choices: MemoryChoices =
            serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if choices.version != VERSION {
            return Err(failed(format!(
                "it has version {}; this program knows only version {VERSION}",
                choices.version
            )));
        }
        Ok(choices)
    }

    /// Changes what was chosen for a project.
    ///
    /// # Errors
    /// Where the file cannot be read or written, or the name of the project is not text.
    pub fn choose(&self, project: &Path, change: impl FnOnce(&mut ProjectChoice)) -> Result<(), MemoryError> {
        let path = self.choices_path();
        let failed = |why: String| MemoryError::Choices { path: path.clone(), why };
        let name = project.to_str().ok_or_else(|| failed(format!("{} is not text", project.display())))?;
        let io = |error: std::io::Error| failed(error.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.home).map_err(io)?;
        let _lock = FileLock::wait(&path.with_extension("lock"))?;
        let mut choices = self.choices()?;
        change(choices.projects.entry(name.to_owned()).or_default());
        let mut text = serde_json::to_string_pretty(&choices).map_err(|error| failed(error.to_string()))?;
        text.push('\n');
        let mut aside = tempfile::Builder::new()
            .prefix(".memory-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .tempfile_in(&self.home)
            .map_err(io)?;
        aside.write_all(text.as_bytes()).map_err(io)?;
        aside.as_file().sync_all().map_err(io)?;
        aside.persist(&path).map_err(|error| io(error.error))?;
        Ok(())
    }
}

/// Held while lines move from one memory to another.
#[derive(Debug)]
pub struct MoveLock {
    _lock: FileLock,
}

/// The root of the project that a directory is in: that of its repository, or itself.
#[must_use]
pub fn project_root(cwd: &Path) -> &Path {
    cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(cwd)
}

/// A name for a project that is the same in every process: its last part, and a hash of its path.
fn project_id(project: &Path) -> String {
    let last = project.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' })
        .take(NAME)
        .collect();
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "project" } else { name };
    let digest = Sha256::digest(project.as_os_str().as_encoded_bytes());
    let hash: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    format!("{name}-{hash}")
}
