//! The one way out: events to those who listen.

use std::collections::VecDeque;
use std::sync::Arc;

use quipu_protocol::{Envelope, Event, NodeId, RunId, SessionId};
use tokio::sync::mpsc;

/// Events that a subscriber can be behind before something happens.
const SLOTS: usize = 256;

/// What happens to a subscriber that is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Gets every event; when it is 256 behind, the model's stream waits for it. Commands still run.
    Lossless,
    /// Never holds up a run; what it missed is counted in [`Event::Lagged`].
    Live,
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The session that is written to; changes when it had to branch.
    pub session: SessionId,
    /// Its last node; `None` before the first message.
    pub head: Option<NodeId>,
    /// The run under way.
    pub run: Option<RunId>,
    /// How many messages wait.
    pub waiting: usize,
}

/// The receiving end of a subscription.
#[derive(Debug)]
pub struct Events {
    pub(crate) rx: mpsc::Receiver<Arc<Envelope>>,
}

impl Events {
    /// The next event; `None` when the session is closed and all were read.
    pub async fn next(&mut self) -> Option<Arc<Envelope>> {
        self.rx.recv().await
    }
}

pub(crate) struct Subscriber {
    tx: mpsc::Sender<Arc<Envelope>>,
    delivery: Delivery,
    pub(crate) answers: bool,
    backlog: VecDeque<Arc<Envelope>>,
    missed: u64,
}

impl Subscriber {
    pub(crate) fn new(delivery: Delivery, answers: bool) -> (Self, Events) {
        let (tx, rx) = mpsc::channel(SLOTS);
        (Self { tx, delivery, answers, backlog: VecDeque::new(), missed: 0 }, Events { rx })
    }

    /// Whether someone still listens.
    pub(crate) fn is_open(&self) -> bool {
        !self.tx.is_closed()
    }

    /// Resolves when nobody listens any more.
    pub(crate) async fn closed(&self) {
        self.tx.closed().await;
    }

    /// Whether the model's stream should wait for it.
    pub(crate) fn is_behind(&self) -> bool {
        !self.backlog.is_empty() && self.is_open()
    }

    pub(crate) fn send(&mut self, envelope: &Arc<Envelope>) {
        match self.delivery {
            Delivery::Lossless => {
                self.backlog.push_back(envelope.clone());
                self.flush();
            }
            Delivery::Live => {
                if self.missed > 0 && self.tx.capacity() >= 2 {
                    let event = Event::Lagged { missed: std::mem::take(&mut self.missed) };
                    let lagged = Arc::new(Envelope { event, ..Envelope::clone(envelope) });
                    // There is room for two.
                    self.missed += u64::from(self.tx.try_send(lagged).is_err());
                }
                self.missed += u64::from(self.missed > 0 || self.tx.try_send(envelope.clone()).is_err());
            }
        }
    }

    /// Moves what fits out of the backlog.
    pub(crate) fn flush(&mut self) {
        while let Some(envelope) = self.backlog.pop_front() {
            if let Err(error) = self.tx.try_send(envelope) {
                match error {
                    mpsc::error::TrySendError::Full(envelope) => self.backlog.push_front(envelope),
                    mpsc::error::TrySendError::Closed(_) => self.backlog.clear(),
                }
                return;
            }
        }
    }

    /// Resolves when there is room for one more, or nobody listens.
    pub(crate) async fn room(&self) {
        // The permit is given back at once: `flush` takes what fits.
        drop(self.tx.reserve().await);
    }
}
