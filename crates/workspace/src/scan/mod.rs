//! Every file below a directory at a glance: what is there, and whether it changed since the last look.
//!
//! Git's own directories are left out, and what `.gitignore` files say: neither is walked into. No file is opened. A look
//! after another one asks for each file again, since nothing else tells that somebody wrote to it; names are read only
//! where the time of a directory says that they changed. Many directories are looked into by several threads.

mod ignore;
mod index;
#[cfg(test)]
mod tests;
mod together;
mod walk;

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ignore::{Ignored, Source};
pub use index::{GitIndex, git_blobs};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
pub use walk::{Found, walk};

use crate::FileStamp;

/// Files of more than this many entries are not watched.
pub const MOST_ENTRIES: usize = 100_000;
/// Milliseconds between two ticks of a file system's clock.
const BEHIND: i64 = 10;
/// Nanoseconds in which a directory can change again without a newer time: the clock of a file system ticks in some
/// milliseconds, and in two seconds where it knows no fractions.
const TICK: i128 = 100_000_000;
const SLOW_TICK: i128 = 2_000_000_000;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What tells one state of a file from another without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Kind and permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, i64),
    changed: (i64, i64),
    inode: u64,
}

impl Stamp {
    /// Whether it was written, renamed or given other rights at this moment or later: milliseconds of the clock of this
    /// machine. Clocks of file systems are some milliseconds behind.
    pub fn changed_since(&self, at: i64) -> bool {
        let (seconds, rest) = self.changed;
        seconds.saturating_mul(1_000).saturating_add(rest / 1_000_000) >= at.saturating_sub(BEHIND)
    }
}

impl From<&Metadata> for Stamp {
    fn from(found: &Metadata) -> Self {
        Self {
            mode: found.mode(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            inode: found.ino(),
        }
    }
}

impl From<&rustix::fs::Stat> for Stamp {
    fn from(found: &rustix::fs::Stat) -> Self {
        let fraction = |nanoseconds| i64::try_from(nanoseconds).unwrap_or_default();
        Self {
            mode: found.st_mode,
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified: (found.st_mtime, fraction(found.st_mtime_nsec)),
            changed: (found.st_ctime, fraction(found.st_ctime_nsec)),
            inode: found.st_ino,
        }
    }
}

/// The files below a directory, by their paths relative to it; directories are not among them. What did not change is
/// shared with the look before, and so are copies.
#[derive(Debug, Clone, Default)]
pub struct Files {
    directories: HashMap<PathBuf, Arc<Directory>>,
    /// What decides for all directories what is left out.
    rules: Rules,
}

/// Files with patterns that hold everywhere, and git's index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rules {
    sources: Vec<Source>,
    index: Option<FileStamp>,
}

#[derive(Debug, Clone)]
struct Directory {
    stamp: Stamp,
    /// When its names were read.
    looked: (i64, i64),
    /// Of its files and of the directories in it, in order, each with a zero byte behind it.
    names: Vec<u8>,
    files: Vec<Entry<Stamp>>,
    /// Whether each is ignored, but for what git tracks in it.
    below: Vec<Entry<bool>>,
    ignored: Ignored,
    /// Its own patterns.
    patterns: Option<Stamp>,
    /// All of its entries.
    seen: usize,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    /// Where its name begins, and where the zero byte behind it is.
    name: (u32, u32),
    value: T,
}

impl Files {
    /// One of them.
    pub fn get(&self, path: &Path) -> Option<&Stamp> {
        let directory = self.directories.get(path.parent()?)?;
        directory.stamp_of(path.file_name()?.as_bytes())
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (PathBuf, &Stamp)> {
        self.directories.iter().flat_map(|(path, directory)| {
            directory.files.iter().map(|file| (path.join(directory.os_name(file)), &file.value))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.directories.values().map(|directory| directory.files.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Directory {
    fn name<T>(&self, entry: &Entry<T>) -> &[u8] {
        let (from, to) = entry.name;
        self.names.get(from as usize..to as usize).unwrap_or_default()
    }

    fn os_name<T>(&self, entry: &Entry<T>) -> &OsStr {
        OsStr::from_bytes(self.name(entry))
    }

    fn stamp_of(&self, name: &[u8]) -> Option<&Stamp> {
        let found = self.files.binary_search_by(|file| self.name(file).cmp(name)).ok()?;
        self.files.get(found).map(|file| &file.value)
    }

    /// Whether its names are still those that were read.
    fn has_same_names(&self, now: &Stamp) -> bool {
        let nanoseconds =
            |(seconds, rest): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let tick = if now.modified.1 == 0 { SLOW_TICK } else { TICK };
        let last = nanoseconds(now.modified).max(nanoseconds(now.changed));
        *now == self.stamp && nanoseconds(self.looked) - last > tick
    }

    /// Looks at its files again; `None` when it must be read anew.
    fn again(self: &Arc<Self>, directory: &OwnedFd) -> Option<Arc<Self>> {
        let stamp =
            |name: &CStr| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|at| Stamp::from(&at));
        if self.patterns.is_some() && stamp(ignore::NAME) != self.patterns {
            return None;
        }
        let mut different = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            let (from, to) = file.name;
            let name = self.names.get(from as usize..=to as usize)?;
            let now = stamp(CStr::from_bytes_with_nul(name).ok()?)?;
            if now != file.value {
                different.push((at, now));
            }
        }
        if different.is_empty() {
            return Some(self.clone());
        }
        let mut new = Self::clone(self);
        for (at, now) in different {
            new.files.get_mut(at)?.value = now;
        }
        Some(Arc::new(new))
    }
}

/// Why there is no such list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// There are too many.
    #[error("there are more than {MOST_ENTRIES} files")]
    TooMany,
    /// The directory cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// A directory to look into.
struct Task {
    /// Relative to the root; empty for the root.
    path: PathBuf,
    ignored: Ignored,
    /// It is ignored, but for what git tracks in it.
    only_tracked: bool,
    /// What was left out there at the look before would be now.
    same_rules: bool,
}

/// Looks at every file below `root`. With the index, what git tracks is looked at also where it is ignored. With the look
/// before, what did not change since costs one call of the system for each file.
///
/// # Errors
/// `TooMany`; `Unreadable` for the directory itself, not for those below it.
pub fn scan(root: &Path, index: Option<&GitIndex>, before: Option<&Files>) -> Result<Files, ScanError> {
    let unreadable = |error: Errno| ScanError::Unreadable(std::io::Error::from(error).to_string());
    let top = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(unreadable)?;
    let rules = Rules { sources: ignore::sources(root), index: index.map(GitIndex::stamp) };
    let before = before.filter(|before| before.rules == rules);
    let ignored = Ignored::above(&rules.sources);
    let first = Task { path: PathBuf::new(), ignored, only_tracked: false, same_rules: true };
    let look = |task: &Task| {
        let known = before.filter(|_| task.same_rules).and_then(|before| before.directories.get(&task.path));
        let found = look_into(root, &top, task, index, known)?;
        let same_rules = known.is_some_and(|known| known.patterns == found.patterns);
        let below = found.below.iter().map(|below| Task {
            path: task.path.join(found.os_name(below)),
            ignored: found.ignored.clone(),
            only_tracked: below.value,
            same_rules,
        });
        let below: Vec<Task> = below.collect();
        Some((found, below))
    };
    let directories = together::walk(first, &look).ok_or(ScanError::TooMany)?;
    Ok(Files { directories, rules })
}

fn look_into(
    root: &Path,
    top: &OwnedFd,
    task: &Task,
    index: Option<&GitIndex>,
    known: Option<&Arc<Directory>>,
) -> Option<Arc<Directory>> {
    let path = if task.path.as_os_str().is_empty() { Path::new(".") } else { &task.path };
    let directory = match openat(top, path, DIRECTORY, Mode::empty()) {
        Ok(directory) => directory,
        // What is in one that cannot be read any more is not known to be gone.
        Err(Errno::ACCESS) => return known.cloned(),
        Err(_) => return None,
    };
    let stamp = Stamp::from(&fstat(&directory).ok()?);
    let again = known.filter(|known| known.has_same_names(&stamp)).and_then(|known| known.again(&directory));
    again.or_else(|| read(root, task, directory, stamp, index).map(Arc::new))
}

/// Reads the names of a directory, and looks at its files.
fn read(
    root: &Path,
    task: &Task,
    directory: OwnedFd,
    stamp: Stamp,
    index: Option<&GitIndex>,
) -> Option<Directory> {
    let looked = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let looked = (i64::try_from(looked.as_secs()).unwrap_or(i64::MAX), i64::from(looked.subsec_nanos()));
    let mut dir = Dir::new(directory).ok()?;
    let mut entries = Vec::new();
    while let Some(Ok(entry)) = dir.read() {
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    let directory = dir.fd().ok()?;
    let look = |name: &CStr| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let has_patterns = entries.iter().any(|(name, _)| name.as_c_str() == ignore::NAME);
    let patterns = if has_patterns { look(ignore::NAME).map(|found| Stamp::from(&found)) } else { None };
    let mut ignored = task.ignored.clone();
    if patterns.is_some() {
        ignored = ignored.below(&root.join(&task.path), &task.path);
    }
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let seen = entries.len();
    let (names, files, below) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = Directory { stamp, looked, names, files, below, ignored, patterns, seen };
    for (name, kind) in &entries {
        let bytes = name.to_bytes();
        if bytes == b".git" || is_ours(bytes) {
            continue;
        }
        let stat = match kind {
            FileType::Directory => None,
            _ => look(name),
        };
        let is_directory = match (kind, &stat) {
            (FileType::Directory, _) => true,
            // Not every file system says it with the name.
            (FileType::Unknown, Some(stat)) => FileType::from_raw_mode(stat.st_mode).is_dir(),
            (_, _) => false,
        };
        let at = task.path.join(OsStr::from_bytes(bytes));
        let only_tracked = task.only_tracked || found.ignored.has(at.as_os_str().as_bytes(), is_directory);
        if only_tracked && !index.is_some_and(|index| index.tracks(&at, is_directory)) {
            continue;
        }
        let Ok(from) = u32::try_from(found.names.len()) else { continue };
        let Ok(to) = u32::try_from(found.names.len() + bytes.len()) else { continue };
        found.names.extend_from_slice(name.to_bytes_with_nul());
        let name = (from, to);
        match stat {
            _ if is_directory => found.below.push(Entry { name, value: only_tracked }),
            Some(stat) => found.files.push(Entry { name, value: Stamp::from(&stat) }),
            None => {}
        }
    }
    Some(found)
}

/// Files that wait beside their targets.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b".quipu-") && name.ends_with(b".tmp")
}

/// Paths that are different, in order: made, changed or removed.
pub fn changed(before: &Files, after: &Files) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (path, new) in &after.directories {
        match before.directories.get(path) {
            Some(old) if Arc::ptr_eq(old, new) => {}
            Some(old) => {
                let other = |file: &&Entry<Stamp>| old.stamp_of(new.name(file)) != Some(&file.value);
                found.extend(new.files.iter().filter(other).map(|file| path.join(new.os_name(file))));
                let gone = |file: &&Entry<Stamp>| new.stamp_of(old.name(file)).is_none();
                found.extend(old.files.iter().filter(gone).map(|file| path.join(old.os_name(file))));
            }
            None => found.extend(new.files.iter().map(|file| path.join(new.os_name(file)))),
        }
    }
    for (path, old) in &before.directories {
        if !after.directories.contains_key(path) {
            found.extend(old.files.iter().map(|file| path.join(old.os_name(file))));
        }
    }
    found.sort_unstable();
    found
}
