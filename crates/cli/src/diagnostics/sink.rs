//! Where lines go: stderr, or a file that only its owner reads.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of a file; then it is renamed and a new one is begun.
const FILE: u64 = 64 << 20;

/// Takes lines until it fails for the first time.
pub(super) enum Sink {
    Stderr,
    File(Mutex<LogFile>),
}

/// A file that lines are appended to.
pub(super) struct LogFile {
    path: PathBuf,
    /// `None` once it failed.
    file: Option<File>,
    limit: u64,
    /// What is told of a failure.
    warn: fn(&str),
}

impl Sink {
    pub(super) fn write(&self, line: &str) {
        match self {
            // A stderr that is gone cannot be told so.
            Self::Stderr => drop(writeln!(io::stderr().lock(), "{line}")),
            Self::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write(line),
        }
    }
}

impl LogFile {
    /// Opens the file, and makes it and the directory `logs` of ours where they are not there.
    pub(super) fn open(path: &Path, warn: fn(&str)) -> io::Result<Self> {
        Self::with_limit(path, FILE, warn)
    }

    fn with_limit(path: &Path, limit: u64, warn: fn(&str)) -> io::Result<Self> {
        let file = Some(open(path)?);
        // Renamed is the file, not a link to it.
        Ok(Self { path: path.canonicalize()?, file, limit, warn })
    }

    fn write(&mut self, line: &str) {
        let Some(file) = &mut self.file else { return };
        // One write, so that lines of several processes do not mix.
        let bytes = [line.as_bytes(), b"\n"].concat();
        let written = file.write_all(&bytes).and_then(|()| rotate(file, &self.path, self.limit));
        match written {
            Ok(None) => {}
            Ok(Some(next)) => self.file = Some(next),
            Err(error) => {
                self.file = None;
                (self.warn)(&format!(
                    "tracing stopped: {}: {error}; the session continues",
                    self.path.display()
                ));
            }
        }
    }
}

/// Makes the directory of the logs.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // A pipe that nobody reads is an error and no wait.
    let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_CLOEXEC;
    let file = options.append(true).create(true).mode(0o600).custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    if found.file_type().is_socket() || found.is_dir() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

/// The file to go on with, where this one is full: it is renamed by one process, and the others follow.
fn rotate(file: &File, path: &Path, limit: u64) -> io::Result<Option<File>> {
    let found = file.metadata()?;
    if !found.is_file() || found.len() < limit {
        return Ok(None);
    }
    // Held until the file is closed. Where another process has it, the next line finds what came of that.
    if file.try_lock().is_err() {
        return Ok(None);
    }
    let number = |at: &std::fs::Metadata| (at.dev(), at.ino());
    let is_ours = std::fs::symlink_metadata(path).is_ok_and(|at| number(&at) == number(&found));
    if is_ours {
        let mut old = path.as_os_str().to_owned();
        old.push(".1");
        std::fs::rename(path, old)?;
    }
    open(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_renamed_once_and_both_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut one = LogFile::with_limit(&path, 100, |why| panic!("{why}")).unwrap();
        // Of another process.
        let mut two = LogFile::with_limit(&path, 100, |why| panic!("{why}")).unwrap();
        for number in 0..40 {
            let line = format!("{number:030}");
            if number % 2 == 0 { one.write(&line) } else { two.write(&line) }
        }
        for path in [&path, &old] {
            let found = std::fs::metadata(path).unwrap();
            assert_eq!(found.mode() & 0o777, 0o600);
            assert!(found.len() < 200, "{}", found.len());
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.lines().all(|line| line.len() == 30), "{text}");
        }
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2);
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(LogFile::open(&path, |_| {}).is_err());
        assert!(LogFile::open(dir.path(), |_| {}).is_err());
    }
}
