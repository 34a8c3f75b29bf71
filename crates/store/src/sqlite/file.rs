//! The file of a store and its directory: made private, and refused where somebody else could turn them.

use crate::error::system_error;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::unistd::geteuid;

use crate::StoreError;

/// What SQLite appends to the name of a database for its log and its shared memory.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

static CREATING: Mutex<()> = Mutex::new(());

/// Checks that `path` can be a store of ours, makes directory (0700) and file (0600) when `create`, and returns
/// the path with its directory resolved. An existing file is never opened here: closing it would drop the locks
/// that SQLite may hold on it in this very process.
pub(super) fn prepare(path: &Path, create: bool) -> Result<PathBuf, StoreError> {
    let Some(name) = path.file_name() else {
        return Err(StoreError::NotAStore {
            path: path.to_owned(),
            what: "it does not name a file".to_owned(),
        });
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Closing a file that another thread has opened meanwhile would drop that thread's locks.
    let _one_at_a_time = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = prepare_directory(path, directory, create)?;
    let file = directory.join(name);
    // Twice: between finding nothing and creating, another process may have created it.
    for _ in 0..8 {
        match fs::symlink_metadata(&file) {
            Ok(found) => {
                let mode = found.mode() & 0o700;
                check_file(&file, &found, mode)?;
                for suffix in COMPANIONS {
                    let companion = beside(&file, suffix);
                    if let Ok(found) = fs::symlink_metadata(&companion) {
                        // Left by a process that could only read, they would keep us from writing.
                        check_file(&companion, &found, mode)?;
                    }
                }
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !create {
                    let what = "there is no such file".to_owned();
                    return Err(StoreError::NotAStore { path: file, what });
                }
                match create_private(&file) {
                    Ok(()) => {
                        // The file is empty yet, but what is committed to it later must not lose its name.
                        sync_directory(&directory)?;
                        return Ok(file);
                    }
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(system_error(&file, "create", &error)),
                }
            }
            Err(error) => return Err(system_error(&file, "inspect", &error)),
        }
    }
    Err(StoreError::Io {
        path: file,
        doing: "create".to_owned(),
        detail: "another program keeps creating and removing it".to_owned(),
    })
}

/// Creates a new, empty file with mode 0600 whatever the umask; fails if anything has that name.
pub(super) fn create_private(path: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

/// Makes the names in a directory survive a loss of power, where that can be done: some file systems cannot, and
/// a directory need not be readable to be written to.
pub(super) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    match synced {
        Err(error)
            if !matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EINVAL | Errno::ENOTSUP | Errno::EACCES | Errno::EBADF)
            ) =>
        {
            Err(system_error(directory, "sync", &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// `path` with something appended to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Which file stands behind a name: device and number. `None` when there is none.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// The size of a file in bytes; 0 when it cannot be seen.
pub(super) fn size(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |found| found.len())
}

fn prepare_directory(store: &Path, directory: &Path, create: bool) -> Result<PathBuf, StoreError> {
    match fs::symlink_metadata(directory) {
        Ok(found) if found.file_type().is_symlink() => check_owner(directory, &found)?,
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound && create => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|error| system_error(directory, "create the directory", &error))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = "its directory does not exist".to_owned();
            return Err(StoreError::NotAStore { path: store.to_owned(), what });
        }
        Err(error) => return Err(system_error(directory, "inspect", &error)),
    }
    let real = fs::canonicalize(directory).map_err(|error| system_error(directory, "inspect", &error))?;
    let found = fs::metadata(&real).map_err(|error| system_error(&real, "inspect", &error))?;
    if !found.is_dir() {
        let what = format!("{} is not a directory", real.display());
        return Err(StoreError::NotAStore { path: store.to_owned(), what });
    }
    check_owner(&real, &found)?;
    Ok(real)
}

/// Whoever owns a directory can replace what is in it. The administrator could do so anyway.
fn check_owner(path: &Path, found: &Metadata) -> Result<(), StoreError> {
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if owner == user || owner == 0 {
        return Ok(());
    }
    Err(StoreError::NotOwner { path: path.to_owned(), owner, user })
}

/// Refuses what is not ours, and gives the file the mode that it should have.
fn check_file(path: &Path, found: &Metadata, mode: u32) -> Result<(), StoreError> {
    if found.file_type().is_symlink() {
        return Err(StoreError::Symlink { path: path.to_owned() });
    }
    if !found.is_file() {
        let what = "it is not a regular file".to_owned();
        return Err(StoreError::NotAStore { path: path.to_owned(), what });
    }
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if owner != user {
        return Err(StoreError::NotOwner { path: path.to_owned(), owner, user });
    }
    if found.mode() & 0o777 != mode {
        match fs::set_permissions(path, Permissions::from_mode(mode)) {
            Ok(()) => {}
            // Nothing can be written there, so nothing private gets there either.
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {}
            // SQLite removes its companions when the last process leaves.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(system_error(path, "make private", &error)),
        }
    }
    Ok(())
}
