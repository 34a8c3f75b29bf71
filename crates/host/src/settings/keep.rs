//! Changes a file of settings: one value, and no other text.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

use super::check::read_words;
use super::edit::{EditError, set, unset};
use super::layer::{ProblemKind, bytes_of, near};
use super::project::{is_trusted, project_settings_path, project_to_trust, trust_project};
use super::table::{KEYS, Key, ProjectUse};
use super::text::{Form, line_of, parse};
use crate::{Failure, Home};

/// How long ago a file was emptied by somebody who may be about to write it.
const EMPTIED: Duration = Duration::from_secs(2);

/// Which file is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsFile {
    /// The user's.
    User,
    /// That of the project that this directory is in.
    Project(PathBuf),
}

/// Why a setting is not changed.
#[derive(Debug)]
pub enum SettingError {
    /// There is no setting of this name.
    Unknown {
        /// The name that was given.
        name: String,
        /// The one that may be meant.
        nearest: Option<String>,
    },
    /// It may not have this value: what is wrong.
    Invalid(String),
    /// A project may not set it.
    Refused {
        /// The setting of the table.
        key: &'static Key,
        /// The reason.
        why: &'static str,
    },
    /// The file is no JSON from this line on.
    Syntax {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// What should hold the setting is no object.
    NotAnObject {
        /// The file.
        path: PathBuf,
        /// What it is; empty for the whole of the file.
        name: String,
    },
    /// The file cannot be read: why.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason, in words.
        why: String,
    },
    /// There is no such file to be changed, or what was accepted could not be kept.
    Failed(Failure),
    /// The file could not be written.
    Io(std::io::Error),
}

impl From<std::io::Error> for SettingError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for SettingError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Whether storing a setting changed a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// The file was written.
    Yes,
    /// The file had this value already and was not written.
    No,
    /// The file was written; it belongs to a project that the user has not accepted.
    Untrusted,
}

/// The result of storing a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSetting {
    /// The full name of the setting.
    pub name: String,
    /// The setting; `None` for a name that means nothing, and was removed.
    pub key: Option<&'static Key>,
    /// What the file says now; `None` for nothing.
    pub value: Option<Value>,
    /// The file.
    pub path: PathBuf,
    /// What became of the file.
    pub changed: FileChange,
}

/// Sets a setting in a file.
///
/// # Errors
/// Why it is not set; nothing was written then.
pub fn set_setting(
    home: &Home,
    file: &SettingsFile,
    name: &str,
    words: &str,
) -> Result<StoredSetting, SettingError> {
    let key = Key::named(name)
        .ok_or_else(|| SettingError::Unknown { name: name.to_owned(), nearest: near(name) })?;
    if let (SettingsFile::Project(_), ProjectUse::Refused(why)) = (file, key.project) {
        return Err(SettingError::Refused { key, why });
    }
    let value = check_setting(name, words).map_err(SettingError::Invalid)?;
    let path = key.path();
    let (file, changed) = change(home, file, |text| set(text, &path, &value).map(Some))?;
    Ok(StoredSetting { name: name.to_owned(), key: Some(key), value: Some(value), path: file, changed })
}

/// The value of a setting that words stand for.
///
/// # Errors
/// Why it cannot be that.
pub(crate) fn check_setting(name: &str, words: &str) -> Result<Value, String> {
    let key = Key::named(name).ok_or_else(|| format!("there is no setting {name}"))?;
    read_words(key, words)
}

/// Takes a setting out of a file. A name that means nothing is taken out as well.
///
/// # Errors
/// Why it is not taken out; nothing was written then.
pub fn unset_setting(home: &Home, file: &SettingsFile, name: &str) -> Result<StoredSetting, SettingError> {
    let key = Key::named(name);
    let names = [Some(name), key.and_then(|key| key.formerly)];
    let (file, changed) = change(home, file, |text| {
        let mut new = None;
        for (at, name) in names.into_iter().enumerate().filter_map(|(at, name)| Some((at, name?))) {
            let path: Vec<&str> = name.split('.').collect();
            let current = new.as_deref().unwrap_or(text);
            // Of a former name that is a section now, other settings stand there.
            if at == 0 || !is_section(current, name, &path) {
                new = unset(current, &path)?.or(new);
            }
        }
        Ok(new)
    })?;
    if key.is_none() && changed == FileChange::No {
        return Err(SettingError::Unknown { name: name.to_owned(), nearest: near(name) });
    }
    Ok(StoredSetting { name: name.to_owned(), key, value: None, path: file, changed })
}

/// Whether a name is that of an object in which settings stand.
fn is_section(text: &str, name: &str, path: &[&str]) -> bool {
    let is_within = |key: &Key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let Ok(root) = parse(text) else { return false };
    let found = path.iter().try_fold(&root, |at, name| Some(&at.member(name)?.value));
    KEYS.iter().any(is_within) && found.is_some_and(|found| matches!(found.form, Form::Object(_)))
}

/// Whether an empty file of settings had some: this process goes on with them, or somebody emptied it a moment ago, as some programs do
/// before they write it. With one setting written to it, the others would be lost.
fn may_come_back(home: &Home, path: &Path) -> bool {
    let keeps = home.config().problems.iter().any(|problem| matches!(problem.kind, ProblemKind::Emptied));
    let changed = std::fs::metadata(path).and_then(|file| file.modified());
    keeps || changed.is_ok_and(|at| at.elapsed().map_or(true, |age| age < EMPTIED))
}

/// Changes the text of a file; nobody else does meanwhile.
fn change(
    home: &Home,
    file: &SettingsFile,
    edit: impl FnOnce(&str) -> Result<Option<String>, EditError>,
) -> Result<(PathBuf, FileChange), SettingError> {
    let path = match file {
        SettingsFile::User => home.settings_path(),
        SettingsFile::Project(cwd) => project_settings_path(home, cwd)?,
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&home.dir)?;
    let lock = home.dir.join("settings.lock");
    let lock = File::options().append(true).create(true).mode(0o600).open(lock)?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, error)| SettingError::Io(std::io::Error::from(error)))?;
    let unreadable = |why: String| SettingError::Unreadable { path: path.clone(), why };
    let bytes = bytes_of(&path).map_err(unreadable)?;
    let trusted = match (file, &bytes) {
        (SettingsFile::Project(cwd), Some(bytes)) => is_trusted(home, cwd, bytes),
        (SettingsFile::Project(_) | SettingsFile::User, _) => true,
    };
    let is_there = bytes.is_some();
    let text = String::from_utf8(bytes.unwrap_or_default())
        .map_err(|_| unreadable("it is not text (UTF-8)".to_owned()))?;
    if *file == SettingsFile::User
        && is_there
        && text.trim_start_matches('\u{feff}').trim().is_empty()
        && may_come_back(home, &path)
    {
        let why = "it is empty, and had settings before; write {} to it, or remove it, to set nothing";
        return Err(unreadable(why.to_owned()));
    }
    let new = edit(&text).map_err(|error| match error {
        EditError::Syntax(at) => SettingError::Syntax { path: path.clone(), line: line_of(&text, at) },
        EditError::NotAnObject(name) => SettingError::NotAnObject { path: path.clone(), name },
    })?;
    let Some(new) = new.filter(|new| *new != text) else { return Ok((path, FileChange::No)) };
    write(file, &path, &new)?;
    match file {
        SettingsFile::User => Ok((path, FileChange::Yes)),
        SettingsFile::Project(_) if !trusted => Ok((path, FileChange::Untrusted)),
        // It was the user who changed it.
        SettingsFile::Project(cwd) => {
            trust_project(home, &project_to_trust(home, cwd)?)?;
            Ok((path, FileChange::Yes))
        }
    }
}

/// Writes a file in one step: whoever reads it meanwhile reads all of the old one.
fn write(file: &SettingsFile, path: &Path, text: &str) -> Result<(), SettingError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = target.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let mut aside = tempfile::Builder::new().prefix(".settings-").tempfile_in(directory)?;
    aside.write_all(text.as_bytes())?;
    match (std::fs::metadata(&target), file) {
        (Ok(old), _) => aside.as_file().set_permissions(old.permissions())?,
        // It goes with the project, to whoever has that.
        (Err(_), SettingsFile::Project(_)) => {
            aside.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        (Err(_), SettingsFile::User) => {}
    }
    aside.as_file().sync_all()?;
    aside.persist(&target).map_err(|error| SettingError::Io(error.error))?;
    Ok(())
}
