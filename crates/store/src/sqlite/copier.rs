//! The thread that copies the log into the file while large commits come.
//!
//! Nobody waits for it, so it yields to all who work: on a machine with few cores the next commit is not made later by what
//! can be done after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::cut::{Log, look_at_log};
use super::failure::Place;
use super::file::beside;
use super::readers::Connect;
use super::shared::{Shared, lock};
use super::writer::{guarded, join};

/// How nice the thread is to others, of 19.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The handle to the thread, which is started when there is something to copy.
pub(super) struct Copier {
    connect: Connect,
    place: Place,
    shared: Option<Arc<Shared>>,
    thread: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
    /// The file is being closed, which copies what is left.
    ended: Arc<AtomicBool>,
}

impl Copier {
    pub(super) fn new(connect: Connect, place: Place, shared: Option<Arc<Shared>>) -> Self {
        Self { connect, place, shared, thread: Mutex::default(), ended: Arc::default() }
    }

    /// Copies what is in the log, beside whoever asks. What cannot be copied is when the file is closed, or by a commit that
    /// finds the log long.
    pub(super) fn copy(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, _)) = &*thread {
            match asked.try_send(()) {
                // One that was asked already sees this commit, too.
                Ok(()) | Err(TrySendError::Full(())) => return,
                Err(TrySendError::Disconnected(())) => {}
            }
        }
        let (asked, asks) = sync_channel(1);
        let (connect, place, ended) = (self.connect.clone(), self.place.clone(), Arc::clone(&self.ended));
        let shared = self.shared.clone();
        let serve = move || serve(&asks, &ended, &connect, &place, shared.as_deref());
        if let Ok(started) = std::thread::Builder::new().name("quipu-store-log".to_owned()).spawn(serve) {
            // There is room for one.
            asked.try_send(()).ok();
            *thread = Some((asked, started));
        }
    }
}

impl Drop for Copier {
    /// Waits for what is being copied.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((asked, thread)) = thread {
            drop(asked);
            join(Some(thread));
        }
    }
}

fn serve(asks: &Receiver<()>, ended: &AtomicBool, connect: &Connect, place: &Place, shared: Option<&Shared>) {
    yield_to_others();
    let log = beside(&place.path, "-wal");
    let slot = shared.map(Shared::slot).unwrap_or_default();
    while asks.recv().is_ok() && !ended.load(Ordering::Relaxed) {
        let Ok(_held) = shared.map(Shared::hold).transpose() else { continue };
        let copied = guarded(place, "copy the WAL of", || {
            let rested = lock(&slot).take();
            let connection = match rested {
                Some(connection) => connection,
                None => {
                    let connection = connect()?;
                    shared.inspect(|shared| shared.opened());
                    connection
                }
            };
            // A part of one that was cut short would leave the file with a part of a step.
            if look_at_log(&connection, &log) == Log::Whole {
                connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            }
            Ok(connection)
        });
        // One that failed is not used again.
        *lock(&slot) = copied.ok();
    }
}

/// Where it is not allowed, the thread works as any other.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).ok();
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rusqlite::Connection;

    use super::*;

    /// A database with something in its log, and a copier that cannot open it so many times.
    fn begin(path: &Path, failures: usize) -> (Connection, Copier) {
        let writer = Connection::open(path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x); INSERT INTO t VALUES (1)",
            )
            .unwrap();
        let place = Place { path: path.to_owned(), busy: Duration::from_secs(1), identity: None };
        let (path, left) = (path.to_owned(), Mutex::new(failures));
        let connect: Connect = Arc::new(move || {
            let mut left = left.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return Err(crate::StoreError::ReadOnly { path: path.clone() }.into());
            }
            Ok(Connection::open(&path)?)
        });
        (writer, Copier::new(connect, place, None))
    }

    /// Asks until all is copied.
    fn ask(writer: &Connection, copier: &Copier) {
        let begun = Instant::now();
        loop {
            copier.copy();
            let pages = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
            let (log, copied) = writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], pages).unwrap();
            if log == copied {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{copied} of {log} pages");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_in_the_log_reaches_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, copier) = begin(&dir.path().join("file"), 0);
        ask(&writer, &copier);
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        ask(&writer, &copier);
    }

    #[test]
    fn what_fails_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, copier) = begin(&dir.path().join("file"), 3);
        ask(&writer, &copier);
    }
}
