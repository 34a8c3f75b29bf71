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
use crate::project::{project_root, project_tree};
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
    /// The name of its memory, where that is not made of its path: it was adopted, or another project has that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
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

    /// The name of a project's memory.
    fn memory_of(&self, project: &Path) -> String {
        self.of(project).and_then(|choice| choice.memory.clone()).unwrap_or_else(|| project_id(project))
    }

    /// Whether another project has this memory.
    fn is_taken(&self, id: &str, project: &Path) -> bool {
        self.projects.keys().map(Path::new).any(|other| other != project && self.memory_of(other) == id)
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

    /// The memory of a project that was not adopted, by the root of it.
    #[must_use]
    pub fn project(&self, project: &Path) -> MemoryPlace {
        self.own(project_id(project))
    }

    fn own(&self, id: String) -> MemoryPlace {
        let root = self.root().join(&id);
        MemoryPlace { id, kind: MemoryKind::Project, root }
    }

    /// Memories of projects whose directory is not there any more: one of them may be that of a project that was moved. And those of
    /// linked worktrees of `project`, from before these had its memory. Those with the name of `project` come first.
    ///
    /// # Errors
    /// Where the file of choices cannot be used.
    pub fn lost(&self, project: &Path) -> Result<Vec<LostMemory>, MemoryError> {
        Ok(self.lost_of(project, &self.choices()?))
    }

    fn lost_of(&self, project: &Path, choices: &MemoryChoices) -> Vec<LostMemory> {
        let is_gone = |path: &Path| matches!(path.try_exists(), Ok(false));
        // Or one that was switched on in a worktree of this project, before worktrees shared a memory.
        let is_of = |path: &Path| path != project && project_root(path) == project;
        let gone = choices.projects().map(|(path, choice)| (Path::new(path), choice));
        let gone = gone.filter(|(path, choice)| {
            (is_gone(path) || is_of(path))
                && (choice.workspace.is_some() || self.own(choices.memory_of(path)).root.is_dir())
        });
        let mut lost: Vec<LostMemory> = gone
            .map(|(path, choice)| LostMemory {
                project: path.to_path_buf(),
                root: choice.workspace.clone().unwrap_or_else(|| self.own(choices.memory_of(path)).root),
            })
            .collect();
        lost.sort_by_key(|lost| lost.project.file_name() != project.file_name());
        lost
    }

    /// Gives a project one of the memories that [`lost`](Self::lost) names. A person decides it: nothing in the files of a
    /// project says whose memory it is.
    ///
    /// # Errors
    /// `Adoption` where the other directory is there, has no memory, or the project has a memory of its own; where the file of
    /// choices cannot be read or written.
    pub fn adopt(&self, project: &Path, former: &Path) -> Result<MemoryPlace, MemoryError> {
        let refused = |why: String| MemoryError::Adoption { former: former.to_path_buf(), why };
        let name = project.to_str().ok_or_else(|| refused(format!("{} is not text", project.display())))?;
        let _lock = FileLock::wait(&self.choices_path().with_extension("lock"))?;
        let mut choices = self.choices()?;
        let lost = self.lost_of(project, &choices);
        let Some(lost) = lost.into_iter().find(|lost| lost.project == former) else {
            return Err(refused(match former.try_exists() {
                Ok(false) => "no memory is known of it".to_owned(),
                Ok(true) | Err(_) => "the directory is there, so its memory is its own".to_owned(),
            }));
        };
        let own = self.own(choices.memory_of(project));
        let has_own = choices.of(project).is_some_and(|choice| choice.workspace.is_some());
        if has_own || !crate::files::list_files(&own.root).is_empty() {
            let own = own.root.display();
            return Err(refused(format!("{} has a memory already, in {own}", project.display())));
        }
        // As it was written when it was chosen.
        let memory = choices.memory_of(&lost.project);
        let Some(before) = lost.project.to_str().and_then(|former| choices.projects.remove(former)) else {
            return Err(refused("no memory is known of it".to_owned()));
        };
        // What a repository brings along is accepted where it lies.
        let taken =
            ProjectChoice { on: true, workspace: before.workspace, memory: Some(memory), accepted: None };
        choices.projects.insert(name.to_owned(), taken);
        self.keep(&choices)?;
        Ok(self.place_of(project, &choices))
    }

    /// The memory of a project as it was chosen.
    fn place_of(&self, project: &Path, choices: &MemoryChoices) -> MemoryPlace {
        match choices.of(project).and_then(|choice| choice.workspace.clone()) {
            Some(root) => MemoryPlace {
                id: format!("{}.workspace", project_id(&root)),
                kind: MemoryKind::Workspace,
                root,
            },
            None => self.own(choices.memory_of(project)),
        }
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
        let (project, tree) = (project_root(cwd), project_tree(cwd));
        let choices = self.choices()?;
        if !choices.of(&project).is_some_and(|choice| choice.on) {
            return Ok(Vec::new());
        }
        let own = self.place_of(&project, &choices);
        // Of the files that are worked on: another worktree may have other ones.
        let repository = Self::repository(&tree);
        let has_repository = self.repository_problem(&tree).is_none() && repository.root.is_dir();
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
        self.choices().ok()?.of(&project_root(project))?.accepted.clone()
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
        let choice = choices.projects.entry(name.to_owned()).or_default();
        change(choice);
        let (is_on, has_name) = (choice.on, choice.memory.is_some());
        // The name that its path gives may be that of a memory which a project took along from there.
        let id = project_id(project);
        if is_on && !has_name && choices.is_taken(&id, project) {
            let is_free = |id: &String| !choices.is_taken(id, project) && !self.root().join(id).exists();
            let free = (2..).map(|number| format!("{id}-{number}")).find(is_free);
            choices.projects.entry(name.to_owned()).or_default().memory = free;
        }
        self.keep(&choices)
    }

    fn keep(&self, choices: &MemoryChoices) -> Result<(), MemoryError> {
        let path = self.choices_path();
        let failed = |why: String| MemoryError::Choices { path: path.clone(), why };
        let io = |error: std::io::Error| failed(error.to_string());
        let mut text = serde_json::to_string_pretty(choices).map_err(|error| failed(error.to_string()))?;
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

/// A memory of a project whose directory is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostMemory {
    /// The root that the project had.
    pub project: PathBuf,
    /// Where its memory is.
    pub root: PathBuf,
}

/// Held while lines move from one memory to another.
#[derive(Debug)]
pub struct MoveLock {
    _lock: FileLock,
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
