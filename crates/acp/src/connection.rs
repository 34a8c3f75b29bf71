//! One connection: what is sent to the client, and answers of the client to our own requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::wire::{self, INTERNAL, WireError};

/// Lines on their way to a client before those who make them wait.
pub(crate) const LINES: usize = 256;

/// The client's end of a connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Inner>);

struct Inner {
    /// Gone once the connection ended.
    lines: Mutex<Option<mpsc::Sender<String>>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<Value, WireError>>>>,
    next: AtomicU64,
    /// It sends nothing any more, so it answers nothing.
    has_left: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone() -> WireError {
    WireError::new(INTERNAL, "the client is gone")
}

/// A request that the client has not answered. Dropped before, it is taken back.
struct PendingRequest<'a> {
    connection: &'a Connection,
    id: u64,
    is_answered: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        lock(&self.connection.0.waiting).remove(&self.id);
        if !self.is_answered {
            let taken_back = wire::notification("$/cancel_request", &json!({ "requestId": self.id }));
            self.connection.try_send(&taken_back);
        }
    }
}

impl Connection {
    pub(crate) fn new(lines: mpsc::Sender<String>) -> Self {
        let (lines, waiting) = (Mutex::new(Some(lines)), Mutex::default());
        Self(Arc::new(Inner { lines, waiting, next: AtomicU64::new(1), has_left: AtomicBool::new(false) }))
    }

    /// The client sends nothing any more: whoever waits for an answer gets none.
    pub(crate) fn left(&self) {
        self.0.has_left.store(true, Ordering::SeqCst);
        lock(&self.0.waiting).clear();
    }

    /// Nothing is sent any more either.
    pub(crate) fn close(&self) {
        self.left();
        lock(&self.0.lines).take();
    }

    /// Whether it was taken: not when the client is gone.
    pub(crate) async fn send(&self, message: &Value) -> bool {
        let lines = lock(&self.0.lines).clone();
        match lines {
            Some(lines) => lines.send(format!("{message}\n")).await.is_ok(),
            None => false,
        }
    }

    /// The same for a message that may be missed.
    fn try_send(&self, message: &Value) {
        if let Some(lines) = &*lock(&self.0.lines) {
            drop(lines.try_send(format!("{message}\n")));
        }
    }

    pub(crate) async fn answer(&self, id: &Value, result: Result<Value, WireError>) -> bool {
        self.send(&wire::answer(id, result)).await
    }

    /// Tells of a session.
    pub(crate) async fn update(&self, session: &str, update: Value) -> bool {
        let params = json!({ "sessionId": session, "update": update });
        self.send(&wire::notification("session/update", &params)).await
    }

    /// The same for what may be missed.
    pub(crate) fn try_update(&self, session: &str, update: &Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.try_send(&wire::notification("session/update", &params));
    }

    /// Asks the client. Dropping the future takes the request back.
    ///
    /// # Errors
    /// What the client says, or that it is gone.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Value, WireError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.0.waiting).insert(id, answer);
        let mut pending = PendingRequest { connection: self, id, is_answered: false };
        if self.0.has_left.load(Ordering::SeqCst) {
            pending.is_answered = true;
            return Err(gone());
        }
        if !self.send(&wire::request(id, method, params)).await {
            return Err(gone());
        }
        let result = answered.await.unwrap_or_else(|_| Err(gone()));
        pending.is_answered = true;
        result
    }

    /// Takes an answer of the client. One that nobody waits for came too late.
    pub(crate) fn answered(&self, id: &Value, result: Result<Value, WireError>) {
        let waiting = id.as_u64().and_then(|id| lock(&self.0.waiting).remove(&id));
        if let Some(waiting) = waiting {
            drop(waiting.send(result));
        }
    }
}
