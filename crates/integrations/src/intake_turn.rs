//! Whose turn it is to take a session in: one process works, at most one waits, and any other has nothing to do, for the one that
//! waits has not begun to read.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::seen::{file_name, make_directory};

/// The right to take a file in, until it is dropped.
#[derive(Debug)]
pub struct IntakeTurn {
    _running: File,
}

impl IntakeTurn {
    /// Waits for the turn to take `file` in; `None` where somebody waits already. Blocks.
    ///
    /// # Errors
    /// The locks, below `directory`, cannot be made.
    pub fn take(directory: &Path, host: &str, file: &Path) -> io::Result<Option<Self>> {
        let locks = directory.join("intake");
        make_directory(&locks)?;
        let name = file_name(&[host, &file.to_string_lossy()]);
        let open = |end: &str| {
            let path = locks.join(format!("{name}.{end}"));
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
        };
        let waiting = open("next")?;
        match waiting.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let running = open("lock")?;
        running.lock()?;
        drop(waiting);
        Ok(Some(Self { _running: running }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_works_one_waits_and_others_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let take = |file: &str| IntakeTurn::take(&path, "a", Path::new(file)).unwrap();
        let first = take("/s").unwrap();
        let (waits, waited) = channel();
        let second = std::thread::spawn({
            let path = path.clone();
            move || {
                // The lock of the one that waits is taken before this is sent.
                waits.send(()).unwrap();
                IntakeTurn::take(&path, "a", Path::new("/s")).unwrap()
            }
        });
        waited.recv().unwrap();
        // Another file has its own turn.
        assert!(take("/t").is_some());
        // Of these two, one waits in the thread or here: whoever comes while it does goes away.
        let third = std::thread::spawn({
            let path = path.clone();
            move || IntakeTurn::take(&path, "a", Path::new("/s")).unwrap()
        });
        let went = loop {
            if second.is_finished() || third.is_finished() {
                break usize::from(second.is_finished()) + usize::from(third.is_finished());
            }
            std::thread::yield_now();
        };
        assert_eq!(went, 1);
        drop(first);
        let turns = [second.join().unwrap(), third.join().unwrap()];
        assert_eq!(turns.iter().flatten().count(), 1);
    }
}
