//! The thread that copies the log into the file while large commits come.
//!
//! Nobody waits for it, so it yields to all who work: on a machine with few cores the next commit is not made later by what
//! can be done after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::failure::Place;
use super::readers::Connect;
use super::writer::{guarded, join};

/// How nice the thread is to others, of 19.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The handle to the thread, which is started when there is something to copy.
pub(super) struct Copier {
    connect: Connect,
    place: Place,
    thread: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
    /// The file is being closed, which copies what is left.
    ended: Arc<AtomicBool>,
}

impl Copier {
    pub(super) fn new(connect: Connect, place: Place) -> Self {
        Self { connect, place, thread: Mutex::default(), ended: Arc::default() }
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
        let serve = move || serve(&asks, &ended, &connect, &place);
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

fn serve(asks: &Receiver<()>, ended: &AtomicBool, connect: &Connect, place: &Place) {
    yield_to_others();
    let mut open: Option<Connection> = None;
    while asks.recv().is_ok() && !ended.load(Ordering::Relaxed) {
        let copied = guarded(place, "copy the log of", || {
            let connection = match open.take() {
                Some(connection) => connection,
                None => connect()?,
            };
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            Ok(connection)
        });
        // One that failed is not used again.
        open = copied.ok();
    }
}

/// Where it is not allowed, the thread works as any other.
fn yield_to_others() {
    #[cfg(target_os = "linux")]
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).ok();
}
