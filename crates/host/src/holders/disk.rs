//! Files that are looked through and removed.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use quipu_store::{HolderError, Needles};
use tokio::sync::oneshot;

/// Bytes that are looked through at once.
const WINDOW: usize = 1 << 20;
/// Directories that lie in each other at most.
const DEPTH: usize = 64;

/// Does what may wait for a disk in a thread of its own.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HolderError> + Send + 'static,
) -> Result<T, HolderError> {
    let (answer, answered) = oneshot::channel();
    let failed = |detail: String| HolderError::File {
        path: PathBuf::from("."),
        doing: "start a thread for the files of",
        detail,
    };
    let work = move || {
        // Whoever asked may have given up.
        let _given_up = answer.send(work());
    };
    std::thread::Builder::new()
        .name("holder-files".to_owned())
        .spawn(work)
        .map_err(|error| failed(error.to_string()))?;
    match answered.await {
        Ok(done) => done,
        Err(_) => Err(failed("it exited without an answer".to_owned())),
    }
}

/// A file that is found.
#[derive(Debug, Clone)]
pub(super) struct DiskFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

impl DiskFile {
    /// Its place in a page.
    pub(super) fn key(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// The regular files in a directory and those below it, by their keys; none where it is not there. Links are not followed;
/// what nobody may read is left out, and so is what is removed meanwhile.
pub(super) fn files_below(root: &Path) -> Result<Vec<DiskFile>, HolderError> {
    let mut found = Vec::new();
    match std::fs::symlink_metadata(root) {
        Err(error) if is_gone(&error) => return Ok(found),
        Err(error) => return Err(HolderError::file(root, "read", &error)),
        Ok(there) if !there.is_dir() => return Ok(found),
        Ok(_) => {}
    }
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if depth > 0 && is_closed(&error) => continue,
            Err(error) => return Err(HolderError::file(&dir, "read", &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| HolderError::file(&dir, "read", &error))?;
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < DEPTH {
                open.push((entry.path(), depth + 1));
            } else if about.is_file() {
                found.push(DiskFile { path: entry.path(), bytes: about.len() });
            }
        }
    }
    // As pages are: paths compare by their parts, which is another order.
    found.sort_by_cached_key(DiskFile::key);
    Ok(found)
}

/// A regular file of a path; `None` where there is none, or something else.
pub(super) fn file_at(path: &Path) -> Result<Option<DiskFile>, HolderError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(HolderError::file(path, "read", &error)),
        Ok(about) if about.is_file() => Ok(Some(DiskFile { path: path.to_owned(), bytes: about.len() })),
        Ok(_) => Ok(None),
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_closed(error: &io::Error) -> bool {
    is_gone(error) || error.kind() == io::ErrorKind::PermissionDenied
}

/// Opens a regular file without following a link or waiting for whoever is at the other end of something else.
pub(super) fn open(path: &Path, writable: bool) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file =
        std::fs::OpenOptions::new().read(true).write(writable).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Whether a file holds what is looked for; one that is gone does not.
pub(super) fn holds(path: &Path, needles: &Needles) -> Result<bool, HolderError> {
    if needles.is_empty() {
        return Ok(false);
    }
    match open(path, false).and_then(|file| is_in(&file, needles)) {
        Err(error) if is_gone(&error) => Ok(false),
        done => done.map_err(|error| HolderError::file(path, "read", &error)),
    }
}

fn is_in(file: &File, needles: &Needles) -> io::Result<bool> {
    let over = needles.longest();
    let mut window = Vec::with_capacity(WINDOW + over);
    let mut from = 0;
    loop {
        let read = file.take_at(&mut window, from, WINDOW)?;
        if needles.are_in(&window) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        from += read as u64;
        let keep = window.len().min(over);
        window.drain(..window.len() - keep);
    }
}

trait PositionedRead {
    fn take_at(&self, into: &mut Vec<u8>, at: u64, most: usize) -> io::Result<usize>;
}

impl PositionedRead for File {
    /// Adds bytes from a place on.
    fn take_at(&self, into: &mut Vec<u8>, at: u64, most: usize) -> io::Result<usize> {
        let before = into.len();
        into.resize(before + most, 0);
        let read = loop {
            match self.read_at(&mut into[before..], at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        into.truncate(before + read);
        Ok(read)
    }
}

/// All bytes of a file of at most so many.
pub(super) fn whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, false)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than such a file may be"));
    }
    Ok(bytes)
}

/// Removes a file, and brings that to the disk; says whether it was there.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(error) if is_gone(&error) => return Ok(false),
        done => done?,
    }
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(true)
}
