//! A point in a reply where the server waits for the test.

use std::sync::Arc;

use tokio::sync::watch;

/// A point in a reply. The server stops there until the test opens it; the test can wait until it is reached.
/// Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    reached: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)), reached: Arc::new(watch::Sender::new(false)) }
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the server go on, now or when it comes here.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until the server has come here: everything before it has been sent.
    pub async fn reached(&self) {
        wait(&self.reached).await;
    }

    pub(crate) async fn pass(&self) {
        self.reached.send_replace(true);
        wait(&self.open).await;
    }
}

async fn wait(sender: &watch::Sender<bool>) {
    // Cannot fail: the sender lives as long as the gate.
    drop(sender.subscribe().wait_for(|done| *done).await);
}
