//! Clients of event streams: what is kept of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{SetOnce, watch};
use tokio_util::sync::CancellationToken;

use crate::line_meter::LineMeter;

/// The clients that are there, by their ids.
#[derive(Default)]
pub(crate) struct EventClients(Mutex<HashMap<String, Arc<EventClient>>>);

pub(crate) struct EventClient {
    pub(crate) input: tokio::sync::Mutex<ClientInput>,
    pub(crate) output: Arc<tokio::sync::Mutex<ClientOutput>>,
    /// Whether an event stream is there.
    pub(crate) is_attached: watch::Sender<bool>,
    /// Why it is to end.
    close: Mutex<Option<&'static str>>,
    pub(crate) closed: CancellationToken,
    /// Why it ended.
    pub(crate) end: SetOnce<&'static str>,
    /// Its event stream was read to its end.
    pub(crate) is_read: CancellationToken,
}

pub(crate) struct ClientInput {
    pub(crate) write: WriteHalf<DuplexStream>,
    pub(crate) meter: LineMeter,
}

pub(crate) struct ClientOutput {
    pub(crate) read: BufReader<ReadHalf<DuplexStream>>,
    /// What came of a line so far.
    pub(crate) line: Vec<u8>,
}

impl EventClient {
    pub(crate) fn new(input: ClientInput, output: ClientOutput) -> Self {
        Self {
            input: tokio::sync::Mutex::new(input),
            output: Arc::new(tokio::sync::Mutex::new(output)),
            is_attached: watch::Sender::new(false),
            close: Mutex::default(),
            closed: CancellationToken::new(),
            end: SetOnce::new(),
            is_read: CancellationToken::new(),
        }
    }

    pub(crate) fn close(&self, why: &'static str) {
        self.close.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.closed.cancel();
    }

    pub(crate) fn reason(&self) -> &'static str {
        self.close.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or("left")
    }
}

impl EventClients {
    pub(crate) fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<EventClient>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn client(&self, id: &str) -> Option<Arc<EventClient>> {
        self.all().get(id).cloned()
    }
}

/// Says that an event stream is there, for as long as it is.
pub(crate) struct AttachGuard(Arc<EventClient>);

impl AttachGuard {
    pub(crate) fn new(client: Arc<EventClient>) -> Self {
        client.is_attached.send_replace(true);
        Self(client)
    }

    pub(crate) fn client(&self) -> &EventClient {
        &self.0
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        self.0.is_attached.send_replace(false);
    }
}

/// Waits until no event stream was there for a time.
pub(crate) async fn detached(client: &EventClient, patience: Duration) {
    let mut is_attached = client.is_attached.subscribe();
    loop {
        if is_attached.wait_for(|is| !is).await.is_err() {
            return;
        }
        match tokio::time::timeout(patience, is_attached.wait_for(|is| *is)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
