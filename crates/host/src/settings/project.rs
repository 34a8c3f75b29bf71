//! The settings that a project brings along: they count as they were accepted, and not when they have changed since.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{Hook, HookAnswer, ProjectTrust, Sealer, StartupHooks, TrustVerdict};

use super::layer::{Layer, Source, bytes_of};
use super::{KEYS, Key, ProjectUse};
use crate::{Failure, Home, PermissionItem, Record};

/// The root of the project that a directory is in: that of its repository, or itself.
pub(crate) fn project_root(cwd: &Path) -> &Path {
    cwd.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(cwd)
}

/// The file of the project's settings; `None` where that would be the user's own.
pub(super) fn project_file(home: &Path, cwd: &Path) -> Option<PathBuf> {
    let root = project_root(cwd);
    let directory = root.join(".quipu");
    let is_own = directory == home
        || std::env::home_dir().is_some_and(|own| own == root)
        || directory.canonicalize().is_ok_and(|real| home.canonicalize().is_ok_and(|home| home == real));
    (!is_own).then(|| directory.join("settings.json"))
}

/// The file of the settings of the project that `cwd` is in, whether or not it is there.
///
/// # Errors
/// `Request` where there is none: the user's own files are in that directory.
pub fn project_settings_path(home: &Home, cwd: &Path) -> Result<PathBuf, Failure> {
    project_file(&home.dir, cwd).ok_or_else(|| {
        Failure::request(format!(
            "{} is not a project: its settings are your own; change to the directory of a project",
            project_root(cwd).display()
        ))
    })
}

/// Whether somebody has accepted the file as it is.
pub(super) fn is_accepted(record: &Record, file: &Path, bytes: &[u8]) -> bool {
    // What cannot be read accepts nothing.
    let Ok(project) = record.project() else { return false };
    let hash = content_of(bytes);
    project.entries.iter().any(|entry| {
        matches!(&entry.what, PermissionItem::Settings { path, content } if Path::new(path) == file && *content == hash)
    })
}

fn content_of(bytes: &[u8]) -> String {
    quipu::history::content_of(bytes).to_string()
}

/// Whether the settings of the project that `cwd` is in count as they are now.
pub(crate) fn is_trusted(home: &Home, cwd: &Path, bytes: &[u8]) -> bool {
    project_file(&home.dir, cwd)
        .is_some_and(|file| is_accepted(&Record::in_home(&home.dir, project_root(cwd)), &file, bytes))
}

/// What a project wants to set.
#[derive(Debug, Clone, PartialEq)]
pub struct ProjectToTrust {
    /// The file.
    pub path: PathBuf,
    /// What would count, each with its value.
    pub values: Vec<(&'static Key, serde_json::Value)>,
    /// What is wrong with the file.
    pub problems: Vec<super::Problem>,
    /// Whether it counts already.
    pub is_trusted: bool,
    root: PathBuf,
    bytes: Vec<u8>,
}

/// What the project that `cwd` is in wants to set, to be shown before it is accepted.
///
/// # Errors
/// `Request` where there is no such file, or it cannot be read.
pub fn project_to_trust(home: &Home, cwd: &Path) -> Result<ProjectToTrust, Failure> {
    let path = project_settings_path(home, cwd)?;
    let bytes = bytes_of(&path).map_err(|why| Failure::request(format!("{}: {why}", path.display())))?;
    let bytes = bytes.ok_or_else(|| Failure::request(format!("{} does not exist", path.display())))?;
    let source = Source::Project(path.clone());
    let layer = Layer::of_file(&source, Ok(Some(bytes.clone()))).of_project(&source);
    let values = KEYS.iter().filter(|key| key.project == ProjectUse::Allowed);
    let values = values.filter_map(|key| Some((key, layer.values.get(key.name)?.clone()))).collect();
    let is_trusted = is_trusted(home, cwd, &bytes);
    let root = project_root(cwd).to_owned();
    Ok(ProjectToTrust { path, values, problems: layer.problems, is_trusted, root, bytes })
}

/// Asks hooks of the program whether the project that `cwd` is in is trusted. What they say counts for as long as the program runs, and
/// for the file as it is.
pub(crate) async fn ask_project_hooks(home: &Home, hooks: &[Arc<dyn Hook>], sealer: Arc<Sealer>, cwd: &Path) {
    // A project without such a file has nothing to trust.
    let Some(project) =
        Some(hooks).filter(|hooks| !hooks.is_empty()).and_then(|_| project_to_trust(home, cwd).ok())
    else {
        return;
    };
    let ProjectToTrust { path, values, root, bytes, .. } = project;
    let settings = values.iter().map(|(key, _)| key.name.to_owned()).collect();
    let asked = ProjectTrust { root, file: path.clone(), settings };
    let HookAnswer { value, notices } = StartupHooks::new(hooks, sealer, cwd).project_trust(&asked).await;
    for notice in notices {
        home.note(notice);
    }
    let is_trusted = match value {
        TrustVerdict::Pass => None,
        TrustVerdict::Trust => Some(true),
        TrustVerdict::Distrust { reason } => {
            home.warn(format!("The settings of {} are ignored: {reason}", path.display()));
            Some(false)
        }
    };
    let decision = is_trusted.map(|is_trusted| Decision { content: content_of(&bytes), is_trusted });
    home.decide_project(path, decision);
}

/// What a hook decided of a project's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Of the file with this content.
    content: String,
    is_trusted: bool,
}

impl Decision {
    /// Whether a file with these bytes is trusted; `None` where it is another one than was decided about.
    pub(super) fn on(&self, bytes: &[u8]) -> Option<bool> {
        (self.content == content_of(bytes)).then_some(self.is_trusted)
    }
}

/// Accepts the settings of a project as they were shown. What was accepted of the same file before counts no more.
///
/// # Errors
/// Where the permissions cannot be written.
pub fn trust_project(home: &Home, project: &ProjectToTrust) -> Result<(), Failure> {
    let Some(path) = project.path.to_str() else {
        return Err(Failure::request(format!("{}: its name is not text (UTF-8)", project.path.display())));
    };
    let content = content_of(&project.bytes);
    Record::in_home(&home.dir, &project.root).accept_settings(path, content)
}
