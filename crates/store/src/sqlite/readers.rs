//! The threads that read, each with a connection of its own.

use crate::error::system_error;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::failure::{Outcome, Place};
use super::shared::{SharedMemory, Slot, lock};
use super::writer::{guarded, join, stopped};
use crate::StoreError;

/// Reads that may wait; more callers wait before they queue.
const READS: usize = 64;

type Read = Box<dyn FnOnce(&mut ReadConnection) + Send>;

/// The handle to the readers' threads. They are started, and their connections opened, when there is something to
/// read: many a process reads little.
pub(super) struct Readers {
    reads: Option<Sender<(Read, OwnedSemaphorePermit)>>,
    queue: Arc<Mutex<Receiver<(Read, OwnedSemaphorePermit)>>>,
    room: Arc<Semaphore>,
    place: Place,
    connect: Connect,
    /// `None` where no other process's doings can concern it.
    shared: Option<Arc<SharedMemory>>,
    /// Threads at most.
    most: usize,
    /// Reads that are queued or under way.
    open: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How a reader makes its connection, now and after an error of the disk.
pub(super) type Connect = Arc<dyn Fn() -> Outcome<Connection> + Send + Sync>;

/// A read that leaves its answer where whoever asked looks for it. What happens until then is compiled once, not for each
/// read: that would be a fortieth of the program.
pub(super) type UntypedRead = Box<dyn FnOnce(&Connection) -> Outcome<()> + Send>;

/// Where a read leaves its answer.
pub(super) struct Answer<T>(Arc<Mutex<Option<T>>>);

impl<T> Answer<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(super) fn untyped<T: Send + 'static>(
    work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
) -> (UntypedRead, Answer<T>) {
    let answer = Answer(Arc::default());
    let place = Arc::clone(&answer.0);
    let work = move |connection: &Connection| {
        let found = work(connection)?;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(())
    };
    (Box::new(work), answer)
}

pub(super) fn in_transaction(work: UntypedRead) -> UntypedRead {
    Box::new(move |connection| {
        let transaction = connection.unchecked_transaction()?;
        work(&transaction)?;
        transaction.commit()?;
        Ok(())
    })
}

struct ReadConnection {
    connection: Option<Connection>,
    connect: Connect,
    shared: Option<Arc<SharedMemory>>,
    /// Where the connection rests between two reads.
    slot: Slot,
    /// Why there is none now.
    refused: Option<StoreError>,
}

impl Readers {
    pub(super) fn new(
        most: usize,
        connect: Connect,
        place: Place,
        shared: Option<Arc<SharedMemory>>,
    ) -> Self {
        let (reads, queue) = channel();
        Self {
            reads: Some(reads),
            queue: Arc::new(Mutex::new(queue)),
            room: Arc::new(Semaphore::new(READS)),
            place,
            connect,
            shared,
            most,
            open: Arc::default(),
            threads: Mutex::default(),
        }
    }

    /// Starts all threads that there may be, each of which makes its connection at once.
    pub(super) fn warm_up(&self) {
        // One that cannot be started is tried again, and told, when there is something to read; so is a connection.
        while self.threads.lock().unwrap_or_else(PoisonError::into_inner).len() < self.most {
            if self.start(None, true).is_err() {
                return;
            }
        }
    }

    /// Starts one more thread, if there may be one more.
    pub(super) fn spawn(&self, connection: Option<Connection>) -> io::Result<()> {
        self.start(connection, false)
    }

    fn start(&self, connection: Option<Connection>, connects: bool) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() == self.most {
            return Ok(());
        }
        let slot = self.shared.as_ref().map(|shared| shared.slot()).unwrap_or_default();
        *lock(&slot) = connection;
        let (connect, shared) = (Arc::clone(&self.connect), self.shared.clone());
        let mut own = ReadConnection { connection: None, connect, shared, slot, refused: None };
        let queue = Arc::clone(&self.queue);
        let place = self.place.clone();
        let serve = move || {
            if connects {
                own.using(|own| drop(own.connection(&place)));
            }
            loop {
                // One thread waits here at a time, the others for the lock.
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((read, permit)) = next else { return };
                own.using(read);
                drop(permit);
            }
        };
        threads.push(std::thread::Builder::new().name("quipu-store-reader".to_owned()).spawn(serve)?);
        Ok(())
    }

    /// Runs a read on one of the threads. Nobody waiting any more before it begins: it does not run.
    pub(super) async fn read(&self, work: UntypedRead) -> Result<(), StoreError> {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(|_| stopped(&self.place))?;
        let (answer, result) = oneshot::channel();
        let place = self.place.clone();
        let open = OpenReadCount::new(&self.open);
        // One thread for each read, up to the most: a long one must not hold up a short one.
        if open.before < self.most {
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).len();
            if open.before >= threads
                && let Err(error) = self.spawn(None)
                && threads == 0
            {
                return Err(system_error(&self.place.path, "start a thread for", &error));
            }
        }
        let read: Read = Box::new(move |own| {
            if answer.is_closed() {
                return;
            }
            let result =
                own.connection(&place).and_then(|connection| guarded(&place, "read", || work(connection)));
            if let Err(StoreError::Io { .. } | StoreError::Corrupt { .. }) = &result {
                own.connection = None;
            }
            // Before the answer: whoever gets it may ask again at once.
            drop(open);
            answer.send(result).ok();
        });
        let sent = self.reads.as_ref().map(|reads| reads.send((read, permit)));
        if !matches!(sent, Some(Ok(()))) {
            return Err(stopped(&self.place));
        }
        result.await.map_err(|_| stopped(&self.place))?
    }
}

/// Counts a read for as long as it lives.
struct OpenReadCount {
    open: Arc<AtomicUsize>,
    before: usize,
}

impl OpenReadCount {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        Self { before: open.fetch_add(1, Ordering::Relaxed), open: Arc::clone(open) }
    }
}

impl Drop for OpenReadCount {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadConnection {
    /// Does something with the connection, while the memory that it shares is in order.
    fn using(&mut self, work: impl FnOnce(&mut Self)) {
        let shared = self.shared.clone();
        let held = shared.as_ref().map(|shared| shared.hold()).transpose();
        self.connection = held.is_ok().then(|| lock(&self.slot).take()).flatten();
        self.refused = held.as_ref().err().cloned();
        work(self);
        if let Some(connection) = self.connection.take() {
            *lock(&self.slot) = Some(connection);
        }
    }

    fn connection(&mut self, place: &Place) -> Result<&Connection, StoreError> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = (self.connect)().map_err(|error| place.error("open", error))?;
                if let Some(shared) = &self.shared {
                    shared.opened();
                }
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            join(Some(thread));
        }
    }
}
