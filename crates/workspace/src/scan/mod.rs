//! Every file below a directory at a glance: what is there, and whether it changed since the last look.
//!
//! Git's own directories are left out, and what `.gitignore` files say: neither is walked into. No file is opened.

mod ignore;
mod index;
mod walk;

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use ignore::Ignored;
pub use index::{GitIndex, git_blobs};
pub use walk::{Found, walk};

/// Files of more than this many entries are not watched.
pub const MOST_ENTRIES: usize = 100_000;
/// Directories that one thread looks into before a second one helps.
const ALONE: usize = 64;

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

/// The files below a directory, by their paths relative to it. Directories are not among them.
pub type Files = HashMap<PathBuf, Stamp>;

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
}

struct Queue {
    tasks: Vec<Task>,
    /// Threads that may still add some.
    busy: usize,
    entries: usize,
}

/// Looks at every file below `root`. With the index, what git tracks is looked at also where it is ignored.
///
/// # Errors
/// `TooMany`; `Unreadable` for the directory itself, not for those below it.
pub fn scan(root: &Path, index: Option<&GitIndex>) -> Result<Files, ScanError> {
    std::fs::read_dir(root).map_err(|error| ScanError::Unreadable(error.to_string()))?;
    let ignored = Ignored::above(root);
    let queue = Queue {
        tasks: vec![Task { path: PathBuf::new(), ignored, only_tracked: false }],
        busy: 0,
        entries: 0,
    };
    let (queue, news) = (Mutex::new(queue), Condvar::new());
    let mut files = Files::new();
    // Most directories are small, and then a thread costs more than it brings.
    if work(root, index, &queue, &news, ALONE, &mut files)? {
        return Ok(files);
    }
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut files = Files::new();
            work(root, index, &queue, &news, usize::MAX, &mut files).map(|_| files)
        });
        let ours = work(root, index, &queue, &news, usize::MAX, &mut files);
        let theirs = other.join().unwrap_or_else(|_| Err(ScanError::Unreadable("a thread panicked".into())));
        ours.and(theirs)
    })?;
    files.extend(both);
    Ok(files)
}

/// Looks into directories until none is left, or into so many. Whether none is left.
fn work(
    root: &Path,
    index: Option<&GitIndex>,
    queue: &Mutex<Queue>,
    news: &Condvar,
    most: usize,
    files: &mut Files,
) -> Result<bool, ScanError> {
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..most {
        let mut state = lock();
        let task = loop {
            if state.entries > MOST_ENTRIES {
                news.notify_all();
                return Err(ScanError::TooMany);
            }
            match state.tasks.pop() {
                Some(task) => break task,
                None if state.busy == 0 => {
                    news.notify_all();
                    return Ok(true);
                }
                None => state = news.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.busy += 1;
        drop(state);
        let (below, seen) = look_into(root, task, index, files);
        let mut state = lock();
        state.busy -= 1;
        state.entries += seen;
        state.tasks.extend(below);
        drop(state);
        news.notify_all();
    }
    Ok(false)
}

/// Looks at the files of one directory; gives the directories in it, and how many entries it has.
fn look_into(root: &Path, task: Task, index: Option<&GitIndex>, files: &mut Files) -> (Vec<Task>, usize) {
    let Task { path, ignored, only_tracked } = task;
    let directory = root.join(&path);
    let ignored = ignored.below(&directory, &path);
    // One that cannot be read holds nothing that a command of ours could change.
    let Ok(entries) = std::fs::read_dir(&directory) else { return (Vec::new(), 0) };
    let (mut below, mut seen) = (Vec::new(), 0);
    for entry in entries.flatten() {
        seen += 1;
        let name = entry.file_name();
        let Ok(kind) = entry.file_type() else { continue };
        if name == ".git" || is_ours(name.as_bytes()) {
            continue;
        }
        let at = path.join(&name);
        let only_tracked = only_tracked || ignored.has(at.as_os_str().as_bytes(), kind.is_dir());
        if only_tracked && !index.is_some_and(|index| index.tracks(&at, kind.is_dir())) {
            continue;
        }
        if kind.is_dir() {
            below.push(Task { path: at, ignored: ignored.clone(), only_tracked });
        } else if let Ok(found) = entry.metadata() {
            files.insert(at, Stamp::from(&found));
        }
    }
    (below, seen)
}

/// Files that wait beside their targets.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b".quipu-") && name.ends_with(b".tmp")
}

/// Paths that are different, in order: made, changed or removed.
pub fn changed(before: &Files, after: &Files) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = after
        .iter()
        .filter(|(path, stamp)| before.get(*path) != Some(stamp))
        .map(|(path, _)| path.clone())
        .collect();
    found.extend(before.keys().filter(|path| !after.contains_key(*path)).cloned());
    found.sort_unstable();
    found
}

/// A path from the bytes that git keeps.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn names(files: &Files) -> Vec<String> {
        let mut names: Vec<String> = files.keys().map(|path| path.display().to_string()).collect();
        names.sort();
        names
    }

    fn put(root: &Path, name: &str, text: &str) {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }

    #[test]
    fn what_is_ignored_is_not_seen_and_what_changed_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for at in 0..100 {
            put(root, &format!("src/{at}/f"), "x");
        }
        for name in
            ["a", "b/c.o", "b/keep.o", "target/x", "b/target/y", ".git/config", ".quipu-1.tmp", "b/x/log/z"]
        {
            put(root, name, "x");
        }
        put(root, ".gitignore", "*.o\n!keep.o\ntarget/\n# no\n/b/**/log\n");
        std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        let first = scan(root, None).unwrap();
        let seen: Vec<String> = names(&first).into_iter().filter(|name| !name.starts_with("src/")).collect();
        assert_eq!(
            (first.len(), seen),
            (105 - 1, [".gitignore", "a", "b/keep.o", "link"].map(String::from).to_vec())
        );
        assert_eq!(changed(&first, &scan(root, None).unwrap()), Vec::<PathBuf>::new());
        put(root, "src/7/f", "y");
        put(root, "new", "");
        fs::remove_file(root.join("a")).unwrap();
        assert_eq!(changed(&first, &scan(root, None).unwrap()), ["a", "new", "src/7/f"].map(PathBuf::from));
        assert!(matches!(scan(&root.join("none"), None), Err(ScanError::Unreadable(_))));
    }

    fn git(root: &Path, args: &[&str]) -> bool {
        let run = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
            .args(args)
            .current_dir(root)
            .env("HOME", root)
            .output();
        run.is_ok_and(|run| run.status.success())
    }

    #[test]
    fn the_index_tells_what_is_as_it_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        if !git(&root, &["init", "-q"]) {
            eprintln!("note: git is not here, so its index is not tested");
            return;
        }
        put(&root, ".gitignore", "ignored/\n");
        for name in ["clean", "dirty", "sub/clean", "ignored/tracked"] {
            put(&root, name, name);
            let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
            fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(old).unwrap();
        }
        assert!(git(&root, &["add", "-f", "."]) && git(&root, &["commit", "-qm", "x"]));
        put(&root, "dirty", "changed");
        put(&root, "untracked", "u");
        put(&root, "ignored/other", "o");
        for version in ["2", "4"] {
            assert!(git(&root, &["update-index", "--index-version", version]));
            let index = GitIndex::of(&root).unwrap();
            let files = scan(&root, Some(&index)).unwrap();
            let expect = [".gitignore", "clean", "dirty", "ignored/tracked", "sub/clean", "untracked"];
            assert_eq!(names(&files), expect, "{version}");
            let clean = |name: &str| index.clean(Path::new(name), &files[Path::new(name)]);
            assert!(clean("dirty").is_none() && clean("untracked").is_none());
            let ids: Vec<_> = ["clean", "sub/clean"].iter().map(|name| clean(name).unwrap()).collect();
            let blobs = git_blobs(&root, &ids, 1_000);
            assert_eq!(blobs, [Some(b"clean".to_vec()), Some(b"sub/clean".to_vec())]);
            let below = GitIndex::of(&root.join("sub")).unwrap();
            let found = scan(&root.join("sub"), Some(&below)).unwrap();
            assert!(below.clean(Path::new("clean"), &found[Path::new("clean")]).is_some());
        }
        assert!(git(&root, &["worktree", "add", "-q", "tree"]));
        let tree = GitIndex::of(&root.join("tree")).unwrap();
        assert!(tree.tracks(Path::new("sub"), true) && !tree.tracks(Path::new("untracked"), false));
        fs::write(root.join(".git/index"), b"DIRC\0\0\0\x02\0\0\0\x09short").unwrap();
        assert!(GitIndex::of(&root).is_none());
    }
}
