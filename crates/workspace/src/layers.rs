//! Caches of tools, private to a project: what its commands write lies over the user's own caches, which they only read.
//!
//! Below the directory of a project there is one for each session that runs at a time (`0`, `1`, …), which the session locks;
//! in it, under the path of each cache, what commands wrote there. In namespaces that is mounted over the cache. Without them
//! a variable leads a tool to it, for caches that a variable names.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
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
            io::Error::new(error.kind(), format!("no place for the caches of the project, {path}: {error}"))
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
        Err(on(io::Error::other(format!("{MOST} sessions have theirs"))))
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

fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn sessions_of_a_project_have_each_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("caches/project");
        let first = Layers::take(&project).unwrap();
        let second = Layers::take(&project).unwrap();
        assert_eq!((first.dir.as_path(), second.dir.as_path()), (&*project.join("0"), &*project.join("1")));
        drop(first);
        let third = Layers::take(&project).unwrap();
        assert_eq!(third.dir, project.join("0"));
        let made = third.make(Path::new("/home/u/.cache"), true).unwrap();
        assert_eq!(made, project.join("0/home/u/.cache"));
        assert_eq!(made.join(UPPER).metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(third.make(Path::new("/home/u/.lock"), false).unwrap().join(FILE).is_file());
        assert!(third.make(Path::new("relative"), true).is_err());
        std::fs::write(project.join("file"), "").unwrap();
        let error = Layers::take(&project.join("file")).unwrap_err().to_string();
        assert!(error.contains("project/file"), "{error}");
    }
}
