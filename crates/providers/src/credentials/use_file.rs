//! The file that keeps how keys were used: shared by processes, without secrets.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::AuthFileError;
use super::auth_file::{locked, put_whole};
use super::key_use::KeyUse;

/// Its name.
const FILE: &str = "auth-state.json";
/// Bytes of the file at most.
const MAX_BYTES: u64 = 1 << 20;
/// The version of its form.
const VERSION: u32 = 1;

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyUses {
    version: u32,
    /// By the id of the key.
    #[serde(default)]
    pub(crate) keys: BTreeMap<String, KeyUse>,
}

impl Default for KeyUses {
    fn default() -> Self {
        Self { version: VERSION, keys: BTreeMap::new() }
    }
}

/// `auth-state.json` of a home directory: 0600, written under a lock, whole or not at all.
#[derive(Debug, Clone)]
pub(crate) struct KeyUseFile {
    path: PathBuf,
}

impl KeyUseFile {
    /// The file in `home`; it need not exist.
    pub(crate) fn new(home: &Path) -> Self {
        Self { path: home.join(FILE) }
    }

    /// What it holds now.
    ///
    /// # Errors
    /// When it cannot be read, is no such file, or is of another version.
    pub(crate) fn read(&self) -> Result<KeyUses, AuthFileError> {
        let found = match fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(KeyUses::default()),
            found => found.map_err(|error| self.io(error))?,
        };
        if !found.is_file() {
            return Err(self.invalid("it is not a regular file"));
        }
        let file = File::open(&self.path).map_err(|error| self.io(error))?;
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| self.io(error))?;
        if read as u64 > MAX_BYTES {
            return Err(self.invalid(format!("it is larger than {MAX_BYTES} bytes")));
        }
        let uses: KeyUses = serde_json::from_str(&text).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            self.invalid(format!("it does not have the expected form ({place})"))
        })?;
        if uses.version != VERSION {
            let theirs = uses.version;
            return Err(
                self.invalid(format!("it has version {theirs}; this program knows version {VERSION}"))
            );
        }
        Ok(uses)
    }

    /// Changes it under its lock. `change` says whether it changed something; nothing is written otherwise.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it cannot be written.
    pub(crate) fn change(&self, change: impl FnOnce(&mut KeyUses) -> bool) -> Result<(), AuthFileError> {
        let directory = self.path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        let _lock = locked(&directory, FILE)?;
        let mut uses = self.read()?;
        if !change(&mut uses) {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(&uses).map_err(|error| self.io(error.into()))?;
        text.push('\n');
        put_whole(&self.path, &directory.join(format!("{FILE}.{}.tmp", std::process::id())), &text)
    }

    /// Forgets how a key was used: another one is kept under its name, or none.
    ///
    /// # Errors
    /// As [`change`](Self::change). Where there is no file, nothing is done.
    pub(crate) fn forget(&self, id: &str) -> Result<(), AuthFileError> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            _ => self.change(|uses| uses.keys.remove(id).is_some()),
        }
    }

    fn io(&self, source: std::io::Error) -> AuthFileError {
        AuthFileError::Io { path: self.path.clone(), source }
    }

    fn invalid(&self, problem: impl Into<String>) -> AuthFileError {
        AuthFileError::Invalid { path: self.path.clone(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::key_use::RestReason;

    #[test]
    fn uses_are_kept_private_and_shared() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        let file = KeyUseFile::new(&home);
        assert_eq!(file.read().unwrap(), KeyUses::default());
        file.forget("p").unwrap();
        assert!(!home.exists(), "nothing is written where nothing is kept");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for key in 0..4 {
                        let fail = |uses: &mut KeyUses| {
                            let state = uses.keys.entry(format!("p{thread}-{key}")).or_default();
                            state.failed(1, RestReason::Auth, "m");
                            true
                        };
                        file.change(fail).unwrap();
                    }
                });
            }
        });
        assert_eq!(file.read().unwrap().keys.len(), 32);
        file.forget("p0-0").unwrap();
        assert_eq!(file.read().unwrap().keys.len(), 31);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(home.join("auth-state.json")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let left: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn unreadable_file_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyUseFile::new(directory.path());
        for text in ["{", "[]", r#"{"version":2}"#] {
            fs::write(&file.path, text).unwrap();
            assert!(matches!(file.read(), Err(AuthFileError::Invalid { .. })), "{text}");
            assert!(file.change(|_| true).is_err() && file.forget("p").is_err());
            assert_eq!(fs::read_to_string(&file.path).unwrap(), text);
        }
    }
}
