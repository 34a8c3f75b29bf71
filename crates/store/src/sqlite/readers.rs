//! The threads that read, each with a connection of its own.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::failure::{Outcome, Place};
use super::file;
use super::writer::{guarded, join, stopped};
use crate::StoreError;

/// Reads that may wait; more callers wait before they queue.
const READS: usize = 64;

type Read = Box<dyn FnOnce(&mut ReadConnection) + Send>;

/// The handle to the readers' threads.
pub(super) struct Readers {
    reads: Option<Sender<(Read, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
    place: Place,
    threads: Vec<JoinHandle<()>>,
}

/// How a reader makes its connection, now and after an error of the disk.
pub(super) type Connect = Arc<dyn Fn() -> Outcome<Connection> + Send + Sync>;

struct ReadConnection {
    connection: Option<Connection>,
    connect: Connect,
}

impl Readers {
    pub(super) fn start(count: usize, connect: &Connect, place: Place) -> Outcome<Self> {
        let (reads, queue) = channel::<(Read, OwnedSemaphorePermit)>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..count {
            let mut own = ReadConnection { connection: Some(connect()?), connect: Arc::clone(connect) };
            let queue = Arc::clone(&queue);
            let serve = move || {
                loop {
                    // One thread waits here at a time, the other for the lock.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((read, permit)) = next else { return };
                    read(&mut own);
                    drop(permit);
                }
            };
            let thread = std::thread::Builder::new().name("quipu-store-reader".to_owned()).spawn(serve);
            threads.push(thread.map_err(|error| file::system(&place.path, "start a thread for", &error))?);
        }
        Ok(Self { reads: Some(reads), room: Arc::new(Semaphore::new(READS)), place, threads })
    }

    /// Runs a read on one of the threads. Nobody waiting any more before it begins: it does not run.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(|_| stopped(&self.place))?;
        let (answer, result) = oneshot::channel();
        let place = self.place.clone();
        let read: Read = Box::new(move |own| {
            if answer.is_closed() {
                return;
            }
            let result =
                own.connection(&place).and_then(|connection| guarded(&place, "read", || work(connection)));
            if let Err(StoreError::Io { .. } | StoreError::Corrupt { .. }) = &result {
                own.connection = None;
            }
            answer.send(result).ok();
        });
        let sent = self.reads.as_ref().map(|reads| reads.send((read, permit)));
        if !matches!(sent, Some(Ok(()))) {
            return Err(stopped(&self.place));
        }
        result.await.map_err(|_| stopped(&self.place))?
    }
}

impl ReadConnection {
    fn connection(&mut self, place: &Place) -> Result<&Connection, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => (self.connect)().map_err(|error| place.error("open", error))?,
        };
        Ok(self.connection.insert(connection))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            join(Some(thread));
        }
    }
}
