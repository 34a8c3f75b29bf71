//! Caches of tools, private to a project: what its commands write lies over the user's own caches, which they only read.
//!
//! Below the directory of a project there is one for each session that runs at a time (`0`, `1`, …), which the session locks;
//! in it, under the path of each cache, what commands wrote there. In namespaces that is mounted over the cache. Without them
//! a variable leads a tool to it, for caches that a variable names.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Sessions of one project at a time.
const MOST: usize = 256;
/// What was written, by itself.
pub(crate) const UPPER: &str = "=upper";
/// What the kernel works in.
pub(crate) const WORK: &str = "=work";
/// For a cache that is a file.
pub(crate) const FILE: &str = "=file";

/// The directory of one session, which is locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Layers {
    dir: PathBuf,
    /// Released by the end of the process, however it comes.
    _lock: File,
}

impl Layers {
    /// Takes the first directory below that of a project that nobody has.
    pub(crate) fn take(project: &Path) -> io::Result<Self> {
        let on = |error: io::Error| {
            let path = project.display();
            io::Error::new(
                error.kind(),
                format!("cannot create the cache directory of the project, {path}: {error}"),
            )
        };
        for number in 0..MOST {
            let dir = project.join(number.to_string());
            make(&dir).map_err(on)?;
            let lock = file(&dir.join("lock")).map_err(on)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { dir, _lock: lock }),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(on(error.into())),
            }
        }
        Err(on(io::Error::other(format!("{MOST} sessions are already using one"))))
    }

    /// Makes what belongs to a cache, and says where.
    pub(crate) fn make(&self, cache: &Path, is_dir: bool) -> io::Result<PathBuf> {
        let dir = self.dir.join(cache.strip_prefix("/").map_err(io::Error::other)?);
        make(&dir)?;
        if is_dir {
            make(&dir.join(UPPER))?;
            make(&dir.join(WORK))?;
        } else {
            file(&dir.join(FILE))?;
        }
        Ok(dir)
    }
}

/// What lies below a directory of such projects: how many of them, files, bytes.
///
/// # Errors
/// When it cannot be read, but for what is missing.
pub fn cache_layers(root: &Path) -> io::Result<(u64, u64, u64)> {
    let projects = projects(root)?;
    let (mut files, mut bytes) = (0, 0);
    let mut open = projects.clone();
    while let Some(dir) = open.pop() {
        // What the kernel works in is closed to its owner, and empty.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => open.push(entry.path()),
                Ok(found) => {
                    files += 1;
                    bytes += found.len();
                }
                // Removed meanwhile.
                Err(_) => {}
            }
        }
    }
    Ok((projects.len() as u64, files, bytes))
}

/// Removes what no session has at the moment; how many could not be removed because one has them.
///
/// # Errors
/// The first thing that cannot be removed.
pub fn drop_cache_layers(root: &Path) -> io::Result<usize> {
    let mut in_use = 0;
    for project in projects(root)? {
        let mut all = true;
        for slot in projects_of(&project)? {
            let lock = file(&slot.join("lock"))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                (all, in_use) = (false, in_use + 1);
                continue;
            }
            open_up(&slot)?;
            fs::remove_dir_all(&slot)?;
        }
        if all {
            fs::remove_dir(&project)?;
        }
    }
    Ok(in_use)
}

fn projects(root: &Path) -> io::Result<Vec<PathBuf>> {
    match projects_of(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

/// The directories in a directory.
fn projects_of(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Some tools, and the kernel, close directories to their owner.
fn open_up(dir: &Path) -> io::Result<()> {
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        open.extend(projects_of(&dir)?);
    }
    Ok(())
}

fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is in the end.
    fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
        loop {
            match found() {
                Some(found) => return found,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn sessions_of_a_project_have_each_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("caches/project");
        let first = Layers::take(&project).unwrap();
        let second = Layers::take(&project).unwrap();
        assert_eq!((first.dir.as_path(), second.dir.as_path()), (&*project.join("0"), &*project.join("1")));
        drop(first);
        // A child that another test starts in this process has a copy of the lock until its program runs.
        let third = until(|| Layers::take(&project).ok().filter(|layers| layers.dir == project.join("0")));
        let made = third.make(Path::new("/home/u/.cache"), true).unwrap();
        assert_eq!(made, project.join("0/home/u/.cache"));
        assert_eq!(made.join(UPPER).metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(third.make(Path::new("/home/u/.lock"), false).unwrap().join(FILE).is_file());
        assert!(third.make(Path::new("relative"), true).is_err());
        fs::write(project.join("file"), "").unwrap();
        let error = Layers::take(&project.join("file")).unwrap_err().to_string();
        assert!(error.contains("project/file"), "{error}");
        fs::remove_file(project.join("file")).unwrap();
        // Closed, as some tools leave their directories.
        let closed = made.join(UPPER).join("module");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "12345").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        let root = dir.path().join("caches");
        let (projects, _, bytes) = cache_layers(&root).unwrap();
        assert_eq!((projects, bytes), (1, 5));
        assert_eq!(drop_cache_layers(&root).unwrap(), 2, "two sessions run");
        drop((second, third));
        until(|| (drop_cache_layers(&root).unwrap() == 0).then_some(()));
        assert_eq!(cache_layers(&root).unwrap(), (0, 0, 0));
        assert_eq!(cache_layers(&root.join("missing")).unwrap(), (0, 0, 0));
    }
}
