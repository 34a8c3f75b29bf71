//! The thread that checkpoints the write-ahead log (WAL) while large commits come.
//!
//! Nobody waits for it, so it yields to all other threads: on a machine with few cores it does not delay the next commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::failure::Place;
use super::file::sibling_path;
use super::readers::Connect;
use super::shared::{SharedMemory, lock};
use super::wal_state::{WalState, inspect_wal};
use super::writer::{guarded, join};

/// How nice the thread is to others, of 19.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The handle to the thread, which starts when there is something to checkpoint.
pub(super) struct Checkpointer {
    connect: Connect,
    place: Place,
    shared: Option<Arc<SharedMemory>>,
    thread: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
    /// The file is being closed, which checkpoints what is left.
    ended: Arc<AtomicBool>,
}

impl Checkpointer {
    pub(super) fn new(connect: Connect, place: Place, shared: Option<Arc<SharedMemory>>) -> Self {
        Self { connect, place, shared, thread: Mutex::default(), ended: Arc::default() }
    }

    /// Checkpoints the WAL in the background. What fails is left for the close of the file, or for a commit that finds the
    /// WAL long.
    pub(super) fn checkpoint(&self) {
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
        if let Ok(started) = std::thread::Builder::new().name("quipu-store-wal".to_owned()).spawn(serve) {
            // There is room for one.
            asked.try_send(()).ok();
            *thread = Some((asked, started));
        }
    }
}

impl Drop for Checkpointer {
    /// Waits for a running checkpoint.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((asked, thread)) = thread {
            drop(asked);
            join(Some(thread));
        }
    }
}

fn serve(
    asks: &Receiver<()>,
    ended: &AtomicBool,
    connect: &Connect,
    place: &Place,
    shared: Option<&SharedMemory>,
) {
    yield_to_others();
    let wal = sibling_path(&place.path, "-wal");
    let slot = shared.map(SharedMemory::slot).unwrap_or_default();
    while asks.recv().is_ok() && !ended.load(Ordering::Relaxed) {
        let Ok(_held) = shared.map(SharedMemory::hold).transpose() else { continue };
        let copied = guarded(place, "checkpoint", || {
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
            if inspect_wal(&connection, &wal) == WalState::Whole {
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

    /// A database with something in its WAL, and a checkpointer that fails to open it so many times.
    fn begin(path: &Path, failures: usize) -> (Connection, Checkpointer) {
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
        (writer, Checkpointer::new(connect, place, None))
    }

    /// Asks until all is copied.
    fn ask(writer: &Connection, checkpointer: &Checkpointer) {
        let begun = Instant::now();
        loop {
            checkpointer.checkpoint();
            let pages = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
            let (wal, copied) = writer.query_row("PRAGMA wal_checkpoint(NOOP)", [], pages).unwrap();
            if wal == copied {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{copied} of {wal} pages");
            std::thread::yield_now();
        }
    }

    #[test]
    fn checkpoint_moves_the_wal_into_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, checkpointer) = begin(&dir.path().join("file"), 0);
        ask(&writer, &checkpointer);
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        ask(&writer, &checkpointer);
    }

    #[test]
    fn failed_checkpoint_is_retried() {
        let dir = tempfile::tempdir().unwrap();
        let (writer, checkpointer) = begin(&dir.path().join("file"), 3);
        ask(&writer, &checkpointer);
    }
}
