//! Every file below a directory at a glance: what is there, and whether it changed since the last look.
//!
//! Git's own directories are left out, and ignored directories that hold what programs make again ([`CACHES`]): neither is
//! walked into. Other files that `.gitignore` files leave out are looked at up to a number. No file is opened. A look after
//! another one asks for each file again, since nothing else tells that somebody wrote to it; names are read only where the
//! time of a directory says that they changed. Many directories are looked into by several threads.

mod caches;
mod ignore;
mod index;
mod parallel;
mod refs;
#[cfg(test)]
mod tests;
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

use caches::Cache;
pub use caches::{CACHES, is_cache};
use ignore::{IgnoreRules, Source};
pub use index::{GitIndex, git_blobs};
use parallel::WalkResult;
pub use refs::GitRefs;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
pub use walk::{FoundPath, walk};

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

impl Stamp {
    /// Whether nothing was written between the two, nor were permissions changed, as far as times tell.
    pub fn is_written_as(&self, other: &Self) -> bool {
        (self.mode, self.size, self.modified, self.inode)
            == (other.mode, other.size, other.modified, other.inode)
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

/// A mode in the width that all systems have room in.
fn widened(mode: impl Into<u32>) -> u32 {
    mode.into()
}

impl From<&rustix::fs::Stat> for Stamp {
    fn from(found: &rustix::fs::Stat) -> Self {
        let fraction = |nanoseconds| i64::try_from(nanoseconds).unwrap_or_default();
        Self {
            mode: widened(found.st_mode),
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
    /// There are more ignored files than are looked at.
    beyond: bool,
    /// When the look began: milliseconds.
    looked: i64,
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
    /// Whether only what git tracks in it is looked at.
    below: Vec<Entry<bool>>,
    /// Ignored directories that are not looked into, as far as it is told that something in them changed.
    caches: Vec<Entry<Cache>>,
    ignored: IgnoreRules,
    /// Its own patterns.
    patterns: Option<Stamp>,
    /// All of its entries.
    seen: usize,
    /// There are more ignored files in it than are looked at.
    beyond: bool,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    /// Where its name begins, and where the zero byte behind it is.
    name: (u32, u32),
    /// Git ignores it.
    ignored: bool,
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

    /// Whether git ignores it.
    pub fn is_ignored(&self, path: &Path) -> bool {
        let directory = path.parent().and_then(|parent| self.directories.get(parent));
        let file =
            directory.zip(path.file_name()).and_then(|(directory, name)| directory.file(name.as_bytes()));
        file.is_some_and(|file| file.ignored)
    }

    /// The permission bits of a directory; nothing for the root.
    pub fn directory(&self, path: &Path) -> Option<u32> {
        let found = self.directories.get(path).filter(|_| !path.as_os_str().is_empty())?;
        Some(found.stamp.mode & 0o7777)
    }

    /// Directories in which there is nothing.
    pub fn empty_directories(&self) -> impl Iterator<Item = (&Path, u32)> {
        let empty = self.directories.iter().filter(|(path, found)| found.seen == 0 && path.as_os_str() != "");
        empty.map(|(path, found)| (path.as_path(), found.stamp.mode & 0o7777))
    }

    /// Whether there are more ignored files than were looked at.
    pub fn is_beyond(&self) -> bool {
        self.beyond
    }

    /// When it was looked: milliseconds of the clock of this machine.
    pub fn looked(&self) -> i64 {
        self.looked
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

    fn c_name<T>(&self, entry: &Entry<T>) -> Option<&CStr> {
        let (from, to) = entry.name;
        CStr::from_bytes_with_nul(self.names.get(from as usize..=to as usize)?).ok()
    }

    fn os_name<T>(&self, entry: &Entry<T>) -> &OsStr {
        OsStr::from_bytes(self.name(entry))
    }

    fn file(&self, name: &[u8]) -> Option<&Entry<Stamp>> {
        let found = self.files.binary_search_by(|file| self.name(file).cmp(name)).ok()?;
        self.files.get(found)
    }

    fn stamp_of(&self, name: &[u8]) -> Option<&Stamp> {
        self.file(name).map(|file| &file.value)
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
            let now = stamp(self.c_name(file)?)?;
            if now != file.value {
                different.push((at, now));
            }
        }
        let mut caches = Vec::new();
        for (at, cache) in self.caches.iter().enumerate() {
            let now = Cache::of(directory, self.c_name(cache)?)?;
            if now != cache.value {
                caches.push((at, now));
            }
        }
        if different.is_empty() && caches.is_empty() {
            return Some(self.clone());
        }
        let mut new = Self::clone(self);
        for (at, now) in caches {
            new.caches.get_mut(at)?.value = now;
        }
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
    patterns: IgnoreRules,
    ignored: bool,
    /// Only what git tracks in it is looked at.
    only_tracked: bool,
    /// What was left out there at the look before would be now.
    same_rules: bool,
}

/// Looks at every file below `root`, and at so many that git ignores. With the index, what git tracks is looked at also
/// where it is ignored. With the look before, what did not change since costs one call of the system for each file.
///
/// # Errors
/// `TooMany`; `Unreadable` for the directory itself, not for those below it.
pub fn scan(
    root: &Path,
    index: Option<&GitIndex>,
    before: Option<&Files>,
    most_ignored: usize,
) -> Result<Files, ScanError> {
    let unreadable = |error: Errno| ScanError::Unreadable(std::io::Error::from(error).to_string());
    let (seconds, rest) = now();
    let looked = seconds.saturating_mul(1_000).saturating_add(rest / 1_000_000);
    let top = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(unreadable)?;
    let rules = Rules { sources: ignore::sources(root), index: index.map(GitIndex::stamp) };
    let before = before.filter(|before| before.rules == rules);
    let patterns = IgnoreRules::above(&rules.sources);
    let first =
        Task { path: PathBuf::new(), patterns, ignored: false, only_tracked: false, same_rules: true };
    let look = |task: &Task| {
        let known = before.filter(|_| task.same_rules).and_then(|before| before.directories.get(&task.path));
        let found = look_into(root, &top, task, index, known, most_ignored)?;
        let same_rules = known.is_some_and(|known| known.patterns == found.patterns);
        let below = found.below.iter().map(|below| Task {
            path: task.path.join(found.os_name(below)),
            patterns: found.ignored.clone(),
            // What git tracks is looked at wherever it is.
            ignored: below.ignored && !below.value,
            only_tracked: below.value,
            same_rules,
        });
        let below: Vec<Task> = below.collect();
        Some((found, below))
    };
    let WalkResult { directories, beyond } =
        parallel::walk(first, most_ignored, &look).ok_or(ScanError::TooMany)?;
    Ok(Files { directories, beyond, looked, rules })
}

fn look_into(
    root: &Path,
    top: &OwnedFd,
    task: &Task,
    index: Option<&GitIndex>,
    known: Option<&Arc<Directory>>,
    most_ignored: usize,
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
    again.or_else(|| read(root, task, directory, stamp, index, most_ignored).map(Arc::new))
}

/// Seconds and nanoseconds.
fn now() -> (i64, i64) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos()))
}

/// Reads the names of a directory, and looks at its files.
fn read(
    root: &Path,
    task: &Task,
    directory: OwnedFd,
    stamp: Stamp,
    index: Option<&GitIndex>,
    most_ignored: usize,
) -> Option<Directory> {
    let looked = now();
    let mut dir = Dir::new(directory).ok()?;
    let (mut entries, mut beyond) = (Vec::new(), false);
    while let Some(Ok(entry)) = dir.read() {
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            entries.push((entry.file_name().to_owned(), entry.file_type()));
        }
        if task.ignored && !task.only_tracked && entries.len() > most_ignored {
            beyond = true;
            break;
        }
    }
    let directory = dir.fd().ok()?;
    let look = |name: &CStr| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let has_patterns = entries.iter().any(|(name, _)| name.as_c_str() == ignore::NAME);
    let patterns = if has_patterns { look(ignore::NAME).map(|found| Stamp::from(&found)) } else { None };
    let mut ignored = task.patterns.clone();
    if patterns.is_some() {
        ignored = ignored.below(&root.join(&task.path), &task.path);
    }
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let seen = entries.len();
    let (names, files, below, caches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut found = Directory { stamp, looked, names, files, below, caches, ignored, patterns, seen, beyond };
    let mut room = most_ignored;
    for (name, kind) in &entries {
        let bytes = name.to_bytes();
        if bytes == b".git" || is_ours(bytes) {
            continue;
        }
        let at = task.path.join(OsStr::from_bytes(bytes));
        let tracks = |is_directory| index.is_some_and(|index| index.tracks(&at, is_directory));
        if task.only_tracked && !tracks(true) && !tracks(false) {
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
        let is_ignored =
            (task.ignored || task.only_tracked) || found.ignored.has(at.as_os_str().as_bytes(), is_directory);
        let (Ok(from), Ok(to)) =
            (u32::try_from(found.names.len()), u32::try_from(found.names.len() + bytes.len()))
        else {
            continue;
        };
        let place = (from, to);
        let is_tracked = is_ignored && tracks(is_directory);
        let entry = match stat {
            _ if is_directory => {
                let is_left = is_ignored && (most_ignored == 0 || task.only_tracked || is_cache(&at));
                if is_left && !is_tracked {
                    if let (Some(value), true) = (Cache::of(directory, name), most_ignored > 0) {
                        found.names.extend_from_slice(name.to_bytes_with_nul());
                        found.caches.push(Entry { name: place, ignored: true, value });
                    }
                    continue;
                }
                found.below.push(Entry { name: place, ignored: is_ignored, value: is_left });
                Some(())
            }
            Some(stat) => {
                let ignored = is_ignored && !is_tracked;
                if ignored && room == 0 {
                    found.beyond |= most_ignored > 0;
                    continue;
                }
                room -= usize::from(ignored);
                found.files.push(Entry { name: place, ignored, value: Stamp::from(&stat) });
                Some(())
            }
            None => None,
        };
        if entry.is_some() {
            found.names.extend_from_slice(name.to_bytes_with_nul());
        }
    }
    Some(found)
}

/// Files that wait beside their targets.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b".quipu-") && name.ends_with(b".tmp")
}

/// What is different between two looks. Paths are in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Files that were made, changed or removed.
    pub files: Vec<PathBuf>,
    /// Directories that were made or removed, or are empty in one of the two looks and not in the other.
    pub directories: Vec<PathBuf>,
    /// Ignored directories that are not looked into, in which something seems to have changed.
    pub caches: Vec<PathBuf>,
}

/// What is different.
pub fn changed(before: &Files, after: &Files) -> Changes {
    let Changes { mut files, mut directories, mut caches } = Changes::default();
    for (path, new) in &after.directories {
        let old = match before.directories.get(path) {
            Some(old) if Arc::ptr_eq(old, new) => continue,
            Some(old) => {
                let other = |file: &&Entry<Stamp>| old.stamp_of(new.name(file)) != Some(&file.value);
                files.extend(new.files.iter().filter(other).map(|file| path.join(new.os_name(file))));
                let gone = |file: &&Entry<Stamp>| new.stamp_of(old.name(file)).is_none();
                files.extend(old.files.iter().filter(gone).map(|file| path.join(old.os_name(file))));
                Some(old)
            }
            None => {
                files.extend(new.files.iter().map(|file| path.join(new.os_name(file))));
                None
            }
        };
        if old.is_none_or(|old| (new.seen == 0) != (old.seen == 0)) {
            directories.push(path.clone());
        }
        let known = |name: &[u8]| old.and_then(|old| old.caches.iter().find(|cache| old.name(cache) == name));
        let other =
            |cache: &&Entry<Cache>| known(new.name(cache)).is_none_or(|known| known.value != cache.value);
        caches.extend(new.caches.iter().filter(other).map(|cache| path.join(new.os_name(cache))));
        if let Some(old) = old {
            let gone = |cache: &&Entry<Cache>| {
                let name = old.name(cache);
                // It may have become one that is looked into.
                !new.caches.iter().any(|now| new.name(now) == name)
            };
            caches.extend(old.caches.iter().filter(gone).map(|cache| path.join(old.os_name(cache))));
        }
    }
    for (path, old) in &before.directories {
        if !after.directories.contains_key(path) {
            files.extend(old.files.iter().map(|file| path.join(old.os_name(file))));
            caches.extend(old.caches.iter().map(|cache| path.join(old.os_name(cache))));
            directories.push(path.clone());
        }
    }
    directories.retain(|path| !path.as_os_str().is_empty());
    for list in [&mut files, &mut directories, &mut caches] {
        list.sort_unstable();
    }
    Changes { files, directories, caches }
}
