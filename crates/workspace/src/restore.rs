//! Putting files back: the new content is on the disk, under another name, before anything is replaced.
//!
//! Every directory on the way is opened without following links, so a path leads where its name says or nowhere.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, statat, symlinkat, unlinkat};

use crate::FileError;

/// The content to put at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StagedFile<'a> {
    /// A regular file.
    File {
        /// The whole content of the file.
        bytes: &'a [u8],
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link that says this.
    Link(&'a str),
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where what is to be put at `at` waits under `name`: in the nearest directory above `at` that is there.
pub fn staging_path(at: &Path, name: &str) -> PathBuf {
    let parents = at.ancestors().skip(1);
    let is_directory = |dir: &&Path| dir.symlink_metadata().is_ok_and(|found| found.is_dir());
    parents.into_iter().find(is_directory).unwrap_or(Path::new("/")).join(name)
}

/// Writes what is to be put at `at` to `staged`, which [`staging_path`] gave. It is on the disk when this returns; a
/// file gets the owner of the one that it will replace. Where it fails, nothing of it is left.
///
/// # Errors
/// What the system says; `AlreadyExists` when something has that name.
pub fn stage(staged: &Path, at: &Path, what: &StagedFile<'_>) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot write beside", error);
    let (parent, name) = open_parent(staged).map_err(failed)?;
    let made = match what {
        StagedFile::Link(target) => symlinkat(*target, &parent, name).map_err(io::Error::from),
        StagedFile::File { bytes, mode } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from);
            file.and_then(|file| {
                let filled = fill(&mut std::fs::File::from(file), at, bytes, *mode);
                if filled.is_err() {
                    // The error that stopped us is the one to tell.
                    unlinkat(&parent, name, AtFlags::empty()).ok();
                }
                filled
            })
        }
    };
    made.map_err(failed)
}

fn fill(file: &mut std::fs::File, at: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Ok(old) = at.symlink_metadata() {
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != (old.uid(), old.gid()) {
            fchown(&*file, Some(old.uid()), Some(old.gid()))?;
        }
    }
    // After the owner: a change of owner clears set-user-id bits.
    file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777))?;
    file.sync_all()
}

/// Puts what was staged at its place, in one step. Missing directories are made.
///
/// # Errors
/// What the system says; `NotFound` when nothing is staged there.
pub fn place(staged: &Path, at: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot restore", error);
    let (from, staged) = open_parent(staged).map_err(failed)?;
    // Only with something to put there are directories made.
    statat(&from, staged, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| failed(error.into()))?;
    let (parent, name) = make_parent(at).map_err(failed)?;
    renameat(&from, staged, &parent, name).map_err(|error| failed(error.into()))?;
    sync(&parent);
    Ok(())
}

/// Makes a directory with these permission bits, and those above it that are missing. One that is there stays as it is.
///
/// # Errors
/// What the system says.
pub fn make_directory(at: &Path, mode: u32) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot make", error);
    let (parent, name) = make_parent(at).map_err(failed)?;
    match mkdirat(&parent, name, permission_bits(mode)) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) if at.symlink_metadata().is_ok_and(|found| found.is_dir()) => {
            return Ok(());
        }
        Err(error) => return Err(failed(error.into())),
    }
    // The mask of this process must not decide.
    let made = openat(&parent, name, DIRECTORY, Mode::empty()).map_err(|error| failed(error.into()))?;
    rustix::fs::fchmod(&made, permission_bits(mode)).map_err(|error| failed(error.into()))?;
    sync(&parent);
    Ok(())
}

/// As the system takes them: the width of its type differs.
fn permission_bits(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o7777) as rustix::fs::RawMode)
}

/// Removes a directory that is empty. Nothing happens where there is nothing.
///
/// # Errors
/// What the system says, such as that it holds something.
pub fn remove_directory(at: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot remove", error);
    let (parent, name) = match open_parent(at) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) => sync(&parent),
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(failed(error.into())),
    }
    Ok(())
}

/// Removes a file or a link, and the directories up to `root`, which stays, that are empty by that, but for those that
/// `keeps`. Nothing happens where there is nothing.
///
/// # Errors
/// What the system says.
pub fn remove(at: &Path, root: &Path, keeps: &dyn Fn(&Path) -> bool) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot remove", error);
    let (parent, name) = match open_parent(at) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) => sync(&parent),
        Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let above = at.ancestors().skip(1).take_while(|dir| dir.starts_with(root) && *dir != root);
    for directory in above.take_while(|dir| !keeps(dir)) {
        let Ok((parent, name)) = open_parent(directory) else { break };
        // One that holds something stays.
        if unlinkat(&parent, name, AtFlags::REMOVEDIR).is_err() {
            break;
        }
    }
    Ok(())
}

/// Whether a file of this name could be made, replaced or removed, as far as its directory tells.
///
/// # Errors
/// Why not.
pub fn can_change(at: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::from_io(at, "cannot change", error);
    let directory = staging_path(at, "");
    let (parent, _) = open_parent(&directory.join("x")).map_err(failed)?;
    let rights = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(&parent, ".", rights, AtFlags::EACCESS).map_err(|error| failed(error.into()))
}

/// A name in a directory can be lost by a loss of power until it is synced; not every file system can.
fn sync(directory: &OwnedFd) {
    fsync(directory).ok();
}

fn open_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    walk(path, false)
}

fn make_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    walk(path, true)
}

/// The directory of a path, each part opened below the one before it.
fn walk(path: &Path, make: bool) -> io::Result<(OwnedFd, &OsStr)> {
    let bad = || io::Error::new(io::ErrorKind::InvalidInput, "no absolute path to a file");
    let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
        return Err(bad());
    };
    let search = |dir: &OwnedFd, part: &OsStr| openat(dir, part, DIRECTORY, Mode::empty());
    let mut at = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
    for part in parent.components() {
        let part = match part {
            Component::RootDir => continue,
            Component::Normal(part) => part,
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => return Err(bad()),
        };
        at = match search(&at, part) {
            Err(rustix::io::Errno::NOENT) if make => match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => search(&at, part)?,
                Err(error) => return Err(error.into()),
            },
            opened => opened?,
        };
    }
    Ok((at, name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn staged_files_are_placed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let put = |name: &str, what: &StagedFile<'_>| {
            let at = root.join(name);
            let staged = staging_path(&at, ".t");
            stage(&staged, &at, what)?;
            assert!(staged.starts_with(&root) && staged.symlink_metadata().is_ok());
            place(&staged, &at)
        };
        put("a/b/file", &StagedFile::File { bytes: b"x\0", mode: 0o4751 }).unwrap();
        put("a/link", &StagedFile::Link("gone")).unwrap();
        assert_eq!(fs::read(root.join("a/b/file")).unwrap(), b"x\0");
        assert_eq!(fs::metadata(root.join("a/b/file")).unwrap().mode() & 0o7777, 0o4751);
        assert_eq!(fs::read_link(root.join("a/link")).unwrap(), Path::new("gone"));
        put("a/link", &StagedFile::File { bytes: b"", mode: 0o600 }).unwrap();
        assert!(fs::symlink_metadata(root.join("a/link")).unwrap().is_file());
        let none = |_: &Path| false;
        remove(&root.join("a/b/file"), &root, &none).unwrap();
        remove(&root.join("a/b/file"), &root, &none).unwrap();
        assert!(root.join("a").is_dir() && !root.join("a/b").exists());
        remove(&root.join("a/link"), &root, &none).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        put("d/e/file", &StagedFile::Link("x")).unwrap();
        remove(&root.join("d/e/file"), &root, &|dir| dir.ends_with("d/e")).unwrap();
        assert!(root.join("d/e").is_dir());
        assert!(remove_directory(&root.join("d")).is_err());
        remove_directory(&root.join("d/e")).unwrap();
        remove_directory(&root.join("d/e")).unwrap();
        make_directory(&root.join("d/f/g"), 0o2750).unwrap();
        make_directory(&root.join("d/f/g"), 0o700).unwrap();
        assert_eq!(fs::metadata(root.join("d/f/g")).unwrap().mode() & 0o7777, 0o2750);
    }

    #[test]
    fn no_link_on_the_way_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/f"), "kept").unwrap();
        symlink("real", root.join("link")).unwrap();
        let at = root.join("link/f");
        assert!(stage(&root.join("link/.t"), &at, &StagedFile::Link("x")).is_err());
        assert!(remove(&at, &root, &|_| false).is_err());
        stage(&root.join(".t"), &at, &StagedFile::Link("x")).unwrap();
        assert!(place(&root.join(".t"), &at).is_err());
        assert!(place(&root.join("none"), &root.join("new/f")).is_err() && !root.join("new").exists());
        assert_eq!(fs::read(root.join("real/f")).unwrap(), b"kept");
        assert!(stage(Path::new("relative"), &at, &StagedFile::Link("x")).is_err());
    }
}
