//! A lock that processes share: the file is never written, removed or replaced.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::MemoryError;

/// How long somebody else may hold it.
const LONGEST: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// Held until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(#[expect(dead_code, reason = "dropping it gives the lock back")] Flock<File>);

impl FileLock {
    /// Waits for it on this thread, ten seconds at most.
    pub(crate) fn wait(path: &Path) -> Result<Self, MemoryError> {
        let end = Instant::now() + LONGEST;
        loop {
            match Self::now(path)? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < end => std::thread::sleep(PAUSE),
                None => return Err(MemoryError::Busy(path.to_path_buf())),
            }
        }
    }

    /// Waits for it, ten seconds at most. Dropping the future ends the wait.
    pub(crate) async fn take(path: &Path) -> Result<Self, MemoryError> {
        let end = Instant::now() + LONGEST;
        loop {
            match Self::now(path)? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < end => tokio::time::sleep(PAUSE).await,
                None => return Err(MemoryError::Busy(path.to_path_buf())),
            }
        }
    }

    fn now(path: &Path) -> Result<Option<Self>, MemoryError> {
        let file = open_private(path).map_err(MemoryError::io("lock", path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(MemoryError::io("lock", path)(errno.into())),
        }
    }
}

/// The file of the lock, made where there is none.
fn open_private(path: &Path) -> std::io::Result<File> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    File::options().append(true).create(true).mode(0o600).open(path)
}
