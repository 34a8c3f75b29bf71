//! The one way out: events to those who listen.

use std::collections::VecDeque;
use std::sync::Arc;

use quipu_protocol::{Envelope, Event, NodeId, RunId, SessionId, Snapshot};
use tokio::sync::mpsc;

/// Events that a subscriber can be behind before something happens.
const SLOTS: usize = 256;

/// Events that a lossless subscriber can be behind before commands that begin something are refused.
const BACKLOG: usize = 4096;
/// Free slots at which a live subscriber that lost events is sent events again.
const CAUGHT_UP: usize = SLOTS / 2;

/// What happens to a subscriber that is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Gets every event; when it is 256 behind, the model's stream waits for it. Commands still run, and so does
    /// what is under way beside the stream; when it is thousands behind, nothing new is begun
    /// ([`Refusal::SlowSubscriber`](crate::Refusal::SlowSubscriber)).
    Lossless,
    /// Never holds up a run; what it missed is counted in [`Event::Lagged`], sent when it has caught up, with how
    /// everything stands then.
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
    /// Of a lossless one: what did not fit. Bounded, since the model's stream waits while there is any, and new
    /// work is refused beyond [`BACKLOG`].
    backlog: VecDeque<Arc<Envelope>>,
    /// Of a live one: how many it lost since it last got an event, and the last of them.
    missed: u64,
    last_missed: Option<Arc<Envelope>>,
}

impl Subscriber {
    pub(crate) fn new(delivery: Delivery, answers: bool) -> (Self, Events) {
        let (tx, rx) = mpsc::channel(SLOTS);
        (
            Self { tx, delivery, answers, backlog: VecDeque::new(), missed: 0, last_missed: None },
            Events { rx },
        )
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

    /// Whether it is so far behind that nothing new should begin.
    pub(crate) fn is_stuck(&self) -> bool {
        self.backlog.len() >= BACKLOG && self.is_open()
    }

    /// Whether something is kept for it until there is room.
    pub(crate) fn wants_room(&self) -> bool {
        (self.missed > 0 || !self.backlog.is_empty()) && self.is_open()
    }

    /// `snapshot` is how everything stands before the event.
    pub(crate) fn send(&mut self, envelope: &Arc<Envelope>, snapshot: &Snapshot) {
        match self.delivery {
            Delivery::Lossless => {
                self.backlog.push_back(envelope.clone());
                self.flush(snapshot);
            }
            Delivery::Live => {
                self.tell_lag(snapshot);
                if self.missed > 0 || self.tx.try_send(envelope.clone()).is_err() {
                    self.missed += 1;
                    self.last_missed = Some(envelope.clone());
                }
            }
        }
    }

    /// Tells a live one what it lost, once it has room for much more than that.
    fn tell_lag(&mut self, snapshot: &Snapshot) {
        if self.missed == 0 || self.tx.capacity() < CAUGHT_UP {
            return;
        }
        if let Some(last) = self.last_missed.take() {
            let (missed, snapshot) = (std::mem::take(&mut self.missed), Arc::new(snapshot.clone()));
            let event = Event::Lagged { missed, snapshot };
            // There is room.
            drop(self.tx.try_send(Arc::new(Envelope { event, ..Envelope::clone(&last) })));
        }
    }

    /// Moves what fits out of the backlog.
    pub(crate) fn flush(&mut self, snapshot: &Snapshot) {
        self.tell_lag(snapshot);
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

    /// Resolves when there is room, or nobody listens.
    pub(crate) async fn room(&self) {
        let slots = match self.delivery {
            Delivery::Lossless => 1,
            Delivery::Live => CAUGHT_UP,
        };
        // The permits are given back at once: `flush` takes what fits.
        drop(self.tx.reserve_many(slots).await);
    }
}
