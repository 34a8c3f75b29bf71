//! Writing whole files: the old content or the new, never a mixture, and no error swallowed.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio_util::sync::CancellationToken;

use crate::open::{open, open_with, read_rest};
use crate::path::{follow_links, names_a_directory};
use crate::{FileError, FileKind, FileStamp};

/// How a file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// It did not exist.
    Created,
    /// A complete new file took its name in one step.
    Replaced,
    /// Its bytes were overwritten, because a new file would have broken something: it has hard links, its owner
    /// cannot be kept, or its directory takes no new names. A reader may see it half written; a failed write is
    /// taken back.
    InPlace,
}

/// Old content that is kept in memory to take back a failed write in place.
const BACKUP_LIMIT: u64 = 64 << 20;

/// Makes `bytes` the content of the file at `path`. The content is on disk when this returns.
///
/// Missing directories are made. Symbolic links are followed and stay; mode and owner stay; a new file gets 0666
/// less the umask. Extended attributes are not carried over. With `expected`, the file must still be in the
/// state that was read. Runs to its end once begun: a write is never stopped half way. A process killed in the
/// middle may leave a file named `.quipu-*.tmp` beside the target, and the target as it was.
///
/// # Errors
/// The target is then what it was before, unless the message says otherwise. [`FileError::NotAFile`] for
/// directories, devices, fifos and sockets; [`FileError::Denied`] also for a file that is write-protected.
pub fn write_file(path: &Path, bytes: &[u8], expected: Option<&FileStamp>) -> Result<WriteKind, FileError> {
    if names_a_directory(path) {
        return Err(FileError::NotAFile { path: path.to_path_buf(), kind: FileKind::Directory });
    }
    write_at(&follow_links(path), bytes, expected, OFlag::empty(), &|_| Ok(()))
}

/// The same, at a path that is not a link; `flags` for opening what is there, `check` for what was opened.
pub(crate) fn write_at(
    target: &Path,
    bytes: &[u8],
    expected: Option<&FileStamp>,
    flags: OFlag,
    check: &dyn Fn(&Metadata) -> Result<(), FileError>,
) -> Result<WriteKind, FileError> {
    let found = match fs::metadata(target) {
        Ok(_) => Some(open_with(target, OpenOptions::new().write(true), flags, "cannot open for writing")?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(FileError::from_io(target, "cannot inspect", error)),
    };
    if let Some((_, metadata)) = &found {
        check(metadata)?;
    }
    let changed = match (expected, &found) {
        (Some(expected), Some((_, metadata))) => *expected != FileStamp::from(metadata),
        (Some(_), None) => true,
        (None, _) => false,
    };
    if changed {
        return Err(FileError::Changed { path: target.to_path_buf() });
    }
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some((file, metadata)) = found else {
        create_parents(parent)?;
        return create(parent, target, bytes).map(|()| WriteKind::Created);
    };
    if metadata.nlink() == 1 {
        match replace(parent, target, bytes, &metadata) {
            Ok(()) => return Ok(WriteKind::Replaced),
            Err(ReplaceError::Impossible) => {}
            Err(ReplaceError::Failed(error)) => return Err(error),
        }
    }
    overwrite(&file, target, bytes).map(|()| WriteKind::InPlace)
}

const STAGING: &str = "cannot write (the file at this path is unchanged)";

fn create_parents(parent: &Path) -> Result<(), FileError> {
    fs::create_dir_all(parent).map_err(|error| FileError::from_io(parent, "cannot make directory", error))
}

fn create(parent: &Path, target: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |error| FileError::from_io(target, STAGING, error);
    let mut staged = staging(parent, 0o666).map_err(failed)?;
    fill(staged.as_file_mut(), bytes).map_err(failed)?;
    staged.persist(target).map_err(|error| failed(error.error))?;
    sync_directory(parent)
}

enum ReplaceError {
    /// A new file cannot take this one's place.
    Impossible,
    Failed(FileError),
}

fn replace(parent: &Path, target: &Path, bytes: &[u8], old: &Metadata) -> Result<(), ReplaceError> {
    let failed = |error| ReplaceError::Failed(FileError::from_io(target, STAGING, error));
    let mut staged = staging(parent, 0o600).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ReplaceError::Impossible,
        _ => failed(error),
    })?;
    let file = staged.as_file_mut();
    let ours = file.metadata().map_err(failed)?;
    if (ours.uid(), ours.gid()) != (old.uid(), old.gid())
        && fchown(&*file, Some(old.uid()), Some(old.gid())).is_err()
    {
        return Err(ReplaceError::Impossible);
    }
    fill(file, bytes).map_err(failed)?;
    // After the owner: a change of owner clears set-user-id bits.
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777)).map_err(failed)?;
    sync(file).map_err(failed)?;
    staged.persist(target).map_err(|error| match error.error.kind() {
        // A mount point, or a name in a sticky directory that belongs to someone else.
        io::ErrorKind::ResourceBusy | io::ErrorKind::PermissionDenied => ReplaceError::Impossible,
        _ => failed(error.error),
    })?;
    sync_directory(parent).map_err(ReplaceError::Failed)
}

/// A file without a place yet; it goes when dropped.
fn staging(parent: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".quipu-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(parent)
}

fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    sync(file)
}

/// Makes what was written survive a loss of power. On macOS that is a command to the disk, which shares of other
/// machines do not know: there the weaker call has to do.
fn sync(file: &File) -> io::Result<()> {
    match file.sync_all() {
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::ENOTSUP | Errno::EINVAL | Errno::ENOTTY)
            ) =>
        {
            nix::unistd::fsync(file).map_err(io::Error::from)
        }
        synced => synced,
    }
}

/// Makes a rename survive a loss of power.
pub(crate) fn sync_directory(parent: &Path) -> Result<(), FileError> {
    let result = File::open(parent).and_then(|directory| directory.sync_all());
    match result {
        Ok(()) => Ok(()),
        // Some file systems cannot do this, and a directory need not be readable to be written to.
        Err(error)
            if matches!(
                error.raw_os_error().map(Errno::from_raw),
                Some(Errno::EINVAL | Errno::ENOTSUP | Errno::EACCES | Errno::EBADF)
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(FileError::from_io(
            parent,
            "the file was written, but cannot make its name durable in",
            error,
        )),
    }
}

fn overwrite(file: &File, target: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let put = |bytes: &[u8]| {
        file.write_all_at(bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        sync(file)
    };
    // A file that we may write and not read, or a huge one, goes without a way back.
    let backup =
        open(target, OpenOptions::new().read(true), "cannot read").and_then(|(mut file, metadata)| {
            read_rest(&mut file, target, metadata.len(), BACKUP_LIMIT, &CancellationToken::new())
        });
    let Err(error) = put(bytes) else { return Ok(()) };
    let action = match backup.map(|old| put(&old)) {
        Ok(Ok(())) => "cannot write (the old content was restored)",
        _ => "cannot write, and the old content could not be restored: the file is now half written:",
    };
    Err(FileError::Io { path: target.to_path_buf(), action, source: error })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::read_whole;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn mode_and_links_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("script"), "old").unwrap();
        fs::set_permissions(at("script"), Permissions::from_mode(0o751)).unwrap();
        symlink("script", at("link")).unwrap();
        symlink("link", at("link2")).unwrap();
        assert_eq!(write_file(&at("link2"), b"new", None).unwrap(), WriteKind::Replaced);
        assert_eq!(fs::read(at("script")).unwrap(), b"new");
        assert_eq!(fs::metadata(at("script")).unwrap().mode() & 0o7777, 0o751);
        assert!(at("link").is_symlink() && at("link2").is_symlink());

        fs::hard_link(at("script"), at("twin")).unwrap();
        assert_eq!(write_file(&at("twin"), b"both of them", None).unwrap(), WriteKind::InPlace);
        assert_eq!(fs::read(at("script")).unwrap(), b"both of them");
        assert_eq!(write_file(&at("script"), b"s", None).unwrap(), WriteKind::InPlace);
        assert_eq!(fs::read(at("twin")).unwrap(), b"s");
        assert_eq!(names(dir.path()), ["link", "link2", "script", "twin"]);
    }

    #[test]
    fn directories_are_made_and_dangling_links_filled() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(write_file(&at("a/b/c"), b"x", None).unwrap(), WriteKind::Created);
        symlink("a/b/d", at("dangling")).unwrap();
        assert_eq!(write_file(&at("dangling"), b"y", None).unwrap(), WriteKind::Created);
        assert!(at("dangling").is_symlink());
        assert_eq!(fs::read(at("a/b/d")).unwrap(), b"y");
        fs::write(at("probe"), "").unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().mode();
        assert_eq!(mode("a/b/c"), mode("probe"), "the umask counts");
    }

    #[test]
    fn write_refuses_special_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("fifo", at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        let check = |path: &Path, expect: &str| {
            assert_eq!(write_file(path, b"x", None).unwrap_err().code(), expect, "{}", path.display());
        };
        check(&at("fifo"), "EINVAL");
        check(&at("link"), "EINVAL");
        check(&at("socket"), "EINVAL");
        check(Path::new("/dev/null"), "EINVAL");
        check(dir.path(), "EISDIR");
        check(&at("new/"), "EISDIR");
        check(&at("file/below"), "ENOTDIR");
        for name in ["fifo", "socket", "link"] {
            assert_eq!(crate::open_for_reading(&at(name)).unwrap_err().code(), "EINVAL", "{name}");
        }
        assert_eq!(crate::open_for_reading(Path::new("/dev/zero")).unwrap_err().code(), "EINVAL");
        assert_eq!(crate::open_for_reading(&at("nothing")).unwrap_err().code(), "ENOENT");
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let (bytes, stamp) = read_whole(&path, 10, &CancellationToken::new()).unwrap();
        assert_eq!(bytes, b"one");
        fs::write(&path, "three").unwrap();
        assert_eq!(write_file(&path, b"two", Some(&stamp)).unwrap_err().code(), "ESTALE");
        fs::remove_file(&path).unwrap();
        assert_eq!(write_file(&path, b"two", Some(&stamp)).unwrap_err().code(), "ESTALE");
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn opened_file_is_checked_before_the_write() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("one"), "old").unwrap();
        fs::write(at("two"), "old").unwrap();
        fs::hard_link(at("two"), at("three")).unwrap();
        let check = |found: &Metadata| match found.nlink() {
            1 => Ok(()),
            _ => Err(FileError::Cancelled),
        };
        let write = |name: &str| write_at(&at(name), b"new", None, OFlag::O_NOFOLLOW, &check);
        assert_eq!(write("one").unwrap(), WriteKind::Replaced);
        assert_eq!(write("new").unwrap(), WriteKind::Created);
        assert_eq!(write("two").unwrap_err().code(), "ECANCELED");
        assert_eq!(fs::read(at("three")).unwrap(), b"old");
    }

    #[test]
    fn loading_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_whole(&path, 4, &CancellationToken::new()).unwrap_err().code(), "EFBIG");
        assert_eq!(read_whole(&path, 5, &CancellationToken::new()).unwrap().0, b"12345");
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert_eq!(read_whole(&path, 5, &cancelled).unwrap_err().code(), "ECANCELED");
    }
}
