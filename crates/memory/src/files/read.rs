//! What is read of a memory: regular files of UTF-8 within limits, and nothing that a link leads to.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use super::name::{DEPTH, FileName};

/// Bytes of one file at most: a larger one is reported and left alone.
pub const FILE_BYTES: u64 = 1 << 20;
/// Files of one memory at most.
pub const FILES: usize = 20_000;
/// The permissions of a file that is new.
pub(super) const NEW_MODE: u32 = 0o600;

/// Why a file of a memory is not used. The file stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    /// There is none.
    #[error("it does not exist")]
    Missing,
    /// It is larger than [`FILE_BYTES`].
    #[error("it has {0} bytes; a file of a memory has at most {FILE_BYTES}")]
    TooLarge(u64),
    /// Its bytes are no text.
    #[error("it is not text")]
    Binary,
    /// Its text is not UTF-8.
    #[error("its text is not UTF-8 (byte {0}); save it as UTF-8")]
    Encoding(usize),
    /// It, or a directory on the way, is a symbolic link.
    #[error("it is a symbolic link, or lies behind one")]
    Link,
    /// It is neither a regular file nor a link.
    #[error("it is not a regular file")]
    NotAFile,
    /// Git left marks of a conflict in it.
    #[error("line {0} is a conflict mark of git; resolve the conflict")]
    Conflict(u32),
    /// Its name is none that a file of a memory has.
    #[error("its name is not UTF-8, too long, or has control characters; rename it")]
    Name,
    /// It lies deeper than a memory is read.
    #[error("it lies more than {} directories below memory/", DEPTH - 1)]
    TooDeep,
    /// There are more files than [`FILES`].
    #[error("the memory has more than {FILES} files")]
    TooMany,
    /// The system refused.
    #[error("{0}")]
    Unreadable(String),
}

/// The text of a file, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileText {
    /// Which file.
    pub name: FileName,
    /// Its text.
    pub text: String,
    /// A line that is a mark of a conflict of git, counted from 1: what stands there is nobody's word.
    pub conflict: Option<u32>,
    pub(crate) stamp: FileStamp,
}

/// Tells one state of a file from another without reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// The permissions; 0 where they are not known.
    #[serde(default)]
    mode: u32,
}

impl FileStamp {
    /// Of a file of which nothing else is known.
    pub(crate) fn of_mode(mode: u32) -> Self {
        Self { mode, ..Self::default() }
    }

    /// The permissions of the file; those of a new one where they are not known.
    pub(crate) fn mode(&self) -> u32 {
        if self.mode == 0 { NEW_MODE } else { self.mode }
    }

    /// On one line.
    pub(crate) fn text(&self) -> String {
        let Self { inode, size, modified, changed, mode: _ } = self;
        format!("{inode} {size} {}.{} {}.{}", modified.0, modified.1, changed.0, changed.1)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(found: &Metadata) -> Self {
        Self {
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            mode: found.mode() & 0o7777,
        }
    }
}

/// A file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name.
    pub name: FileName,
    /// Its size.
    pub bytes: u64,
    pub(crate) stamp: FileStamp,
}

/// What is in a memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileList {
    /// Files that can be read, by name.
    pub files: Vec<ListedFile>,
    /// What cannot be used, by its path, and why.
    pub problems: Vec<(PathBuf, FileProblem)>,
}

impl FileList {
    /// Whether there is nothing, good or bad.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.problems.is_empty()
    }
}

/// The files of the memory in a directory; none where it does not exist. Contents are not read.
#[must_use]
pub fn list_files(root: &Path) -> FileList {
    let mut list = FileList::default();
    for name in [FileName::MEMORY, FileName::USER, FileName::DREAMS] {
        let path = root.join(name);
        if std::fs::symlink_metadata(&path).is_ok() {
            take(&mut list, name, &path);
        }
    }
    let notes = root.join("memory");
    match std::fs::symlink_metadata(&notes) {
        Ok(found) if found.is_symlink() => list.problems.push((notes, FileProblem::Link)),
        Ok(found) if found.is_dir() => walk(&mut list, "memory", &notes, 1),
        Ok(_) => list.problems.push((notes, FileProblem::NotAFile)),
        Err(_) => {}
    }
    list.files.sort_by(|one, other| one.name.cmp(&other.name));
    list
}

fn walk(list: &mut FileList, below: &str, directory: &Path, depth: usize) {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            list.problems.push((directory.to_path_buf(), FileProblem::Unreadable(error.to_string())));
            return;
        }
    };
    for entry in entries.flatten() {
        if list.files.len() + list.problems.len() >= FILES {
            if !list.problems.iter().any(|(_, problem)| *problem == FileProblem::TooMany) {
                list.problems.push((directory.to_path_buf(), FileProblem::TooMany));
            }
            return;
        }
        let (path, name) = (entry.path(), entry.file_name());
        // Hidden ones are not the memory's.
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let is_note = name.as_encoded_bytes().ends_with(b".md");
        let kind = entry.file_type().ok();
        let is_directory = kind.is_some_and(|kind| kind.is_dir());
        let name = name.to_str().map(|name| format!("{below}/{name}"));
        match name {
            Some(name) if is_directory && depth < DEPTH => walk(list, &name, &path, depth + 1),
            Some(_) if is_directory => list.problems.push((path, FileProblem::TooDeep)),
            None if is_directory || is_note => list.problems.push((path, FileProblem::Name)),
            Some(name) if is_note => take(list, &name, &path),
            // What lies behind the link is not looked at.
            _ if kind.is_some_and(|kind| kind.is_symlink()) && path.is_dir() => {
                list.problems.push((path, FileProblem::Link));
            }
            _ => {}
        }
    }
}

fn take(list: &mut FileList, name: &str, path: &Path) {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            list.problems.push((path.to_path_buf(), FileProblem::Unreadable(error.to_string())));
            return;
        }
    };
    let problem = if found.is_symlink() {
        Some(FileProblem::Link)
    } else if !found.is_file() {
        Some(FileProblem::NotAFile)
    } else if found.len() > FILE_BYTES {
        Some(FileProblem::TooLarge(found.len()))
    } else {
        None
    };
    match (problem, FileName::new(name)) {
        (None, Ok(name)) => list.files.push(ListedFile { name, bytes: found.len(), stamp: (&found).into() }),
        (Some(problem), Ok(_)) => list.problems.push((path.to_path_buf(), problem)),
        (_, Err(_)) => list.problems.push((path.to_path_buf(), FileProblem::Name)),
    }
}

/// Reads a file of the memory in a directory.
///
/// # Errors
/// What is wrong with it; `Missing` where there is none.
pub fn read_file(root: &Path, name: &FileName) -> Result<FileText, FileProblem> {
    let (bytes, stamp) = read_bytes(root, name)?;
    let text = checked_text(bytes)?;
    Ok(FileText { name: name.clone(), conflict: conflict_mark(&text), text, stamp })
}

/// A text that a file of a memory may have.
///
/// # Errors
/// `TooLarge`, `Encoding`, `Binary`.
pub fn checked_text(bytes: Vec<u8>) -> Result<String, FileProblem> {
    let size = bytes.len() as u64;
    if size > FILE_BYTES {
        return Err(FileProblem::TooLarge(size));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| encoding(error.as_bytes(), error.utf8_error().valid_up_to()))?;
    if text.contains('\0') { Err(FileProblem::Binary) } else { Ok(text) }
}

fn encoding(bytes: &[u8], at: usize) -> FileProblem {
    // Text of sixteen bits is half zeros and begins with a mark.
    let is_wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if bytes.contains(&0) && !is_wide { FileProblem::Binary } else { FileProblem::Encoding(at) }
}

fn read_bytes(root: &Path, name: &FileName) -> Result<(Vec<u8>, FileStamp), FileProblem> {
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => FileProblem::Missing,
        _ if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => FileProblem::Link,
        _ => FileProblem::Unreadable(error.to_string()),
    };
    let path = root.join(name.as_str());
    // Directories between the memory and the file are no links either.
    let mut directory = root.to_path_buf();
    let parts: Vec<&str> = name.as_str().split('/').collect();
    for part in parts.iter().take(parts.len().saturating_sub(1)) {
        directory.push(part);
        if std::fs::symlink_metadata(&directory).map_err(refused)?.is_symlink() {
            return Err(FileProblem::Link);
        }
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    if !std::fs::symlink_metadata(&path).map_err(refused)?.is_file() {
        let is_link = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        return Err(if is_link { FileProblem::Link } else { FileProblem::NotAFile });
    }
    let file = File::options().read(true).custom_flags(flags.bits()).open(&path).map_err(refused)?;
    let found = file.metadata().map_err(refused)?;
    if !found.is_file() {
        return Err(FileProblem::NotAFile);
    }
    if found.len() > FILE_BYTES {
        return Err(FileProblem::TooLarge(found.len()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(FileProblem::TooLarge(bytes.len() as u64));
    }
    Ok((bytes, FileStamp::from(&found)))
}

/// The first line that git puts into a file whose two sides it could not bring together.
fn conflict_mark(text: &str) -> Option<u32> {
    let mut open = None;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("<<<<<<< ") {
            open.get_or_insert(u32::try_from(at + 1).unwrap_or(u32::MAX));
        }
        // One mark alone may be quoted.
        if line.starts_with(">>>>>>> ") && open.is_some() {
            return open;
        }
    }
    None
}
