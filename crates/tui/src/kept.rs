//! Small files of the terminal's in the user's home of Quipu: opened so that many processes can share them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag};

/// How often a file may be another one before its lock is there.
const TRIES: usize = 100;

/// Makes the directory and those above it, for the user alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Opens a file for reading and appending, makes it (0600) where there is none, and locks it. The file at the path
/// when this returns is the one that is locked. `None` when another process has the lock, and `wait` is not set.
pub(crate) fn lock(path: &Path, wait: bool) -> io::Result<Option<Flock<File>>> {
    let argument = if wait { FlockArg::LockExclusive } else { FlockArg::LockExclusiveNonblock };
    for _ in 0..TRIES {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            // Opening never waits for whoever is at the other end of something that is no file.
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let locked = match Flock::lock(file, argument) {
            Ok(locked) => locked,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, errno)) => return Err(errno.into()),
        };
        let ours = locked.metadata()?;
        // Whoever had the lock may have put another file in its place, or removed it.
        let is_there =
            std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if !is_there {
            continue;
        }
        if ours.mode() & 0o077 != 0 {
            locked.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        return Ok(Some(locked));
    }
    Err(io::Error::other("other processes replace it all the time"))
}

/// Puts a file of these bytes at a path in one step, for the user alone. Through links to what they lead to.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let parent = target.parent().unwrap_or(Path::new("."));
    let mut staged = tempfile::Builder::new()
        .prefix(".quipu-")
        .suffix(".tmp")
        .permissions(std::fs::Permissions::from_mode(0o600))
        .tempfile_in(parent)?;
    io::Write::write_all(&mut staged, bytes)?;
    if durable {
        staged.as_file().sync_data()?;
    }
    staged.persist(&target).map_err(|error| error.error)?;
    Ok(())
}
