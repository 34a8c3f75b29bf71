//! Requests that are not answered yet, and how many of them run at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Calls that run at once; their results are not given up before they are written, so a client that does not read holds up
/// this many, and the others wait.
const SLOTS: usize = 8;
/// Requests that wait for an answer at most; beyond, nothing is read.
pub(crate) const MOST: usize = 1_024;

/// Requests that are not answered yet.
#[derive(Clone)]
pub(crate) struct InFlight {
    requests: Arc<Mutex<HashMap<RequestId, Option<OwnedSemaphorePermit>>>>,
    slots: Arc<Semaphore>,
    fewer: Arc<Notify>,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { requests: Arc::default(), slots: Arc::new(Semaphore::new(SLOTS)), fewer: Arc::default() }
    }
}

impl InFlight {
    /// Notes a request; refuses one whose id another one in flight has.
    pub(crate) fn begin(&self, id: &RequestId) -> bool {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.contains_key(id) {
            return false;
        }
        requests.insert(id.clone(), None);
        true
    }

    /// The request is answered, or was cancelled: nobody answers it any more.
    pub(crate) fn end(&self, id: &RequestId) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.fewer.notify_one();
    }

    /// Waits until there is room for another request. Used by one reader.
    pub(crate) async fn room(&self) {
        while self.requests.lock().unwrap_or_else(PoisonError::into_inner).len() >= MOST {
            self.fewer.notified().await;
        }
    }

    /// A place to run; `None` when the server stops.
    pub(crate) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        self.slots.clone().acquire_owned().await.ok()
    }

    /// Gives the place of a request back when its answer is written; at once where nobody tells of that.
    pub(crate) fn keep(&self, id: &RequestId, slot: OwnedSemaphorePermit) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = requests.get_mut(id) {
            *kept = Some(slot);
        }
    }
}
