//! Small files of the terminal's in the user's home of Quipu: opened so that many processes can share them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{Flock, FlockArg, OFlag};

/// Files that may wait to be brought to the disk. More orders than that are for files that wait already.
const WAITING: usize = 256;
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
    Err(io::Error::other("other processes keep replacing it"))
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

/// Brings files to the disk in a thread of its own, so that no key waits for a disk. What several orders changed in a
/// file is brought there once.
#[derive(Debug)]
pub(crate) struct Syncer {
    bring: fn(&Path) -> io::Result<()>,
    orders: Option<SyncSender<PathBuf>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Default for Syncer {
    fn default() -> Self {
        Self::with(bring)
    }
}

impl Syncer {
    fn with(bring: fn(&Path) -> io::Result<()>) -> Self {
        Self { bring, orders: None, failed: Arc::default() }
    }

    /// Has a file brought to the disk, and its place in its directory. Does not wait.
    ///
    /// # Errors
    /// An earlier one could not be.
    pub(crate) fn sync(&mut self, path: &Path) -> io::Result<()> {
        let orders = match &self.orders {
            Some(orders) => orders,
            None => {
                let (orders, given) = sync_channel(WAITING);
                let (failed, bring) = (self.failed.clone(), self.bring);
                std::thread::Builder::new()
                    .name("kept".to_owned())
                    .spawn(move || work(&given, bring, &failed))?;
                self.orders.insert(orders)
            }
        };
        // Where there is no room, this file is among those that wait.
        drop(orders.try_send(path.to_owned()));
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

fn work(orders: &Receiver<PathBuf>, bring: fn(&Path) -> io::Result<()>, failed: &Mutex<Option<io::Error>>) {
    while let Ok(first) = orders.recv() {
        let mut paths = vec![first];
        for path in orders.try_iter() {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        for path in paths {
            if let Err(error) = bring(&path) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    }
}

fn bring(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all()?,
        // It was sent meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{LazyLock, MutexGuard};

    type SyncChannel = (Mutex<Sender<PathBuf>>, Mutex<Receiver<PathBuf>>);

    /// What the thread was told to bring to the disk.
    static CHANNEL: LazyLock<SyncChannel> = LazyLock::new(|| {
        let (sender, received) = channel();
        (Mutex::new(sender), Mutex::new(received))
    });
    /// Open when it may.
    static GATE: Mutex<()> = Mutex::new(());

    fn slow(path: &Path) -> io::Result<()> {
        CHANNEL.0.lock().unwrap().send(path.to_owned()).unwrap();
        let _gate: MutexGuard<'_, ()> = GATE.lock().unwrap();
        if path.ends_with("bad") { Err(io::Error::other("the disk is full")) } else { bring(path) }
    }

    #[test]
    fn a_key_does_not_wait_for_the_disk_and_hears_that_it_failed() {
        let received = CHANNEL.1.lock().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("draft");
        std::fs::write(&path, "text").unwrap();
        let mut syncer = Syncer::with(slow);
        let gate = GATE.lock().unwrap();
        syncer.sync(&path).unwrap();
        assert_eq!(received.recv().unwrap(), path);
        // The disk is at work: a thousand keys, and a paste.
        for _ in 0..1_000 {
            syncer.sync(&path).unwrap();
        }
        drop(gate);
        assert_eq!(received.recv().unwrap(), path, "once more for all of them");
        // They may have been taken in two parts.
        syncer.sync(&directory.path().join("bad")).unwrap();
        while !received.recv().unwrap().ends_with("bad") {}
        while syncer.failed.lock().unwrap().is_none() {
            std::thread::yield_now();
        }
        let error = syncer.sync(&path).unwrap_err();
        assert!(error.to_string().contains("full"));
        syncer.sync(&path).unwrap();
        syncer.sync(&directory.path().join("gone")).unwrap();
    }
}
