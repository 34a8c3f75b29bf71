//! A JSON file in the home that programs change: one change at a time, and readers always see a whole file.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Failure;

/// Bytes of such a file at most.
const LIMIT: u64 = 8 << 20;

/// What such a file holds. Its default is what holds where there is no file.
pub(crate) trait State: Default + Serialize + DeserializeOwned {
    /// The only version that this program reads and writes.
    const VERSION: u32;
    /// What the user loses by removing the file, behind "to".
    const RESET: &str;

    fn version(&self) -> u32;
}

/// Such a file. Beside it is a lock of its name with `lock` in place of `json`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StateFile {
    pub(crate) path: PathBuf,
}

impl StateFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// What it holds now.
    ///
    /// # Errors
    /// When it is there and cannot be read, or is of another version.
    pub(crate) fn read<S: State>(&self) -> Result<S, Failure> {
        let shown = self.path.display();
        let failed = |why: String| {
            Failure::failed(format!(
                "{shown} cannot be used: {why}; correct it, or remove it to {}",
                S::RESET
            ))
        };
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(S::default()),
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if !found.is_file() => return Err(failed("it is not a regular file".into())),
            Ok(found) if found.len() > LIMIT => return Err(failed("it is larger than 8 MiB".into())),
            Ok(_) => {}
        }
        let mut text = String::new();
        File::open(&self.path)
            .and_then(|file| file.take(LIMIT).read_to_string(&mut text))
            .map_err(|error| failed(error.to_string()))?;
        let state: S = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if state.version() != S::VERSION {
            let (theirs, ours) = (state.version(), S::VERSION);
            return Err(failed(format!("it has version {theirs}; this program knows only version {ours}")));
        }
        Ok(state)
    }

    /// Changes it under its lock. `change` says whether it changed something; nothing is written otherwise.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it cannot be written.
    pub(crate) fn change<S: State>(&self, change: impl FnOnce(&mut S) -> bool) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed(format!("{} cannot be written: {error}", self.path.display()))
        };
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let lock = self.path.with_extension("lock");
        let lock = File::options().append(true).create(true).mode(0o600).open(lock).map_err(failed)?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))?;
        let mut state: S = self.read()?;
        if !change(&mut state) {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(&state).map_err(|error| failed(error.into()))?;
        text.push('\n');
        replace(&self.path, &text).map_err(failed)
    }
}

/// Puts a file of the home in the place of the one before: written aside, so that nobody ever reads half of it.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut aside = tempfile::Builder::new().prefix(".state-").tempfile_in(dir)?;
    aside.write_all(text.as_bytes())?;
    aside.as_file().sync_all()?;
    aside.persist(path).map_err(|error| error.error)?;
    Ok(())
}
